#include "lib/passes/rule_expert_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// Why a layer cannot have slots for guests; "": it can.
std::string slots_obstacle(const rules::Replace& replace, const rules::ExpertsOn& guests) {
  using Kind = rules::DeviceSpec::Kind;
  const bool on_cpu = !replace.place || replace.place->kind == Kind::Cpu;
  const std::string home = replace.place ? rules::to_string(*replace.place) : "cpu";
  if (!on_cpu || !target::is_first_host(home) || !target::is_first_host(guests.device.text)) {
    return "would have slots for experts that this machine's CPU does not have; write `device: cpu`";
  }
  if (target::is_cpu(guests.device.text)) return "would have slots on a CPU; they are on a GPU";
  if (std::ranges::count_if(replace.experts, &rules::ExpertsOn::guests) > 1) {
    return "would have slots on two devices; a layer has one kind of them";
  }
  if (replace.deferred) {
    return "would have slots and deferred experts: a GPU that may have any expert defers none";
  }
  if (replace.layout && replace.layout->text == "rows") {
    return "would have slots for experts in rows, which a GPU cannot turn into tiles; write "
           "`layout: panel16`, or remove `layout`";
  }
  return "";
}

}  // namespace

std::string expert_sets_obstacle(const rules::Replace& replace, const ir::Module& module) {
  const auto* info = std::get_if<ir::ExpertsInfo>(&module.info);
  if (info == nullptr) return "is no stack of experts";
  std::set<int32_t> seen;
  int64_t count = 0;
  for (const rules::ExpertsOn& set : replace.experts) {
    if (set.guests) {
      if (const std::string obstacle = slots_obstacle(replace, set); !obstacle.empty()) {
        return obstacle;
      }
    }
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
