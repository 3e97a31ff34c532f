// A warp's tiles on their way through shared memory by bulk copies (sm_90): the warp takes every
// `step`-th tile from `first` on (before `end`), of two strips (neighbours of one matrix, or the
// same of gate and up) or of one, and keeps the next ones coming.
//
//   ring.start(lane);
//   for (int item = 0; item < ring.count; ++item) {
//     ring.wait();                     // tile `item` is there, for all lanes
//     ... ring.stage(m), m < kSources ...
//     ring.done(lane);                 // its stage takes a further tile
//   }
//
// No other warp is waited for.
#pragma once

#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"

namespace ktx::kernels {

// kBudget: bytes of shared memory for the rings of a block of kWarps; two stages there are always.
template <DType kType, int kSources, int kWarps, int kBudget>
struct BatchRing {
  using Tile = MarlinTile<kType>;
  static constexpr int kTileBytes = 4 * Tile::kSpanBytes;
  static constexpr int kStageBytes = kSources * kTileBytes;
  static constexpr int kFit = kBudget / kWarps / kStageBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
  static constexpr int kBytes = kStages * kStageBytes;  // of a warp

#if __CUDA_ARCH__ >= 900
  MarlinTiles<Tile> tiles;
  int first, step, count;
  const uint8_t* next[kSources];  // the tile to be asked for next
  uint32_t tile_step;             // bytes from one of the warp's tiles to its next
  int asked = 0;                  // items
  int fill = 0, current = 0;      // stages to be filled and read next
  uint32_t phase = 0;
  uint8_t* memory;  // of the warp
  uint64_t* there;  // [kStages] barriers of the warp

  // w: of the sources' matrices (the second: of up, when `paired`). A strip past the end of the
  // matrix repeats the last.
  __device__ __forceinline__ BatchRing(const uint8_t* const (&w)[2], int64_t strip_bytes, int cols,
                                       bool paired, int strip, int strip_end, int first, int step,
                                       int end, uint8_t* memory, uint64_t* there, int lane)
      : tiles(cols),
        first(first),
        step(step),
        tile_step(static_cast<uint32_t>(step) * kTileBytes),
        memory(memory),
        there(there) {
    count = strip < strip_end && first < end ? (end - 1 - first) / step + 1 : 0;
#pragma unroll
    for (int m = 0; m < kSources; ++m) {
      const int own = paired ? strip : min(strip + m, strip_end - 1);
      next[m] = w[paired ? m : 0] + own * strip_bytes + tiles.offset(first);
    }
    if (lane == 0) {
      for (int i = 0; i < kStages; ++i) barrier_init(there + i, kSources);
      barrier_init_done();
    }
    __syncwarp();
  }
  __device__ __forceinline__ int tile(int item) const {
    return first + item * step;
  }
  __device__ __forceinline__ int spans(int item) const {
    return tiles.spans(tile(item));
  }
  __device__ __forceinline__ const uint8_t* stage(int m) const {
    return memory + current * kStageBytes + m * kTileBytes;
  }
  __device__ __forceinline__ void fetch(int lane) {
    if (lane == 0 && asked < count) {
      const int bytes = Tile::kWide ? kTileBytes : spans(asked) * Tile::kSpanBytes;
#pragma unroll
      for (int m = 0; m < kSources; ++m) {
        bulk_copy(memory + fill * kStageBytes + m * kTileBytes, next[m], bytes, there + fill);
        next[m] += tile_step;
      }
      ++asked;
      if (++fill == kStages) fill = 0;
    }
  }
  __device__ __forceinline__ void start(int lane) {
#pragma unroll 1
    for (int i = 0; i < kStages; ++i) fetch(lane);
  }
  __device__ __forceinline__ void wait() {
    barrier_wait(there + current, phase);
  }
  __device__ __forceinline__ void done(int lane) {
    end_reads_before_bulk_copies();
    __syncwarp();  // all lanes have read it
    fetch(lane);
    if (++current == kStages) current = 0, phase ^= 1;
  }
#endif
};

}  // namespace ktx::kernels
