// The loop of the AMX kernel over tiles in plain code, for tests on machines without AMX. No plan
// gets it.
#include "kernels/matmul/matmul_panel_emulated.h"

#include "kernels/matmul/matmul_panel_tile_bf16_tiles.h"

namespace ktx::kernels {
namespace {

// TDPBF16PS as documented; the loop around it flushes subnormals.
struct EmulatedBf16Tiles {
  static inline thread_local int64_t tokens_;
  static inline thread_local const uint8_t* weights_;
  static inline thread_local const uint8_t *x_[2], *w_[2];
  static inline thread_local int64_t stride_;
  static inline thread_local float sums_[4][16][kPanelRows];

  static void begin(int64_t tokens) { tokens_ = tokens; }
  KTX_INLINE void end() {}
  static void clear() { __builtin_memset(sums_, 0, sizeof sums_); }
  static void weights(const uint8_t* w) { weights_ = w; }
  template <int slot>
  static void load_tokens(const uint8_t* x, int64_t stride) {
    x_[slot] = x;
    stride_ = stride;
  }
  template <int slot>
  static void load_weights(const uint8_t* w) {
    w_[slot] = w;
  }
  template <int x, int w>
  static void product() {
    weights_ = w_[w];
    multiply<2 * w + x>(x_[x], stride_);
  }
  template <int tile>
  static void load_sums(const float* from) {
    __builtin_memcpy(sums_[tile], from, sizeof sums_[tile]);
  }
  template <int tile>
  __attribute__((noinline)) static void multiply(const uint8_t* x, int64_t stride) {
    for (int64_t t = 0; t < tokens_; ++t) {
      for (int row = 0; row < kPanelRows; ++row) {
        float part[2] = {0, 0};
        for (int k = 0; k < 32; ++k) {
          const float w = number(weights_ + 64 * (k / 2) + 4 * row + 2 * (k % 2));
          part[k % 2] = __builtin_fmaf(number(x + stride * t + 2 * k), w, part[k % 2]);
        }
        sums_[tile][t][row] += part[0] + part[1];
      }
    }
  }
  template <int tile>
  static void store(float* out) {
    __builtin_memcpy(out, sums_[tile], static_cast<size_t>(tokens_) * 64);
  }

 private:
  static float number(const uint8_t* bf16) {
    uint16_t bits;
    __builtin_memcpy(&bits, bf16, sizeof bits);
    return from_bf16(bits);
  }
};

}  // namespace

MatmulFn matmul_panel16_tile_bf16_skinny_emulated(DType dtype) {
  return bf16_tiles_skinny_of<EmulatedBf16Tiles>(dtype);
}
MatmulFn matmul_panel16_tile_bf16_gemm_emulated(DType dtype) {
  return bf16_tiles_gemm_of<EmulatedBf16Tiles>(dtype);
}

}  // namespace ktx::kernels
