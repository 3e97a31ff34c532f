// Attention in parts: positions of a token are cut into `splits` runs of pieces of 64; each
// part has the largest score m, the sum l of exp(score - m) and the weighted values, and
// parts are merged in rising order. With one split a kernel writes y itself.
#pragma once

#include "kernels/cuda/attention/kv_tile.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {

struct AttentionParts {
  float* values = nullptr;  // [tokens][heads][splits][value_dim], not yet divided by l
  float2* sums = nullptr;   // [tokens][heads][splits]: m, l
  int splits = 1;
};

// y[token][head] of the parts, heads of value_dim side by side.
Status launch_merge_parts(const AttentionParts& parts, int heads, int value_dim, int64_t tokens,
                          float* y, int64_t y_stride, cudaStream_t stream);

// The pieces of a split of a token that sees `positions` positions.
struct PieceRange {
  int begin, end;
};
__device__ __forceinline__ PieceRange piece_range(int positions, int splits, int split) {
  const int pieces = (positions + kPiece - 1) / kPiece;
  const int share = (pieces + splits - 1) / splits;
  return {min(pieces, split * share), min(pieces, (split + 1) * share)};
}

// Tensor-core kernel: F16 and Q8_0, key_dim a multiple of 32, value_dim 64, 128, 256 or 512,
// blocks of the cache a multiple of 64 tokens; sm_75 and newer.
bool attention_tiles_takes(const CudaAttentionArgs& args);
// Blocks of threads of one split.
int64_t attention_tiles_blocks(const CudaAttentionArgs& args);
Status launch_attention_tiles(const CudaAttentionArgs& args, const AttentionParts& parts,
                              cudaStream_t stream);

// Tensor cores too, for values that are in the keys: rows as above, value_dim 256 or 512, where
// shared memory holds a piece of the cache.
bool attention_latent_takes(const CudaAttentionArgs& args);
int64_t attention_latent_blocks(const CudaAttentionArgs& args);
Status launch_attention_latent(const CudaAttentionArgs& args, const AttentionParts& parts,
                               cudaStream_t stream);

// Tokens of sequences of their own with `prepare`, heads of 64 or 128 in groups of at most eight,
// F16 and Q8_0; sm_90. Merges its parts itself: takes no `parts`.
bool attention_decode_takes(const CudaAttentionArgs& args);
Status launch_attention_one(const CudaAttentionArgs& args, cudaStream_t stream);

// Every other case: one block a (token, head, split), in F32.
Status launch_attention_any(const CudaAttentionArgs& args, const AttentionParts& parts,
                            cudaStream_t stream);

}  // namespace ktx::kernels
