// What the warps of marlin_gemm_wgmma.cuh that multiply do with the stages of an item: two strips a
// warp, sums in the registers of mma.m16n8k16, which are those of wgmma.
//
//   multiply_many  wgmma: fragments of 32 or 64 columns are decoded while the products of those
//                  before run; the four warps of a warpgroup meet at each
//   multiply_few   16 tokens: mma, as the decoding is all that takes time, and no warp waits for
//                  another
#pragma once

#include "kernels/cuda/common/matrix_loads.cuh"
#include "kernels/cuda/gemm/wide_work.cuh"

namespace ktx::kernels {

// Where a warp is in both rings.
template <DType kType, int kTokens>
struct WideReader {
  using Memory = WideMemory<kType, kTokens>;
  WideBlock<kType, kTokens>& own;
  const uint8_t *xs, *ws;
  bool gathered;
  int warp, lane;
  WideRing<Memory::kWeightStages> weights = {};
  WideRing<Memory::kXStages> x = {};

  __device__ __forceinline__ void wait_for_weights() const {
    wait_phase(&own.weights_there[weights.stage], weights.phase);
  }
  __device__ __forceinline__ const uint8_t* strip(int m) const {
    return ws + weights.stage * Memory::kWeightBytes +
           (warp * kWarpStrips + m) * Memory::kTileBytes;
  }
  __device__ __forceinline__ void free_weights() {
    show_to_wgmma();  // the next copy to this place comes behind these reads
    __syncwarp();
    if (lane == 0) arrive(&own.weights_free[weights.stage]);
    weights.next();
  }
};

template <DType kType, int kTokens>
__device__ __forceinline__ void multiply_many(WideReader<kType, kTokens>& reader,
                                              const MarlinTiles<MarlinTile<kType>>& tiles,
                                              int begin, int end,
                                              float (&sum)[kWarpStrips][kTokens / 8][4]) {
  using Memory = WideMemory<kType, kTokens>;
  // Groups of 32 columns whose products are issued together.
  constexpr int kGroup = kTokens > 64 ? 1 : 2, kGroups = 8 / kGroup;
  // Fragments of the columns whose products run, and of the next ones.
  uint32_t a[2][kWarpStrips][kGroup][8];
  // Only what a tile's next two fragments need is loaded, behind the other loads.
  MarlinTile<kType> w[kWarpStrips];
  const auto decode = [&](int tile, int group) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int c = group * kGroup + i;
#pragma unroll
      for (int m = 0; m < kWarpStrips; ++m) {
        if (c % 2 == 0) {
          w[m].template load<false>(reader.strip(m), tiles.spans(tile), reader.lane);
        }
        w[m].fragment(c, a[group % 2][m][i]);
      }
    }
  };
  reader.wait_for_weights();
  decode(begin, 0);
  for (int tile = begin; tile < end; ++tile) {
    const uint8_t* x = nullptr;
    int read = 0;  // the stage whose products may still run
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const bool new_stage = group * kGroup % 4 == 0;
      if (new_stage) {
        wait_phase(&reader.own.x_there[reader.x.stage], reader.x.phase);
        if (reader.gathered) show_to_wgmma();  // what others copied without the bulk engine
        x = reader.xs + reader.x.stage * Memory::kXBytes;
        read = reader.x.before();
        reader.x.next();
      }
      fence_wgmma();
#pragma unroll
      for (int i = 0; i < 2 * kGroup; ++i) {
        const int k = group * kGroup % 4 * 2 + i;  // of the stage's eight times 16 columns
        const uint64_t b = wgmma_rows(x + k / 4 * kTokens * 128, k % 4);
#pragma unroll
        for (int m = 0; m < kWarpStrips; ++m) {
          wgmma_f16(sum[m], a[group % 2][m][i / 2] + i % 2 * 4, b,
                    tile > begin || group > 0 || i > 0);
        }
      }
      commit_wgmma();
      wait_wgmma<1>();  // the other fragments are free
      if (new_stage && (tile > begin || group > 0) && reader.lane == 0) {
        arrive(&reader.own.x_free[read]);
      }
      if (group + 1 < kGroups) {
        decode(tile, group + 1);
      } else {
        reader.free_weights();
        if (tile + 1 == end) break;
        reader.wait_for_weights();
        decode(tile + 1, 0);
      }
    }
  }
  wait_wgmma<0>();
  if (reader.lane == 0) arrive(&reader.own.x_free[reader.x.before()]);
}

template <DType kType>
__device__ __forceinline__ void multiply_few(WideReader<kType, 16>& reader,
                                             const MarlinTiles<MarlinTile<kType>>& tiles, int begin,
                                             int end, float (&sum)[kWarpStrips][2][4]) {
  using Memory = WideMemory<kType, 16>;
  const int lane = reader.lane;
  // This lane's row of an 8x8 matrix of x, and its piece of 16 bytes, but for the columns' number.
  const int row = lane / 16 * 8 + lane % 8, piece = (lane / 8 % 2 ^ lane % 8) * 16;
  MarlinTile<kType> w[kWarpStrips];
#pragma unroll
  for (int m = 0; m < kWarpStrips; ++m) {
#pragma unroll
    for (int n = 0; n < 2; ++n) sum[m][n][0] = sum[m][n][1] = sum[m][n][2] = sum[m][n][3] = 0;
  }
  for (int tile = begin; tile < end; ++tile) {
    reader.wait_for_weights();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      wait_phase(&reader.own.x_there[reader.x.stage], reader.x.phase);
      const uint8_t* x = reader.xs + reader.x.stage * Memory::kXBytes + row * 128;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int c = half * 4 + i;
        uint32_t b[2][4];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int k = 2 * i + s;  // of the stage's eight times 16 columns
          load_matrices(b[s], x + k / 4 * 16 * 128 + (piece ^ k % 4 * 32));
        }
#pragma unroll
        for (int m = 0; m < kWarpStrips; ++m) {
          if (c % 2 == 0) w[m].template load<false>(reader.strip(m), tiles.spans(tile), lane);
          uint32_t a[2][4];
          w[m].fragment(c, *reinterpret_cast<uint32_t(*)[8]>(a));
#pragma unroll
          for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int n = 0; n < 2; ++n) mma_f16(sum[m][n], a[s], b[s][2 * n], b[s][2 * n + 1]);
          }
        }
      }
      show_to_wgmma();  // the next copy to this place comes behind these reads
      __syncwarp();
      if (lane == 0) arrive(&reader.own.x_free[reader.x.stage]);
      reader.x.next();
    }
    reader.free_weights();
  }
}

}  // namespace ktx::kernels
