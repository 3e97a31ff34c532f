#include "lib/passes/lower/expert_groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::passes {

std::vector<ExpertGroup> expert_groups(const ir::Module& experts, int32_t all) {
  const std::vector<ir::ExpertSet>& sets = experts.decision.expert_sets;
  std::vector<ExpertGroup> groups{{experts.decision.device, {}, "", 1}};
  if (sets.empty()) return groups;
  std::vector<bool> elsewhere(static_cast<size_t>(all));
  bool fixed = false;
  for (const ir::ExpertSet& set : sets) {
    ExpertGroup group{set.device, set.experts, "_" + set.device, set.use};
    groups[0].use = std::max(0.0f, groups[0].use - set.use);
    if (set.guests) {
      group.suffix += "_guests";
      groups[0].away = set.experts;
      group.guests = groups[0].guests = true;
    } else {
      for (int32_t expert : set.experts) elsewhere[static_cast<size_t>(expert)] = true;
      fixed = true;
    }
    groups.push_back(std::move(group));
  }
  if (!fixed) return groups;
  for (int32_t e = 0; e < all; ++e) {
    if (!elsewhere[static_cast<size_t>(e)]) groups[0].experts.push_back(e);
  }
  return groups;
}

ExpertGroup take_deferred(ExpertGroup& group, int32_t top_k, int32_t deferred) {
  ExpertGroup later = group;
  later.suffix += "_deferred";
  later.first_rank = top_k - deferred;
  later.ranks = deferred;
  later.use = group.use * static_cast<float>(deferred) / static_cast<float>(top_k);
  group.ranks = top_k - deferred;
  group.use -= later.use;
  return later;
}

std::string slots_text(const ir::ModuleGraph& modules, const Placement& placement,
                       bool by_profile) {
  int32_t layers = 0, least = 0, most = 0, experts = 0;
  double use = 0;
  for (const ir::Module& module : modules.modules) {
    const ModulePlace& place = placement.at(modules, module);
    for (const ExpertSplit& split : place.splits) {
      if (!split.guests) continue;
      least = layers == 0 ? split.count : std::min(least, split.count);
      most = std::max(most, split.count);
      experts = place.experts;
      use += split.use;
      ++layers;
    }
  }
  if (layers == 0) return "";
  const std::string some =
      least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  return fmt::format(
      "{} for {} experts of each of {} layer{}, which follow use: {:.1f} % of the chosen ones {}",
      some, experts, layers, layers == 1 ? "" : "s", 100 * use / layers,
      by_profile ? "by the profile" : "where all are used alike, else more");
}

Result<ir::Param> experts_of(const ir::Module& module, const ir::Param& param,
                             const std::vector<int32_t>& experts) {
  const int64_t all = param.matrices > 1 ? param.matrices : param.rows;  // of a bias
  const int64_t rows = param.matrices > 1 ? param.rows : 1;
  ir::Param part = param;
  part.sources.clear();
  if (param.matrices == 1 && param.rows == 1) {
    return Error{fmt::format("'{}' of '{}' cannot be split", param.name, module.path)};
  }
  const bool stacked = param.sources.size() == 1;
  if (!stacked && std::ssize(param.sources) != all) {
    return Error{fmt::format("'{}' of '{}' has {} slices for {} experts, which cannot be split",
                             param.name, module.path, param.sources.size(), all)};
  }
  for (int32_t expert : experts) {
    if (!stacked) {
      part.sources.push_back(param.sources[static_cast<size_t>(expert)]);
      continue;
    }
    const TensorSlice& whole = param.sources[0];
    const int64_t first = whole.first_row + expert * rows;
    TensorSlice* last = part.sources.empty() ? nullptr : &part.sources.back();
    if (last && last->first_row + last->row_count == first) {
      last->row_count += rows;
    } else {
      part.sources.push_back({whole.tensor, first, rows});
    }
  }
  (param.matrices > 1 ? part.matrices : part.rows) = std::ssize(experts);
  return part;
}

}  // namespace ktx::passes
