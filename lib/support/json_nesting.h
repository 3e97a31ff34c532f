// What parsing a JSON text would cost, found before it is parsed: values made of it are
// used recursively, and objects that keep their order compare each new key with all before
// it, so that hostile text must be refused first.
//
//   if (json_nesting(text) > 64) return Error{"nested too deep"};
//   if (json_member_pairs(text) > kMaxMemberPairs) return Error{"too many members"};
#pragma once

#include <cstdint>
#include <string_view>

namespace ktx {

// The most brackets open at once, outside of strings. Any bytes will do: what is no JSON
// is found out by the parser.
int json_nesting(std::string_view text);

// How many pairs of keys are in the same object, summed over all objects: an object of n
// members has n (n - 1) / 2. A text of 32 MB can have 10^13, hours of comparisons.
uint64_t json_member_pairs(std::string_view text);

inline constexpr uint64_t kMaxMemberPairs = 50'000'000;  // 10,000 members of one object: 0.2 s

}  // namespace ktx
