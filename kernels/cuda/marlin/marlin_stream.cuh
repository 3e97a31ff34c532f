// A warp's tiles on their way to it through shared memory: a run of tiles that may go over
// several strips, one after the other.
//
//   const auto strips = [&](int strip) { ... };  // where each begins
//   MarlinStream<kType, decltype(strips)> stream(..., barriers, lane);
//   stream.start(lane);                          // asks for the first `stages` tiles
//   for (int i = 0; i < count; ++i) {
//     const uint8_t* tile = stream.wait();       // the next one, there for all lanes
//     ...
//     stream.done(lane);                         // its stage takes a further tile
//   }
//
// No other warp is waited for. On sm_90 a tile is one bulk copy, asked for by one lane; before,
// each lane copies its 16 bytes.
#pragma once

#include "kernels/cuda/common/bulk_copy.cuh"
#include "kernels/cuda/marlin/marlin_tile.cuh"

namespace ktx::kernels {

constexpr int kMostStages = 8;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 900
// All but the `pending` youngest groups of copies are over.
__device__ __forceinline__ void wait_async_but(int pending) {
  switch (pending) {
    case 0:
      return wait_async<0>();
    case 1:
      return wait_async<1>();
    case 2:
      return wait_async<2>();
    case 3:
      return wait_async<3>();
    case 4:
      return wait_async<4>();
    case 5:
      return wait_async<5>();
    case 6:
      return wait_async<6>();
    default:
      return wait_async<7>();
  }
}
#endif

template <DType kType>
constexpr int kMarlinTileBytes = 4 * MarlinTile<kType>::kSpanBytes;

// Strips: const uint8_t* of the number of a strip.
template <DType kType, class Strips>
struct MarlinStream {
  using Tile = MarlinTile<kType>;
  static constexpr int kTileBytes = kMarlinTileBytes<kType>;

  MarlinTiles<Tile> tiles;
  Strips strips;
  int strip, tile, left;  // to be asked for next
  const uint8_t* from;    // of that tile
  uint8_t* memory;
  int stages, fill = 0, current = 0;  // stages to be filled and read next
  uint32_t phase = 0;
  uint64_t* barriers;  // [stages], sm_90

  // `count` tiles from tile `tile` of strip `strip` on.
  __device__ __forceinline__ MarlinStream(int cols, Strips strips, int strip, int tile, int count,
                                          uint8_t* memory, int stages, uint64_t* barriers, int lane)
      : tiles(cols),
        strips(strips),
        strip(strip),
        tile(tile),
        left(count),
        from(nullptr),
        memory(memory),
        stages(stages),
        barriers(barriers) {
    if (count > 0) from = strips(strip) + tiles.offset(tile);
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < stages; ++i) barrier_init(barriers + i, 1);
      barrier_init_done();
    }
    __syncwarp();
#endif
  }
  __device__ __forceinline__ void ask(int lane) {
#if __CUDA_ARCH__ >= 900
    if (left > 0) {
      const int bytes = Tile::kWide ? kTileBytes : tiles.spans(tile) * Tile::kSpanBytes;
      if (lane == 0) bulk_copy_once(memory + fill * kTileBytes, from, bytes, barriers + fill);
      advance();
    }
#else
    if (left > 0) {
      const int bytes = Tile::kWide ? kTileBytes : tiles.spans(tile) * Tile::kSpanBytes;
#pragma unroll
      for (int i = 0; i < (kTileBytes + 511) / 512; ++i) {
        const int at = i * 512 + lane * 16;
        const bool whole = Tile::kWide && (i + 1) * 512 <= kTileBytes;
        if (whole || at < bytes) copy_async16(memory + fill * kTileBytes + at, from + at, true);
      }
      advance();
    }
    commit_async();
#endif
  }
  __device__ __forceinline__ void start(int lane) {
#pragma unroll 1
    for (int i = 0; i < stages; ++i) ask(lane);
  }
  __device__ __forceinline__ const uint8_t* wait() {
#if __CUDA_ARCH__ >= 900
    barrier_wait(barriers + current, phase);
#else
    wait_async_but(stages - 1);
    __syncwarp();
#endif
    return memory + current * kTileBytes;
  }
  __device__ __forceinline__ void done(int lane) {
#if __CUDA_ARCH__ >= 900
    if (left > 0) end_reads_before_bulk_copies();
#endif
    __syncwarp();  // all lanes have read it
    if (++current == stages) current = 0, phase ^= 1;
    ask(lane);
  }

 private:
  __device__ __forceinline__ void advance() {
    if (++fill == stages) fill = 0;
    --left;
    ++tile;
    from += kTileBytes;
    if (tile == tiles.count && left > 0) {
      tile = 0;
      from = strips(++strip);
    }
  }
};

}  // namespace ktx::kernels
