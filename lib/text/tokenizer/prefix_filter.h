// Which texts may be the beginning of a token: a walk along a text ends where no token goes on,
// instead of looking up every length up to that of the longest token.
//
//   PrefixFilter filter(tokens.bytes().size());
//   filter.add("the");
//   filter.reach("there", 5)      // 3, or more: a text that has the hash of a beginning counts
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ktx::text {

class PrefixFilter {
 public:
  // `bytes`: of all tokens that will be added, about.
  explicit PrefixFilter(size_t bytes) : bits_(std::bit_ceil(kBitsPerByte * bytes + 64)) {}

  void add(std::string_view token) {
    uint64_t hash = kSeed;
    for (const char c : token) bits_[bit(hash = after(hash, c))] = true;
  }
  // No token that begins the text is longer than this, of at most `longest` bytes.
  size_t reach(std::string_view text, size_t longest) const {
    longest = std::min(longest, text.size());
    uint64_t hash = kSeed;
    size_t size = 0;
    while (size < longest && bits_[bit(hash = after(hash, text[size]))]) ++size;
    return size;
  }

 private:
  static constexpr size_t kBitsPerByte = 4;
  static constexpr uint64_t kSeed = 0xCBF29CE484222325u;
  static uint64_t after(uint64_t hash, char c) {
    return (hash ^ static_cast<uint8_t>(c)) * 0x9E3779B97F4A7C15u;
  }
  size_t bit(uint64_t hash) const { return (hash >> 24) & (bits_.size() - 1); }

  std::vector<bool> bits_;
};

}  // namespace ktx::text
