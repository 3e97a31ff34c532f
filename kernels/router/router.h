// Choice of experts, and the sort of tokens by expert.
//
// router: per token the five steps of RouterAttrs (lib/ops/step_attrs.h). Scores,
// sums and weights are computed in a fixed order; a NaN choice counts as -infinity, so
// that always top_k different experts come out. When fewer than top_k experts lie in
// the groups that stay, the others follow in rising number with their own scores.
//
// group_experts: a stable counting sort; serial, one call per step. ids must be in
// [0, experts). Pairs of experts that are elsewhere, and of ranks that the step leaves out, come
// last.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RouterArgs {
  const float* logits = nullptr;    // [T, experts]
  int64_t logits_stride = 0;        // elements
  const float* bias = nullptr;      // [experts] or null
  const float* factors = nullptr;   // [experts] or null
  const int32_t* table = nullptr;   // [vocabulary, top_k] in [0, experts), or null
  const int32_t* tokens = nullptr;  // [T] ids, rows of the table
  RouterAttrs attrs;                // 1 <= top_k <= experts; groups divides experts
  int32_t* ids = nullptr;           // [T, top_k], dense
  float* weights = nullptr;         // [T, top_k], dense
  int64_t token_begin = 0;
  int64_t token_end = 0;
  float* scratch = nullptr;  // 2 * experts + groups floats, one per thread
};
using RouterFn = void (*)(const RouterArgs&);

struct GroupExpertsArgs {
  const int32_t* ids = nullptr;  // [T, top_k], dense
  int64_t tokens = 0;
  GroupExpertsAttrs attrs;
  int32_t* order = nullptr;    // [T * top_k] pair numbers token * top_k + choice
  int32_t* offsets = nullptr;  // [experts + 1]; pairs from the last on are of no expert here
  // [experts of the router] which of them are here (expert_places.h); null: all are.
  const float* places = nullptr;
  // Pairs of matrices outside of [first, end) are of no expert here either.
  int32_t first = 0, end = INT32_MAX;
};
using GroupExpertsFn = void (*)(const GroupExpertsArgs&);

// The sum of a token's pairs, which experts on several hosts have computed (experts_down, by_pair):
//
//   y[t] (+)= pairs[t][choice], in rising ids[t][choice]
//
// from 0 or what y has, one pair after the other: as experts_down adds where all are on one.
struct SumExpertsArgs {
  const float* pairs = nullptr;  // [T, top_k, width]
  int64_t pairs_stride = 0;      // elements between tokens
  const int32_t* ids = nullptr;  // [T, top_k], dense
  int32_t top_k = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  bool accumulate = false;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using SumExpertsFn = void (*)(const SumExpertsArgs&);

// Families: "router", "group_experts", "sum_experts".
Result<RouterFn> find_router(std::string_view family, Isa isa);
Result<GroupExpertsFn> find_group_experts(std::string_view family, Isa isa);
Result<SumExpertsFn> find_sum_experts(std::string_view family, Isa isa);

}  // namespace ktx::kernels
