// Lists without duplicates: some of `items`, in their order.
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

}  // namespace ktx::text::grammar
