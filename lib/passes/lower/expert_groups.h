// The experts of a layer by device, where they are split: one group for each, which has steps,
// weights and numbers of its own.
//
//   decision device cpu experts cuda:0 "0..31,40"
//     cpu      32..39, 41..127      places -1 ... -1 0 1 ... 7 -1 8 ...
//     cuda:0   0..31, 40            places 0 1 ... 31 -1 ... -1 32 -1 ...
//
// Guests are in both groups; `places` of the CPU leave those out that are guests at first.
//
//   decision device cpu experts cuda:0 "2,5" guests
//     cpu      all                  places 0 1 -1 3 4 -1 6 ...
//     cuda:0   2, 5                 places -1 -1 0 -1 -1 1 -1 ...
#pragma once

#include <string>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/passes/placement.h"
#include "lib/support/result.h"

namespace ktx::passes {

struct ExpertGroup {
  std::string device;
  std::vector<int32_t> experts;  // rising; empty: all of the layer
  std::string suffix;            // of the names of its values: "", "_cuda:0"
  float use = 1;                 // share of the layer's activations that are expected here
  // A token's choices, best first: `ranks` of them from first_rank on (GroupExpertsAttrs); 0: all.
  int32_t first_rank = 0, ranks = 0;
  bool guests = false;             // its experts change between passes
  std::vector<int32_t> away = {};  // of its experts, those that are guests elsewhere at first
};

// Takes the last `deferred` of `top_k` choices out of a group, into a group of their own.
ExpertGroup take_deferred(ExpertGroup& group, int32_t top_k, int32_t deferred);

// The groups of an experts module whose sets are chosen; that of its own device comes first. One
// group where nothing is split.
std::vector<ExpertGroup> expert_groups(const ir::Module& experts, int32_t all);

// "32 for 128 experts of each of 48 layers, which follow use: 71.2 % of the chosen ones by the
// profile"; "": there are none.
std::string slots_text(const ir::ModuleGraph& modules, const Placement& placement, bool by_profile);

// The matrices of these experts (rows of a bias). An error where they are no slices of tensors.
Result<ir::Param> experts_of(const ir::Module& module, const ir::Param& param,
                             const std::vector<int32_t>& experts);

}  // namespace ktx::passes
