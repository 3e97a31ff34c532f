// The gated delta rule by chunks of 64 tokens on tensor cores (Gated Delta Networks, arXiv
// 2412.06464): what prepare_chunks.cu leaves in scratch memory for chain_chunks.cu.
//
// For one head, M is the matrix before the chunk. Token i has key k_i, query q_i, value v_i and
// strength b_i, and g_i is the sum of the logarithms of what tokens 0 .. i keep:
//
//   A_ij = b_i exp(g_i - g_j) k_i^T k_j for j < i, T = (1 + A)^-1, P_ij = exp(g_i - g_j) q_i^T k_j
//   for j <= i                                                    prepare_chunks, by chunk
//   U = T X, X_i = b_i (v_i - exp(g_i) k_i^T M)                   chain_chunks, chunk by chunk
//   y_i = exp(g_i) q_i^T M + (P U)_i
//   M  <- exp(g_63) M + sum over i of exp(g_63 - g_i) k_i u_i^T
//
// All exponents are at most 0. Differences of g are those of two floats each, since a token that
// keeps nothing would leave no digits to the ones behind it.
//
// Numerics: the products are those of split_bf16.cuh, 1 + A is inverted in F32. With random inputs
// y is right to 2e-6 and M to 2e-5 of (1 + its size); token by token: 2e-7 and 1e-6.
//
// Chunks are at positions that 64 divides, and a text's tokens before the first whole one of a pass
// and behind the last one are taken token by token. So passes that begin and end at multiples of 64
// give the same bits as any others of this kind. Where a pass was cut elsewhere, the tokens of that
// chunk differ by rounding, and what follows. Segments cut no chunk: the state inside one is
// computed beside it.
#pragma once

#include "kernels/cuda/delta_net/cuda_delta_net.h"

namespace ktx::kernels {

inline constexpr int kDeltaChunkDim = 128;

// The tokens of a text in a pass that whole chunks have, of `tokens` from `position` on; none:
// {tokens, tokens}.
struct ChunkTokens {
  int begin, end;
};
__host__ __device__ inline ChunkTokens whole_chunks(int position, int tokens) {
  const int begin = (kDeltaChunk - position % kDeltaChunk) % kDeltaChunk;
  if (begin + kDeltaChunk > tokens) return {tokens, tokens};
  return {begin, begin + (tokens - begin) / kDeltaChunk * kDeltaChunk};
}

// Chunks of a text, one behind the other.
struct ChunkRun {
  int text;
  int row;  // of the first one's first token
  int first, count;
  bool begins;  // with the text's first token of the pass
};
// The chunks of one launch. 16: of 32 value heads and 16 key heads they need 33 MiB, which stay in
// the L2 of an H100.
inline constexpr int kSlabChunks = 16;
struct ChunkSlab {
  int runs = 0, chunks = 0;
  ChunkRun run[kSlabChunks];
};

// Data of a chunk for one key head: keys of length 1 and queries of length head_dim^-1/2, high and
// low parts as planes of split_bf16.cuh.
inline constexpr int kKeyPlane = kDeltaChunk * kDeltaChunkDim;
struct ChunkKeys {
  uint16_t k[2 * kKeyPlane], q[2 * kKeyPlane];
};
// Data of a chunk for one value head. In t and p, nothing is written above the blocks of 16 x 16 on
// the diagonal.
inline constexpr int kPairPlane = kDeltaChunk * kDeltaChunk;
struct ChunkGates {
  float strength[kDeltaChunk];
  float from_start[kDeltaChunk];                      // exp(g_i)
  float to_end[kDeltaChunk];                          // exp(g_63 - g_i)
  float log_high[kDeltaChunk], log_low[kDeltaChunk];  // g_i
  __device__ __forceinline__ float from_to(int from, int to) const {
    return __expf(log_high[to] - log_high[from] + (log_low[to] - log_low[from]));
  }
};
struct ChunkHead {
  uint16_t t[2 * kPairPlane], p[2 * kPairPlane];
  ChunkGates gates;
};

// Scratch memory of a slab.
struct ChunkScratch {
  ChunkKeys* keys;   // [chunks, key_heads]
  ChunkHead* heads;  // [chunks, value_heads]
};

Status launch_prepare_chunks(const CudaDeltaRuleArgs& args, const ChunkSlab& slab,
                             const ChunkScratch& scratch, CudaStream stream);
Status launch_chain_chunks(const CudaDeltaRuleArgs& args, const ChunkSlab& slab,
                           const ChunkScratch& scratch, CudaStream stream);

// Which tokens of each text a launch takes one by one: all, or those before or behind its chunks.
enum class DeltaPart { All, Head, Tail };
Status launch_delta_tokens(const CudaDeltaRuleArgs& args, DeltaPart part, CudaStream stream);

// Whether this machine and this program have chunks of such heads.
bool delta_chunks_run(const DeltaRuleAttrs& attrs);
// All tokens, args.rows' chunks by chunks.
Status launch_delta_chunks(const CudaDeltaRuleArgs& args, CudaStream stream);

}  // namespace ktx::kernels
