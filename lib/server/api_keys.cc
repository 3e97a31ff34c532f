#include "lib/server/api_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/line_note.h"
#include "lib/support/quantity.h"
#include "lib/support/strings.h"

namespace ktx::server {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;
constexpr int64_t kMostPriority = 1000;

// One word behind the key.
Status read_word(std::string_view word, ApiKey& key) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  if (name == "name" && !value.empty()) {
    key.name = value;
    return {};
  }
  if (name == "models" && value == "edit") {
    key.edits_models = true;
    return {};
  }
  if (name == "figures" && value == "all") {
    key.sees_figures = true;
    return {};
  }
  if (name == "priority") {
    const auto number = parse_count(value, 1, kMostPriority);
    if (!number) {
      return Error{fmt::format("'{}' is no priority; expected priority=N with N from 1 to {}",
                               printable(word), kMostPriority)};
    }
    key.priority = *number;
    return {};
  }
  for (const auto& [limit, out] : {std::pair("requests", &key.requests_per_minute),
                                   std::pair("tokens", &key.tokens_per_minute)}) {
    if (name != limit || value.empty()) continue;
    const auto number = parse_count(value, 1, kMost);
    if (!number) return Error{fmt::format("'{}' is no count, such as 60 or 20k", printable(word))};
    *out = *number;
    return {};
  }
  return Error{
      fmt::format("'{}' behind a key; expected name=NAME, requests=N or tokens=N (per "
                  "minute), priority=N, models=edit or figures=all",
                  printable(word))};
}

}  // namespace

Status read_api_keys(std::string_view path, std::string_view text, std::vector<ApiKey>& keys) {
  const size_t before = keys.size();
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = without_note(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const auto next_word = [&] {
      const std::string_view word = line.substr(0, line.find_first_of(" \t"));
      line = trim(line.substr(word.size()));
      return word;
    };
    ApiKey key{std::string(next_word())};
    while (!line.empty()) {
      if (const Status read = read_word(next_word(), key); !read) {
        return Error{fmt::format("{}:{}: {}", path, number, read.error().message)};
      }
    }
    keys.push_back(std::move(key));
  }
  if (keys.size() == before) return Error{fmt::format("{}: no key in it", path)};
  return {};
}

}  // namespace ktx::server
