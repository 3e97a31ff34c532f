// Products of weights in panels with BF16 activations, with AMX tiles.
#include "kernels/matmul/matmul_panel_tile_bf16_tiles.h"

#include <immintrin.h>

#include <cstdint>

#include "kernels/matmul/matmul_selectors.h"

namespace ktx::kernels {

namespace {

// The configuration of a thread's tiles, as ldtilecfg reads it.
struct alignas(64) AmxConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// GCC's tile loads and stores are not declared as accesses to memory.
KTX_INLINE void tile_fence() {
  asm volatile("" ::: "memory");
}

KTX_INLINE void load_config(const AmxConfig& config) {
  tile_fence();
  _tile_loadconfig(&config);
}

struct Bf16AmxTiles {
  // Tiles 0 to 3: sums; 4 to 6: activations; 7: weights.
  // With many tokens 4 and 5: activations; 6 and 7: weights.
  KTX_INLINE void begin(int64_t tokens) {
    AmxConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = static_cast<uint8_t>(tile < 7 ? tokens : 16);
    }
    load_config(config);
  }
  KTX_INLINE void end() { _tile_release(); }
  KTX_INLINE void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }

  KTX_INLINE void weights(const uint8_t* w) {
    tile_fence();
    _tile_loadd(7, w, 64);
  }
  // Sums `tile` += activations at x, rows `stride` bytes apart, times the weights. (Tile numbers
  // are part of an instruction's name.)
  template <int tile>
  KTX_INLINE void multiply(const uint8_t* x, int64_t stride) {
    if constexpr (tile == 0 || tile == 3) _tile_loadd(4, x, stride);
    if constexpr (tile == 1) _tile_loadd(5, x, stride);
    if constexpr (tile == 2) _tile_loadd(6, x, stride);
    if constexpr (tile == 0) _tile_dpbf16ps(0, 4, 7);
    if constexpr (tile == 1) _tile_dpbf16ps(1, 5, 7);
    if constexpr (tile == 2) _tile_dpbf16ps(2, 6, 7);
    if constexpr (tile == 3) _tile_dpbf16ps(3, 4, 7);
  }
  template <int slot>
  KTX_INLINE void load_tokens(const uint8_t* x, int64_t stride) {
    if constexpr (slot == 0) _tile_loadd(4, x, stride);
    if constexpr (slot == 1) _tile_loadd(5, x, stride);
  }
  template <int slot>
  KTX_INLINE void load_weights(const uint8_t* w) {
    tile_fence();
    if constexpr (slot == 0) _tile_loadd(6, w, 64);
    if constexpr (slot == 1) _tile_loadd(7, w, 64);
  }
  // Sums 2 * w + x += tokens x times weights w.
  template <int x, int w>
  KTX_INLINE void product() {
    if constexpr (x == 0 && w == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (x == 1 && w == 0) _tile_dpbf16ps(1, 5, 6);
    if constexpr (x == 0 && w == 1) _tile_dpbf16ps(2, 4, 7);
    if constexpr (x == 1 && w == 1) _tile_dpbf16ps(3, 5, 7);
  }
  template <int tile>
  KTX_INLINE void load_sums(const float* from) {
    tile_fence();
    if constexpr (tile == 0) _tile_loadd(0, from, 64);
    if constexpr (tile == 1) _tile_loadd(1, from, 64);
    if constexpr (tile == 2) _tile_loadd(2, from, 64);
    if constexpr (tile == 3) _tile_loadd(3, from, 64);
  }
  template <int tile>
  KTX_INLINE void store(float* out) {
    if constexpr (tile == 0) _tile_stored(0, out, 64);
    if constexpr (tile == 1) _tile_stored(1, out, 64);
    if constexpr (tile == 2) _tile_stored(2, out, 64);
    if constexpr (tile == 3) _tile_stored(3, out, 64);
    tile_fence();
  }
};

}  // namespace

MatmulFn matmul_panel16_tile_bf16_skinny_amx(DType dtype) {
  return bf16_tiles_skinny_of<Bf16AmxTiles>(dtype);
}
MatmulFn matmul_panel16_tile_bf16_gemm_amx(DType dtype) {
  return bf16_tiles_gemm_of<Bf16AmxTiles>(dtype);
}

}  // namespace ktx::kernels
