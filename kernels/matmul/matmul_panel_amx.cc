// Products of weights in panels with AMX int8 tiles, for more than a few tokens.
#include "kernels/matmul/matmul_panel_tiles.h"

#include "kernels/matmul/amx_tiles.h"

namespace ktx::kernels {

MatmulFn matmul_panel16_q8_amx(DType dtype);

namespace {

struct AmxTiles {
  // Tiles 0 to 3: sums; 4 and 5: tokens; 6 and 7: codes of the two panels.
  template <int kGroup>
  KTX_INLINE void begin() {
    AmxConfig config;
    for (int tile = 0; tile < 4; ++tile) config.rows[tile] = 16, config.row_bytes[tile] = 64;
    for (int tile = 4; tile < 6; ++tile) config.rows[tile] = 16, config.row_bytes[tile] = kGroup;
    for (int tile = 6; tile < 8; ++tile) {
      config.rows[tile] = kGroup / 4, config.row_bytes[tile] = 64;
    }
    load_config(config);
  }
  KTX_INLINE void end() { _tile_release(); }

  // The tile of the next products' tokens: 16 of them, 32 bytes apart.
  template <int slot>
  KTX_INLINE void tokens(const int8_t* q) {
    tile_fence();
    if constexpr (slot == 0) _tile_loadd(4, q, 32);
    if constexpr (slot == 1) _tile_loadd(5, q, 32);
  }
  // Sums `tile` = the tokens of `slot` times the codes of panel `p`. (Tile numbers are
  // part of an instruction's name.)
  template <int tile, int slot, int p, int kGroup>
  KTX_INLINE void multiply(const uint8_t* codes) {
    tile_fence();
    if constexpr (p == 0) _tile_loadd(6, codes, 64);
    if constexpr (p == 1) _tile_loadd(7, codes, 64);
#define KTX_PRODUCT(sums, a, b)                                \
  if constexpr (tile == sums && slot == (a)-4 && p == (b)-6) { \
    _tile_zero(sums);                                          \
    _tile_dpbssd(sums, a, b);                                  \
  }
    KTX_PRODUCT(0, 4, 6)
    KTX_PRODUCT(1, 4, 7)
    KTX_PRODUCT(2, 5, 6)
    KTX_PRODUCT(3, 5, 7)
#undef KTX_PRODUCT
    static_assert(tile == 2 * slot + p);
  }
  template <int tile>
  KTX_INLINE void store(int32_t* out) {
    if constexpr (tile == 0) _tile_stored(0, out, 64);
    if constexpr (tile == 1) _tile_stored(1, out, 64);
    if constexpr (tile == 2) _tile_stored(2, out, 64);
    if constexpr (tile == 3) _tile_stored(3, out, 64);
    tile_fence();
  }
};

}  // namespace

MatmulFn matmul_panel16_q8_amx(DType dtype) {
  return panel_tiles_of<AmxTiles>(dtype);
}

}  // namespace ktx::kernels
