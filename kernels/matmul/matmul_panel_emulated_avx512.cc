// The loops of the AMX kernels over tiles in plain code, for tests on machines without
// AMX. No plan gets it.
#include "kernels/matmul/matmul_panel_emulated.h"

#include "kernels/matmul/matmul_panel_tiles.h"

namespace ktx::kernels {
namespace {

struct EmulatedTiles {
  template <int kGroup>
  KTX_INLINE void begin() {}
  KTX_INLINE void end() {}

  template <int slot, int kGroup>
  static void dots(const int8_t* q, const uint8_t* codes0, const uint8_t* codes1, int32_t* out0,
                   int32_t* out1) {
    product<kGroup>(q, codes0, out0);
    product<kGroup>(q, codes1, out1);
  }

 private:
  template <int kGroup>
  static void product(const int8_t* q, const uint8_t* codes, int32_t* out) {
    for (int t = 0; t < 16; ++t) {
      for (int row = 0; row < kPanelRows; ++row) {
        int32_t sum = 0;
        for (int k = 0; k < kGroup; ++k) {
          sum += q[32 * t + k] * static_cast<int8_t>(codes[64 * (k / 4) + 4 * row + k % 4]);
        }
        out[t * kPanelRows + row] = sum;
      }
    }
  }
};

}  // namespace

MatmulFn matmul_panel16_q8_emulated(DType dtype) {
  return panel_tiles_of<EmulatedTiles>(dtype);
}

}  // namespace ktx::kernels
