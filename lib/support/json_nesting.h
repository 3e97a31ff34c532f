// Estimates what a JSON text would cost to parse, before it is parsed, so that hostile text is
// refused first: values are used recursively, objects that keep their order compare each new
// key with all earlier ones, and small values take many times the memory of their text.
//
//   if (json_nesting(text) > 64) return Error{"nested too deep"};
//   if (json_member_pairs(text) > kMaxMemberPairs) return Error{"too many members"};
//   if (json_tree_bytes(text) > kMaxTreeBytes) return Error{"too many values"};
#pragma once

#include <cstdint>
#include <string_view>

namespace ktx {

// The most brackets open at once, outside of strings. Any bytes will do: what is no JSON
// is found out by the parser.
int json_nesting(std::string_view text);

// How many pairs of keys are in the same object, summed over all objects: an object of n
// members has n (n - 1) / 2. A text of 32 MB can have 10^13, hours of comparisons. A pair counts
// once more for each 32 bytes of its later key: keys may differ only at their ends.
uint64_t json_member_pairs(std::string_view text);

inline constexpr uint64_t kMaxMemberPairs = 50'000'000;  // 10,000 members of one object: 0.2 s

// About how many bytes the values made of the text take, beside the characters of its strings:
// "{}," is 3 bytes of text and some 70 of memory.
uint64_t json_tree_bytes(std::string_view text);

inline constexpr uint64_t kMaxTreeBytes = uint64_t{256} << 20;  // 8 million numbers in a list

}  // namespace ktx
