// Lists without duplicates: some of `items`, in their order; and members of objects that are
// counted.
//
//   [a, b, c] with at least 2   ->   a, b   a, b, c   a, c   b, c
#pragma once

#include <vector>

#include "lib/support/result.h"
#include "lib/text/grammar/grammar_rules.h"

namespace ktx::text::grammar {

inline constexpr int kMaxCountedItems = 40;  // where their number has limits

// `max` may be kNoLimit. An error where items are counted and are more than that.
Result<int> unique_list(GrammarRules& rules, int separator, const std::vector<int>& items, int min,
                        int max);

// Members of an object, in order; those of `other` names behind them.
struct CountedMembers {
  std::vector<int> members;
  std::vector<bool> is_required;
  int other = -1;  // -1: none
};
// From `min` to `max` of them; all `other` ones together count as one towards `min`, as one name
// can come twice. An error where there are more than kMaxCountedItems.
Result<int> counted_members(GrammarRules& rules, int separator, const CountedMembers& all, int min,
                            int max);

}  // namespace ktx::text::grammar
