// Values of command-line options, the same for every tool. Nothing on a value that
// is malformed or out of range; the caller names the option and what it takes.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ktx::tools {

inline constexpr int64_t kMaxSizeBytes = int64_t{1} << 50;
inline constexpr int64_t kMaxCtx = int64_t{1} << 24;  // what the engine takes

// A whole decimal number within [low, high].
inline std::optional<int64_t> parse_whole(std::string_view text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < low || value > high) return std::nullopt;
  return value;
}

// Bytes: "8G", "512M", "64K" (powers of 1024) or a plain number; at least 1.
inline std::optional<int64_t> parse_size(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  int shift = 0;
  if (!text.empty() && kUnits.find(text.back()) != std::string_view::npos) {
    shift = 10 * (static_cast<int>(kUnits.find(text.back())) + 1);
    text.remove_suffix(1);
  }
  const std::optional<int64_t> value = parse_whole(text, 1, kMaxSizeBytes >> shift);
  return value ? std::optional(*value << shift) : std::nullopt;
}

}  // namespace ktx::tools
