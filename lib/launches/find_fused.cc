#include "lib/launches/find_fused.h"

#include <numeric>

#include "lib/launches/fused/group_search.h"

namespace ktx::launches {

Uses::Uses(const StepList& list) : readers(list.values.size()), writers(list.values.size()) {
  for (size_t i = 0; i < list.steps.size(); ++i) {
    const auto step = static_cast<int32_t>(i);
    for (const ListedOperand& in : list.steps[i].inputs) {
      if (in.value != kNone) readers[in.value].push_back(step);
    }
    for (const ListedOperand& out : list.steps[i].outputs) {
      if (out.value != kNone) writers[out.value].push_back(step);
    }
  }
}

std::vector<FusedGroup> find_fused(const StepList& list, const Uses& uses, int32_t first,
                                   int32_t count) {
  std::vector<int32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return GroupSearch(list, uses, first, count, all).run();
}

bool is_fused(const StepList& list, const Uses& uses, int32_t first, int32_t count,
              const FusedGroup& group) {
  const std::vector<FusedGroup> found = GroupSearch(list, uses, first, count, group.steps).run();
  return found.size() == 1 && found[0] == group;
}

}  // namespace ktx::launches
