// MLA of a prompt in expanded form (Hopper): latents of the cache become keys and values of
// each head again, and attention reads these.
//
//   k[p][h] = key[h] . latent[p]         p: position, t: token of the pass, h: head
//   v[p][h] = value[h] . latent[p]
//   y[t][h] = sum over p of softmax(scale * (q[t][h] . k[p][h] + q_rope[t][h] . k_rope[p])) *
//   v[p][h]
//
// The step graph has the absorbed form (matmul_heads, attention, matmul_heads), which is right for
// decode: it reads a position once for all heads. A query and a key take 2176 operations a head
// there (DeepSeek: 576 + 512 elements) and 640 here (192 + 128); expanding a position costs 262144,
// as much as absorbing a query and its sum. So many tokens of one sequence pay for it.
//
// Keys and values of some heads at a time are in the workspace, all positions of them, so that
// a head's sums stay in registers. Numerics: latents and weights in F16, sums F32, keys and values
// rounded to F16 as in a cache of such heads; queries and weights of the softmax too.
//
// Takes: marlin weights, heads of 64 or 128 (keys without their rotary part, and values), a rotary
// part of at most 64, caches in F16 or Q8_0. Everything else stays absorbed.
#pragma once

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/marlin/cuda_weight.h"

namespace ktx::kernels {

// Queries of the pass in F16 and times `scale`, as the launches below take them. Apart from these,
// so that what they write may lie where q and q_rope were: plans put it there.
struct CudaLatentQueriesArgs {
  const float* q = nullptr;  // [tokens][heads]: of head h head_dim elements from q_head * h on
  int64_t q_stride = 0, q_head = 0;
  const float* q_rope = nullptr;  // rope_dim elements, rotated
  int64_t q_rope_stride = 0, q_rope_head = 0;
  int64_t tokens = 0;
  int32_t heads = 0, head_dim = 0, rope_dim = 0;
  float scale = 1;
  uint16_t* queries = nullptr;  // [tokens][heads][latent_query_halves(head_dim)], 16-byte aligned
};
constexpr int64_t latent_query_halves(int64_t head_dim) {
  return head_dim + 64;
}
Status launch_latent_queries(const CudaLatentQueriesArgs& args, CudaStream stream);

struct CudaLatentArgs {
  const uint16_t* queries = nullptr;  // of the first token
  float* y = nullptr;                 // [tokens][heads * head_dim]
  int64_t y_stride = 0;
  int64_t tokens = 0;                       // of one sequence, positions rising
  int64_t positions = 0;                    // the last token's position + 1
  CudaWeight key, value;                    // a matrix a head
  MatmulHeadsAttrs key_heads, value_heads;  // of the absorbed form's two products
  int32_t heads = 0, head_dim = 0, latent_dim = 0, rope_dim = 0;
  CudaKvView kv;  // sequence and position of these tokens; key: [latent | rope]
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Beyond so many positions the workspace would be too large, and the form stays absorbed.
inline constexpr int64_t kMostExpandedPositions = 65536;

// Whether this build and this GPU have it.
bool latent_expanded_runs();
// Whether these weights, heads and cache can go this way, too; tokens and positions aside.
bool latent_expanded_takes(const CudaLatentArgs& args);
// Enough for all with as many tokens and positions, or fewer.
int64_t latent_expanded_workspace(const CudaLatentArgs& args);
Status launch_latent_expanded(const CudaLatentArgs& args, CudaStream stream);

}  // namespace ktx::kernels
