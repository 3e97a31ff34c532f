// Products of weights in panels with AMX int8 tiles, for more than a few tokens.
#include "kernels/matmul/matmul_panel_tiles.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_amx(DType dtype);

namespace {

struct AmxTiles {
  // Of a thread, as ldtilecfg reads it. Tiles 0 to 3: sums of two panels, in two slots;
  // 4 and 5: tokens, by slot; 6 and 7: codes of the panels.
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };

  template <int kGroup>
  KTX_INLINE void begin() {
    Config config;
    for (int tile = 0; tile < 4; ++tile) config.rows[tile] = 16, config.row_bytes[tile] = 64;
    for (int tile = 4; tile < 6; ++tile) config.rows[tile] = 16, config.row_bytes[tile] = kGroup;
    for (int tile = 6; tile < 8; ++tile) {
      config.rows[tile] = kGroup / 4, config.row_bytes[tile] = 64;
    }
    _tile_loadconfig(&config);
  }
  KTX_INLINE void end() { _tile_release(); }

  // GCC's tile loads do not tell the compiler that they read memory.
  template <int slot, int kGroup>
  KTX_INLINE void dots(const int8_t* q, const uint8_t* codes0, const uint8_t* codes1, int32_t* out0,
                       int32_t* out1) {
    asm volatile("" ::: "memory");
    if constexpr (slot == 0) {
      _tile_loadd(4, q, 32);
      _tile_loadd(6, codes0, 64);
      _tile_loadd(7, codes1, 64);
      _tile_zero(0);
      _tile_zero(1);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_stored(0, out0, 64);
      _tile_stored(1, out1, 64);
    } else {
      _tile_loadd(5, q, 32);
      _tile_loadd(6, codes0, 64);
      _tile_loadd(7, codes1, 64);
      _tile_zero(2);
      _tile_zero(3);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
      _tile_stored(2, out0, 64);
      _tile_stored(3, out1, 64);
    }
    asm volatile("" ::: "memory");
  }
};

}  // namespace

MatmulFn matmul_panel16_q8_amx(DType dtype) {
  return panel_tiles_of<AmxTiles>(dtype);
}

}  // namespace ktx::kernels
