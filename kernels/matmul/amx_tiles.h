// What the kernels with AMX tiles share of the instructions. Included by matmul_panel_*_amx.cc only, after
// the header that defines KTX_INLINE.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ktx::kernels {
namespace {

// Of a thread, as ldtilecfg reads it.
struct alignas(64) AmxConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// GCC's tile loads and stores do not tell the compiler that they touch memory.
KTX_INLINE void tile_fence() {
  asm volatile("" ::: "memory");
}

KTX_INLINE void load_config(const AmxConfig& config) {
  tile_fence();
  _tile_loadconfig(&config);
}

}  // namespace
}  // namespace ktx::kernels
