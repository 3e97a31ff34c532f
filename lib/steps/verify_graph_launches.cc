// Checks what the passes from cut-parts on have added to a step graph (lib/launches).
#include "lib/launches/verify_launches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/launches/find_fused.h"
#include "lib/steps/graph_step_list.h"

namespace ktx::steps {
namespace {

// A group is what find_fused.h says of its part.
Status verify_groups(const launches::StepList& list, const StepGraph& graph) {
  const launches::Uses uses(list);
  for (const launches::FusedGroup& group : graph.groups) {
    const auto holds = [&](const launches::Part& part) {
      return !group.steps.empty() && part.kind == launches::Part::Kind::Gpu &&
             group.steps.front() >= part.first_step &&
             group.steps.back() < part.first_step + part.step_count &&
             std::is_sorted(group.steps.begin(), group.steps.end());
    };
    const auto part = std::find_if(graph.parts.begin(), graph.parts.end(), holds);
    if (part != graph.parts.end() &&
        launches::is_fused(list, uses, part->first_step, part->step_count, group)) {
      continue;
    }
    return Error{fmt::format("steps {} are no {} of a part on a GPU", fmt::join(group.steps, ", "),
                             name(group.op))};
  }
  return {};
}

}  // namespace

Status verify_launches(const StepGraph& graph) {
  if (graph.parts.empty()) return {};
  const launches::StepList list = step_list(graph);
  KTX_TRY(launches::verify_parts(list, graph.parts));
  KTX_TRY(verify_groups(list, graph));
  if (graph.launches.empty()) return {};
  return launches::verify_launches(list, graph.parts, graph.launches);
}

}  // namespace ktx::steps
