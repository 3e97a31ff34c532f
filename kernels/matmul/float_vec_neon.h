// What float_forms.h needs beyond kernels/simd, as four NEON registers. Included by
// float_vec_avx2.h on ARM.
#pragma once

#include "kernels/simd/vec_neon.h"

namespace ktx::kernels {
namespace {

struct FloatNeon : Neon {
  // Sums of a register tile, four registers each.
  static constexpr int kTileRows = 2, kTileTokens = 3, kDirectTokens = 2;
  static constexpr int kDirectSums = 4;  // with one token or two
  // The same where a lane is a row, and panels that meet one token together.
  static constexpr int kLanePanels = 1, kLaneTokens = 6, kOneTokenPanels = 4;

  KTX_INLINE F load_floats(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([bytes](int i)
                    KTX_LANES { return vreinterpretq_f32_u8(vld1q_u8(bytes + 16 * i)); });
  }
  KTX_INLINE F load_bf16(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([bytes](int i) KTX_LANES {
      return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(bytes + 8 * i)), 16));
    });
  }
  // The BF16 numbers at odd (even) places of 32.
  KTX_INLINE F odd_bf16(const void* p) {
    const F pairs = load_floats(p);
    return each([&](int i) KTX_LANES {
      return vreinterpretq_f32_u32(
          vandq_u32(vreinterpretq_u32_f32(pairs.v[i]), vdupq_n_u32(0xFFFF0000)));
    });
  }
  KTX_INLINE F even_bf16(const void* p) {
    const F pairs = load_floats(p);
    return each([&](int i) KTX_LANES {
      return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(pairs.v[i]), 16));
    });
  }
  // The floats at even (odd) places of 32.
  KTX_INLINE F evens(F a, F b) {
    return {{vuzp1q_f32(a.v[0], a.v[1]), vuzp1q_f32(a.v[2], a.v[3]), vuzp1q_f32(b.v[0], b.v[1]),
             vuzp1q_f32(b.v[2], b.v[3])}};
  }
  KTX_INLINE F odds(F a, F b) {
    return {{vuzp2q_f32(a.v[0], a.v[1]), vuzp2q_f32(a.v[2], a.v[3]), vuzp2q_f32(b.v[0], b.v[1]),
             vuzp2q_f32(b.v[2], b.v[3])}};
  }
};

using FloatAvx2 = FloatNeon;

}  // namespace
}  // namespace ktx::kernels
