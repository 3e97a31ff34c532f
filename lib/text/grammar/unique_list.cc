#include "lib/text/grammar/unique_list.h"

#include <fmt/format.h>

namespace ktx::text::grammar {

Result<int> unique_list(GrammarRules& g, int separator, const std::vector<int>& items, int min,
                        int max) {
  const int size = static_cast<int>(items.size());
  if (min > size) return g.nothing();
  if (max == kNoLimit || max > size) max = size;
  if (min == 0 && max == size) {
    return g.joined(separator, items, std::vector<bool>(items.size(), false));
  }
  if (size > kMaxCountedItems) {
    return Error{fmt::format(
        "'uniqueItems' of {} values with 'minItems' or 'maxItems'; at most {} values are supported",
        size, kMaxCountedItems)};
  }
  // From the back: rest[n] is what may follow the items before i, of which n were taken.
  std::vector<int> rest(static_cast<size_t>(max) + 1);
  for (int n = 0; n <= max; ++n) rest[static_cast<size_t>(n)] = n < min ? g.nothing() : g.text("");
  for (int i = size - 1; i >= 0; --i) {
    std::vector<int> before(rest.size());
    for (int n = 0; n <= max; ++n) {
      const auto at = static_cast<size_t>(n);
      std::vector<int> ways = {rest[at]};
      if (n < max) {
        std::vector<int> parts = {items[static_cast<size_t>(i)], rest[at + 1]};
        if (n > 0) parts.insert(parts.begin(), separator);
        ways.push_back(g.sequence(std::move(parts)));
      }
      // A rule each: many ways lead to it.
      const int rule = g.add_rule("items");
      g.set_rule(rule, g.alternatives(std::move(ways)));
      before[at] = g.rule(rule);
    }
    rest = std::move(before);
  }
  return rest[0];
}

}  // namespace ktx::text::grammar
