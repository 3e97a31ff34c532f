#include "lib/text/grammar/unique_list.h"

#include <fmt/format.h>

#include <algorithm>

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

Result<int> counted_members(GrammarRules& g, int separator, const CountedMembers& all, int min,
                            int max) {
  const int size = static_cast<int>(all.members.size());
  if (size > kMaxCountedItems) {
    return Error{fmt::format(
        "'minProperties' or 'maxProperties' with {} properties; at most {} are supported", size,
        kMaxCountedItems)};
  }
  const int most = max == kNoLimit ? size : std::min(max, size);
  // From the back: rest[n] is what may follow the members before i, of which n are there.
  std::vector<int> rest(static_cast<size_t>(most) + 1);
  for (int n = 0; n <= most; ++n) {
    std::vector<int> ways;
    if (n >= min) ways.push_back(g.text(""));
    if (all.other >= 0 && n + 1 >= min && (max == kNoLimit || n < max)) {
      const int more = max == kNoLimit ? kNoLimit : max - n;
      const int others = g.list(all.other, separator, 1, more);
      ways.push_back(n > 0 ? g.sequence({separator, others}) : others);
    }
    rest[static_cast<size_t>(n)] = g.alternatives(std::move(ways));
  }
  for (int i = size - 1; i >= 0; --i) {
    const auto member = static_cast<size_t>(i);
    std::vector<int> before(rest.size());
    for (int n = 0; n <= most; ++n) {
      const auto at = static_cast<size_t>(n);
      std::vector<int> ways;
      if (!all.is_required[member]) ways.push_back(rest[at]);
      if (n < most) {
        std::vector<int> parts = {all.members[member], rest[at + 1]};
        if (n > 0) parts.insert(parts.begin(), separator);
        ways.push_back(g.sequence(std::move(parts)));
      }
      const int rule = g.add_rule("members");
      g.set_rule(rule, g.alternatives(std::move(ways)));
      before[at] = g.rule(rule);
    }
    rest = std::move(before);
  }
  return rest[0];
}

}  // namespace ktx::text::grammar
