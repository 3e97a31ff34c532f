// A warp's tiles on their way through shared memory: the warp takes every `step`-th tile from
// `first` on (before `end`), of two strips (neighbours of one matrix, or the same of gate and up)
// or of one, and keeps the next ones coming.
//
//   ring.start(lane);
//   for (int item = 0; item < ring.count; ++item) {
//     ring.wait(item, lane);           // tile `item` is there, one more is asked for
//     ... ring.stage(m), m < kSources ...
//   }
//
// Two strips share what is done for the activations (+35 % on H200 at one token).
//
// No other warp is waited for. A stage is overwritten after the wait that follows its use.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"
#include "kernels/cuda/matmul/marlin_products.cuh"

namespace ktx::kernels {

constexpr int kRingWarps = 8;  // of a block; fewer where shared memory is small
constexpr int kRingThreads = 32 * kRingWarps;

// kBudget: bytes of shared memory for the rings of a block; two stages there are always.
template <DType kType, int kSources, int kBudget = 110 * 1024>
struct MarlinRing {
  using Tile = MarlinTile<kType>;
  static constexpr int kTileBytes = 4 * Tile::kSpanBytes;
  static constexpr int kStageBytes = kSources * kTileBytes;
  static constexpr int kFit = kBudget / kRingWarps / kStageBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
  static constexpr int kBytes = kStages * kStageBytes;  // of a warp

  MarlinTiles<Tile> tiles;
  int first, step, count;
  const uint8_t* next[kSources];  // this lane's bytes of the tile to be asked for next
  uint32_t tile_step;             // bytes from one of the warp's tiles to its next
  int asked = 0;                  // items
  uint8_t* memory;                // of the warp
  uint8_t* fill;                  // stage to be filled next
  const uint8_t* current;         // stage in use

  // strips: of the sources; a strip past the end of the matrix repeats the last.
  __device__ __forceinline__ MarlinRing(const MarlinProduct& p, int matrix, bool paired, int strip,
                                        int strip_end, int first, int step, uint4* shared, int warp,
                                        int lane, int end = 1 << 30)
      : tiles(p.cols), first(first), step(step) {
    end = min(end, tiles.count);
    count = strip < strip_end && first < end ? (end - 1 - first) / step + 1 : 0;
#pragma unroll
    for (int m = 0; m < kSources; ++m) {
      const int own = paired ? strip : min(strip + m, strip_end - 1);
      const int source = paired ? m : 0;
      next[m] = p.w[source] + matrix * p.matrix_bytes[source] + own * p.strip_bytes +
                tiles.offset(first) + lane * 16;
    }
    tile_step = static_cast<uint32_t>(step) * kTileBytes;
    memory = reinterpret_cast<uint8_t*>(shared) + warp * kBytes;
    fill = memory;
    current = memory + (kStages - 1) * kStageBytes;
  }
  __device__ __forceinline__ int tile(int item) const {
    return first + item * step;
  }
  __device__ __forceinline__ int spans(int item) const {
    return tiles.spans(tile(item));
  }
  __device__ __forceinline__ const uint8_t* stage(int m) const {
    return current + m * kTileBytes;
  }
  __device__ __forceinline__ void fetch(int lane) {
    if (asked < count) {
      const int bytes = Tile::kWide ? kTileBytes : spans(asked) * Tile::kSpanBytes;
#pragma unroll
      for (int m = 0; m < kSources; ++m) {
#pragma unroll
        for (int i = 0; i < (kTileBytes + 511) / 512; ++i) {
          const bool whole = Tile::kWide && (i + 1) * 512 <= kTileBytes;
          if (whole || i * 512 + lane * 16 < bytes) {
            copy_async16(fill + m * kTileBytes + i * 512 + lane * 16, next[m] + i * 512, true);
          }
        }
        next[m] += tile_step;
      }
      fill = fill == memory + (kStages - 1) * kStageBytes ? memory : fill + kStageBytes;
    }
    ++asked;
    commit_async();
  }
  __device__ __forceinline__ void start(int lane) {
    for (int i = 0; i < kStages - 1; ++i) fetch(lane);
  }
  // Makes the next item the current one.
  __device__ __forceinline__ void wait(int lane) {
    wait_async<kStages - 2>();
    __syncwarp();  // there for all lanes, and all are done with the tile before
    current = current == memory + (kStages - 1) * kStageBytes ? memory : current + kStageBytes;
    fetch(lane);
  }
};

// Two strips a warp where that leaves a tile of both for every warp of the GPU.
inline bool two_strips(int strips, int work, int cols) {
  return int64_t{strips / 2} * work * ceil_div(cols, 256) >= int64_t{sm_count()} * 12;
}

}  // namespace ktx::kernels
