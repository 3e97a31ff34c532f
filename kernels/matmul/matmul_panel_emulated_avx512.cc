// The loops of the AMX kernels over tiles in plain code, for tests on machines without
// AMX. No plan gets it.
#include "kernels/matmul/matmul_panel_emulated.h"

#include "kernels/matmul/matmul_panel_tiles.h"

namespace ktx::kernels {
namespace {

struct EmulatedTiles {
  using Sums = int32_t[16][kPanelRows];
  static inline thread_local const int8_t* tokens_[2];
  static inline thread_local Sums sums_[kSumTiles];

  template <int kGroup>
  KTX_INLINE void begin() {}
  KTX_INLINE void end() {}

  template <int slot>
  static void tokens(const int8_t* q) {
    tokens_[slot] = q;
  }
  template <int tile, int slot, int p, int kGroup>
  static void multiply(const uint8_t* codes) {
    for (int t = 0; t < 16; ++t) {
      for (int row = 0; row < kPanelRows; ++row) {
        int32_t sum = 0;
        for (int k = 0; k < kGroup; ++k) {
          sum += tokens_[slot][32 * t + k] *
                 static_cast<int8_t>(codes[64 * (k / 4) + 4 * row + k % 4]);
        }
        sums_[tile][t][row] = sum;
      }
    }
  }
  template <int tile>
  static void store(int32_t* out) {
    __builtin_memcpy(out, sums_[tile], sizeof(Sums));
  }
};

}  // namespace

MatmulFn matmul_panel16_q8_emulated(DType dtype) {
  return panel_tiles_of<EmulatedTiles>(dtype);
}

}  // namespace ktx::kernels
