#include "lib/text/tokenizer/character_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/text/utf8.h"

namespace ktx::text {
namespace {

// The trie of a walk that goes on for longer than any entry is damaged; SentencePiece's own tables
// have entries of at most 18 bytes.
constexpr size_t kLongestEntry = 256;
constexpr size_t kLongestText = 256;  // U+FDFA becomes 33 bytes; a bound on what a text grows to

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= uint32_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// The bits of a unit (darts-clone).
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200u) >> 6);
}
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t label_of(uint32_t unit) {  // above 255 for a leaf: no byte is equal to it
  return unit & 0x800000FFu;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFu;
}

}  // namespace

Result<CharacterMap> CharacterMap::create(std::string_view table) {
  CharacterMap map;
  if (table.empty()) return map;
  constexpr size_t kSize = sizeof(uint32_t);
  const size_t trie = table.size() < kSize ? 0 : little_endian(table, 0);
  if (trie == 0 || trie % kSize != 0 || trie > table.size() - kSize) {
    return Error{
        fmt::format("the table of characters has {} bytes and a trie of {}, expected whole units "
                    "of 4 bytes within it",
                    table.size(), trie)};
  }
  map.units_ = table.substr(kSize, trie);
  map.texts_ = table.substr(kSize + trie);
  size_t begin = 0;
  while (begin < map.texts_.size()) {
    const size_t end = map.texts_.find('\0', begin);
    if (end == std::string_view::npos || end - begin > kLongestText) {
      return Error{
          fmt::format("the table of characters has a text of {} bytes at {}, expected a 0 "
                      "behind at most {}",
                      std::min(end, map.texts_.size()) - begin, begin, kLongestText)};
    }
    begin = end + 1;
  }
  return map;
}

// A unit outside of the trie is one that no byte leads to.
uint32_t CharacterMap::unit(size_t index) const {
  constexpr uint32_t kNowhere = 0x80000000u;
  return index < units_.size() / 4 ? little_endian(units_, index * 4) : kNowhere;
}

CharacterMap::Match CharacterMap::longest(std::string_view text) const {
  Match match;
  size_t at = offset_of(unit(0));
  for (size_t i = 0; i < text.size() && i < kLongestEntry; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    at ^= byte;
    const uint32_t found = unit(at);
    if (label_of(found) != byte) break;
    at ^= offset_of(found);
    if (!has_leaf(found)) continue;
    const uint32_t value = value_of(unit(at));
    if (value < texts_.size()) match = {i + 1, value};
  }
  return match;
}

std::string CharacterMap::apply(std::string_view text) const {
  if (empty()) return std::string(text);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const Match match = longest(text);
    size_t taken = match.length;
    if (taken > 0) {
      out += texts_.data() + match.value;  // ends at its 0
    } else {
      const Utf8Char next = decode_utf8(text);
      taken = next.valid ? next.length : 1;
      out += next.valid ? text.substr(0, taken) : kReplacementChar;
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace ktx::text
