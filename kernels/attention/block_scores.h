// Scores of blocks of positions, by which block attention chooses (ChooseBlocksAttrs).
//
//   score[t, h, b] = largest of q[t, h] . key[s] over positions s of block b
//
// for whole blocks of the tokens' sequence that lie before each token's own; their keys must have
// been stored. Sums over key_dim rise, in F32 (double in the scalar variant), over keys that are
// not rounded further than the cache has them: a score depends on its own q and keys alone.
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

struct BlockScoresArgs {
  const float* q = nullptr;  // [T, heads * key_dim]
  int64_t q_stride = 0;      // elements
  ChooseBlocksAttrs attrs;
  KvView kv;
  int64_t token_begin = 0;  // of one sequence
  int64_t token_end = 0;
  int64_t block_begin = 0;
  int64_t block_end = 0;         // at most span_blocks(attrs) behind block_begin
  float* scores = nullptr;       // [token_end - token_begin][heads][span_blocks(attrs)]
  std::byte* scratch = nullptr;  // block_scores_scratch_bytes(attrs), 64-byte aligned
};
using BlockScoresFn = void (*)(const BlockScoresArgs&);

// Blocks that are scored at once.
constexpr int64_t span_blocks(const ChooseBlocksAttrs& attrs) {
  return kAttentionSpan / attrs.block;
}
inline float* block_score(const BlockScoresArgs& a, int64_t token, int64_t head, int64_t block) {
  return a.scores + ((token - a.token_begin) * a.attrs.heads + head) * span_blocks(a.attrs) +
         (block - a.block_begin);
}
// The index queries and keys as an attention of one key head.
constexpr AttentionAttrs index_attention(const ChooseBlocksAttrs& attrs) {
  return {attrs.slot, attrs.heads, 1, attrs.key_dim, 1, 1, 1};
}
inline int64_t block_scores_scratch_bytes(const ChooseBlocksAttrs& attrs) {
  return attention_scratch_bytes(index_attention(attrs));
}

// Families: "choose_blocks".
Result<BlockScoresFn> find_block_scores(std::string_view family, Isa isa);

}  // namespace ktx::kernels
