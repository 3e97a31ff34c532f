#include "lib/program/find_fused.h"

#include <algorithm>
#include <numeric>

#include "lib/program/fused/group_search.h"

namespace ktx::program {

Uses::Uses(const Program& program)
    : readers(program.values.size()), writers(program.values.size()) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto step = static_cast<int32_t>(i);
    for (const View& in : program.steps[i].inputs) {
      if (in.value != kAbsent) readers[in.value].push_back(step);
    }
    for (const View& out : program.steps[i].outputs) {
      if (out.value != kAbsent) writers[out.value].push_back(step);
    }
  }
}

std::vector<FusedGroup> find_fused(const Program& program, const Uses& uses, int32_t first,
                                   int32_t count) {
  std::vector<int32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return GroupSearch(program, uses, first, count, all).run();
}

bool is_fused(const Program& program, const Uses& uses, int32_t first, int32_t count,
              const FusedGroup& group) {
  const std::vector<FusedGroup> found = GroupSearch(program, uses, first, count, group.steps).run();
  return std::ranges::find(found, group) != found.end();
}

}  // namespace ktx::program
