// Scores of positions, by which sparse attention chooses (ChoosePositionsAttrs).
//
//   scores[t][s - position_begin] = scale * sum over heads of weights[t, h] * max(0, q[t, h] .
//   key[s])
//
// for positions s of one span of the tokens' sequence; their keys must have been stored. Sums over
// key_dim first, then over heads, both rising, in F32 (double in the scalar variant) and over keys
// that are not rounded further than the cache has them: a score depends on its own q, weights and
// key alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_layout.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct PositionScoresArgs {
  const float* q = nullptr;        // [T, heads * key_dim]
  int64_t q_stride = 0;            // elements
  const float* weights = nullptr;  // [T, heads]; null: all are 1
  int64_t weights_stride = 0;
  ChoosePositionsAttrs attrs;
  KvView kv;
  int64_t token_begin = 0;  // of one sequence
  int64_t token_end = 0;
  int64_t position_begin = 0;
  int64_t position_end = 0;      // at most kAttentionSpan behind position_begin
  float* scores = nullptr;       // [token_end - token_begin][kAttentionSpan]
  std::byte* scratch = nullptr;  // position_scores_scratch_bytes(attrs), 64-byte aligned
};
using PositionScoresFn = void (*)(const PositionScoresArgs&);

// The index queries and keys as an attention of one key head.
constexpr AttentionAttrs index_attention(const ChoosePositionsAttrs& attrs) {
  return {attrs.slot, attrs.heads, 1, attrs.key_dim, 1, 1, 1};
}
inline int64_t position_scores_scratch_bytes(const ChoosePositionsAttrs& attrs) {
  return attention_scratch_bytes(index_attention(attrs));
}

// Families: "choose_positions".
Result<PositionScoresFn> find_position_scores(std::string_view family, Isa isa);

}  // namespace ktx::kernels
