// Attention in parts: positions of a token are cut into `splits` runs of pieces of 64; each
// part has the largest score m, the sum l of exp(score - m) and the weighted values, and
// parts are merged in rising order. With one split a kernel writes y itself.
#pragma once

#include "kernels/attention/text_span.h"
#include "kernels/cuda/attention/kv_tile.cuh"
#include "kernels/cuda/common/cuda_launch.cuh"

namespace ktx::kernels {

struct AttentionParts {
  float* values = nullptr;  // [tokens][heads][splits][value_dim], not yet divided by l
  float2* sums = nullptr;   // [tokens][heads][splits]: m, l
  int splits = 1;
};

// y[token][head] of the parts, heads of value_dim side by side. `sinks` [heads] may be null.
Status launch_merge_parts(const AttentionParts& parts, int heads, int value_dim, int64_t tokens,
                          const float* sinks, float* y, int64_t y_stride, cudaStream_t stream);

// The pieces of a split of a token that sees the positions [first, end).
struct PieceRange {
  int begin, end;
};
__device__ __forceinline__ PieceRange piece_range(int first, int end, int splits, int split) {
  const int before = first / kPiece, pieces = (end + kPiece - 1) / kPiece;
  const int share = (pieces - before + splits - 1) / splits;
  return {min(pieces, before + split * share), min(pieces, before + (split + 1) * share)};
}
// How many entries a token at `position` takes, and the first position behind them.
__device__ __forceinline__ int taken_entries(const CudaAttentionArgs& a, int position) {
  const int seen = static_cast<int>(entries_seen(a.every, position));
  return a.chosen ? min(seen, static_cast<int>(a.top_k)) : seen;
}
__device__ __forceinline__ int first_recent(const CudaAttentionArgs& a, int position) {
  return max(position - a.recent + 1, 0);
}
// How many positions a token takes, from 0 on: those up to its own or to the end of its window, or
// the chosen ones, or entries and the last positions. None of padding.
__device__ __forceinline__ int taken_positions(const CudaAttentionArgs& a, int64_t token) {
  const int positions = a.kv.position[token] + 1;
  if (a.text_end && positions > 0) {
    return static_cast<int>(last_position(a.attrs, positions - 1, a.text_end[token])) + 1;
  }
  if (a.blocks && positions > 0) {
    return static_cast<int>(last_of_blocks(a.top_k, a.block, positions - 1)) + 1;
  }
  if (a.every > 0 && positions > 0) {
    return taken_entries(a, positions - 1) + positions - first_recent(a, positions - 1);
  }
  return a.chosen ? min(positions, static_cast<int>(a.top_k)) : positions;
}
// The position that has this number among them.
__device__ __forceinline__ int taken_position(const CudaAttentionArgs& a, int64_t token,
                                              int kv_head, int number) {
  if (a.blocks) {
    const int32_t* const own = a.blocks + (token * a.attrs.kv_heads + kv_head) * a.top_k;
    return own[number / a.block] * a.block + number % a.block;
  }
  return a.chosen ? a.chosen[token * a.top_k + number] : number;
}
// The key that has this number among what a token takes, and its form.
struct TakenKey {
  const std::byte* row;
  KvType type;
};
__device__ __forceinline__ TakenKey taken_key(const CudaAttentionArgs& a, int64_t token,
                                              int sequence, int kv_head, int number) {
  int position = 0;
  if (a.every > 0) {
    const int own = a.kv.position[token], entries = taken_entries(a, own);
    if (number < entries) {
      const int entry = a.chosen ? a.chosen[token * a.top_k + number] : number;
      return {kv_key(a.entries, sequence, 0, entry), a.entries.layout.type};
    }
    position = first_recent(a, own) + number - entries;
  } else {
    position = taken_position(a, token, kv_head, number);
  }
  return {kv_key(a.kv, sequence, kv_head, position), a.kv.layout.type};
}
// Whether what a token takes is a list of its own, of positions or entries.
__host__ __device__ inline bool has_list(const CudaAttentionArgs& a) {
  return a.chosen != nullptr || a.blocks != nullptr || a.every > 0;
}
// Whether a block takes one token: those beside it have other positions.
__host__ __device__ inline bool one_token(const CudaAttentionArgs& a) {
  return a.one_token_per_sequence || has_list(a);
}
__device__ __forceinline__ int first_seen(const AttentionAttrs& attrs, int position) {
  return static_cast<int>(first_position(attrs, position));
}
// (Where positions are chosen there is no window.)
__device__ __forceinline__ int first_taken(const CudaAttentionArgs& a, int64_t token) {
  return first_seen(a.attrs, max(a.kv.position[token], 0));
}

// What the weighted values are multiplied by, for the largest score and the sum of the weights; the
// weight of the head's sink is one of them. Nothing was seen where the sum is 0.
__device__ __forceinline__ float softmax_factor(const float* sinks, int head, float largest,
                                                float sum) {
  if (!(sum > 0)) return 0;
  return 1 / (sinks ? sum + __expf(sinks[head] - largest) : sum);
}

// A weighted value of such a head.
__device__ __forceinline__ float finished(const CudaAttentionArgs& a, int head, float value,
                                          float largest, float sum) {
  if (a.sinks) return value * softmax_factor(a.sinks, head, largest, sum);
  return sum > 0 ? value / sum : 0;
}

// Most positions that one of `tokens` side by side may see, of a launch's bound.
inline int64_t seen_positions(const CudaAttentionArgs& a, int64_t tokens) {
  if (a.every > 0) {
    const int64_t entries = a.max_positions / a.every;
    return (a.chosen && a.top_k < entries ? a.top_k : entries) + a.recent;
  }
  const int64_t taken = a.blocks ? a.top_k * a.block : a.top_k;
  if (a.chosen || a.blocks) return taken < a.max_positions ? taken : a.max_positions;
  if (a.attrs.window == 0) return a.max_positions;
  const int64_t window = (a.text_end ? 2 : 1) * a.attrs.window + tokens;
  return window < a.max_positions ? window : a.max_positions;
}

// Tensor-core kernel: F16 and Q8_0, key_dim a multiple of 32, value_dim 64, 128, 256 or 512,
// blocks of the cache a multiple of 64 tokens; sm_75 and newer.
bool attention_tiles_takes(const CudaAttentionArgs& args);
// Blocks of threads of one split.
int64_t attention_tiles_blocks(const CudaAttentionArgs& args);
Status launch_attention_tiles(const CudaAttentionArgs& args, const AttentionParts& parts,
                              cudaStream_t stream);

// Many rows, kLeastManyRows of a KV head and more, heads of 64, 72, 80, 96, 128 or 256: by Hopper's
// products, F16 (sm_90, in builds for sm_90a); by mma, F16 and Q8_0 (sm_75 and newer).
constexpr int kLeastManyRows = 64;
bool attention_wgmma_takes(const CudaAttentionArgs& args);
int64_t attention_wgmma_blocks(const CudaAttentionArgs& args);
Status launch_attention_wgmma(const CudaAttentionArgs& args, const AttentionParts& parts,
                              cudaStream_t stream);
bool attention_mma_takes(const CudaAttentionArgs& args);
int64_t attention_mma_blocks(const CudaAttentionArgs& args);
Status launch_attention_mma(const CudaAttentionArgs& args, const AttentionParts& parts,
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
int64_t attention_decode_workspace(const CudaAttentionArgs& args);
Status launch_attention_one(const CudaAttentionArgs& args, cudaStream_t stream);

// Every other case: one block a (token, head, split), in F32.
Status launch_attention_any(const CudaAttentionArgs& args, const AttentionParts& parts,
                            cudaStream_t stream);

}  // namespace ktx::kernels
