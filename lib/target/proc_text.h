// Small readers for the text files of /proc and /sys. Private to lib/target.
#pragma once

#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/strings.h"

namespace ktx::target {

// The whole file, or nothing. (Not read_text_file: these files claim to be empty.)
inline std::optional<std::string> read_proc(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

inline std::optional<uint64_t> parse_number(std::string_view text) {
  text = trim(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

inline std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_proc(path);
  return text ? parse_number(*text) : std::nullopt;
}

// The number after `key` at the start of a line: "MemTotal:   123 kB" -> 123.
inline std::optional<uint64_t> field(std::string_view text, std::string_view key) {
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.empty() || (line[0] != ' ' && line[0] != '\t' && line[0] != ':')) continue;
    if (line[0] == ':') line.remove_prefix(1);
    line = trim(line);
    return parse_number(line.substr(0, line.find(' ')));
  }
  return std::nullopt;
}

// "0-3,8" -> 0 1 2 3 8; stops at the first thing that is no list.
inline std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  for (std::string_view part : split(trim(text), ',')) {
    const size_t dash = part.find('-');
    const auto first = parse_number(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_number(part.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 65535) break;
    for (uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

}  // namespace ktx::target
