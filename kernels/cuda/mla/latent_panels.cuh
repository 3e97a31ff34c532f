// What the kernels of the expanded form of MLA (cuda_latent.h) hand to each other.
//
// A panel has rows of 64 halves (128 bytes) in which 16-byte piece i of row r stands at i ^ (r %
// 8): what wgmma takes from shared memory (wgmma.cuh), so that any run of rows is one bulk copy.
// Pieces are 64 positions.
//
//   latents   [piece][panel][64 positions]   latent_dim / 64 panels, then the rotary part, padded
//   queries   [token][head][head_dim, then the rotary part, padded to 64]; of every 16 columns
//             8h + 2t + e stands at 4t + 2h + e, so that a lane has its A fragments side by side
//   weights   [head][key, value][panel][head_dim rows]            panels of latent_dim
//   expanded  [head][piece] keys: [head_dim / 64 panels][64 positions]; values: [head_dim rows] of
//             one panel of 64 positions, so that the positions are what a product sums over
#pragma once

#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/mla/cuda_latent.h"

namespace ktx::kernels {

// Place of half `column` of row `row` in a panel of any number of rows, in halves.
__host__ __device__ constexpr int panel_place(int row, int column) {
  return row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8;
}
constexpr int kPanelHalves = kPiece * 64;  // of 64 rows

// Latents of positions [0, positions) of the sequence of kv's first token; zeros behind them.
Status launch_latent_panels(const CudaLatentArgs& args, uint16_t* latents, cudaStream_t stream);
// Weights of heads [first, first + count).
Status launch_weight_panels(const CudaLatentArgs& args, int first, int count, uint16_t* weights,
                            cudaStream_t stream);

struct LatentExpand {
  const uint16_t* latents = nullptr;
  const uint16_t* weights = nullptr;
  uint16_t* expanded = nullptr;
  int latent_panels = 0;  // without the rotary one
  int pieces = 0;
};
Status launch_latent_expand(const LatentExpand& args, int head_dim, int heads, cudaStream_t stream);

struct LatentAttention {
  CudaLatentArgs of;                  // queries and y begin at the first of the heads
  const uint16_t* latents = nullptr;  // for their rotary parts
  const uint16_t* expanded = nullptr;
  int latent_panels = 0, pieces = 0;
  AttentionParts parts;  // of these heads alone
};
constexpr int kLatentAttentionRows = 128;  // tokens of a block
Status launch_latent_attention(const LatentAttention& args, int heads, cudaStream_t stream);

}  // namespace ktx::kernels
