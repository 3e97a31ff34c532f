// What differs between two plans, for `ktx-run inspect --diff`.
//
//   placement
//     what                            first plan           second plan
//     model.layers.0-23.mlp.experts   cpu                  cuda:0
//
//   layouts
//     blk.0-23.ffn_down_exps.weight   cpu Q6_K panel16s    cuda:0 Q6_K marlin
//
//   weights
//     blk.7.ffn_up.weight             other values         other values
//
//   289 of 290 tensors have the same values
//
// Weights are compared by the hashes of what was packed; where layouts differ, by the source's
// bytes in them, which are read for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

struct PlanDifference {
  std::string name;
  std::string a, b;  // "" where one has none
};

struct PlanDiff {
  std::vector<PlanDifference> facts;      // of the model, target, provenance, options, template
  std::vector<PlanDifference> placement;  // devices by module; layers of a kind are one
  std::vector<PlanDifference> layouts;    // device, format and layout by tensor; likewise
  std::vector<PlanDifference> weights;    // tensors with other values, or that one does not have
  std::vector<PlanDifference> kernels;    // steps by device, op and kernel family
  int64_t tensors = 0, equal_tensors = 0;

  bool equal() const {
    return facts.empty() && placement.empty() && layouts.empty() && weights.empty() &&
           kernels.empty();
  }
};

// `a` and `b` are of plan files. Fails where a weight is damaged.
Result<PlanDiff> diff_plans(const PlanView& a, const PlanView& b);

std::string diff_tables(const PlanDiff& diff);
std::string diff_json(const PlanDiff& diff);  // ends with a newline

}  // namespace ktx::plan
