#include "lib/support/shard_names.h"

#include <fmt/format.h>

namespace ktx {
namespace {

// Exactly five digits.
std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  if (text.size() != 5) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint32_t>(c - '0');
  }
  return value;
}

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view path) {
  constexpr std::string_view kPattern = "-00001-of-00001.gguf";
  if (path.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kPattern.size());
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !number ||
      !count) {
    return std::nullopt;
  }
  return ShardName{std::string(path.substr(0, path.size() - kPattern.size())), *number, *count};
}

std::string shard_path(const ShardName& name, uint32_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, number, name.count);
}

}  // namespace ktx
