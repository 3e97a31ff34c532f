#include "lib/passes/rule_expert_sets.h"

#include <fmt/format.h>

#include <set>

namespace ktx::passes {

std::string expert_sets_obstacle(const rules::Replace& replace, const ir::Module& module) {
  const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
  if (info == nullptr) return "is no stack of experts";
  std::set<int32_t> seen;
  int64_t count = 0;
  for (const rules::ExpertsOn& set : replace.experts) {
    count += set.count;
    for (int32_t expert : set.experts) {
      if (expert >= info->experts) {
        return fmt::format("has no expert {}: it has {} (0 to {})", expert, info->experts,
                           info->experts - 1);
      }
      if (!seen.insert(expert).second) return fmt::format("would have expert {} twice", expert);
    }
  }
  if (count >= info->experts) {
    return fmt::format("has {} experts, of which the rule puts {} elsewhere; one at least stays",
                       info->experts, count);
  }
  return "";
}

}  // namespace ktx::passes
