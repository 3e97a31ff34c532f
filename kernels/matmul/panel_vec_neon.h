// 16 rows of a panel as four NEON registers, as panel_vec_avx512.h. Included by
// panel_vec_avx2.h on ARM.
#pragma once

#include "kernels/simd/vec_neon.h"

namespace ktx::kernels {
namespace {

struct PanelNeon : Neon {
  using F = Neon::F;
  using I = Neon::I;
  static constexpr int kTileTokens = 2, kTilePanels = 1;  // integer and float sums: 16 registers

  KTX_INLINE void store64(void* p, I x) {
    KTX_UNROLL
    for (int i = 0; i < 4; ++i) vst1q_s8(static_cast<int8_t*>(p) + 16 * i, bytes(x.v[i]));
  }
  KTX_INLINE I set1_i(int32_t n) {
    return each_i([n](int) KTX_LANES { return vdupq_n_s32(n); });
  }
  KTX_INLINE I load_same(const void* p) {
    const int32x4_t all = four_bytes(p);
    return {{all, all, all, all}};
  }
  template <int n>
  KTX_INLINE I srl16(I x) {
    return each_i([&](int i) KTX_LANES {
      return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(x.v[i]), n));
    });
  }
  template <int n>
  KTX_INLINE I sll16(I x) {
    return each_i([&](int i) KTX_LANES {
      return vreinterpretq_s32_u16(vshlq_n_u16(vreinterpretq_u16_s32(x.v[i]), n));
    });
  }
  template <int n>
  KTX_INLINE I srl32(I x) {
    return each_i([&](int i) KTX_LANES {
      return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x.v[i]), n));
    });
  }
  template <int n>
  KTX_INLINE I sll32(I x) {
    return each_i([&](int i) KTX_LANES { return vshlq_n_s32(x.v[i], n); });
  }
  template <int n>
  KTX_INLINE I signed_byte(I x) {
    return each_i([&](int i)
                      KTX_LANES { return vshrq_n_s32(vshlq_n_s32(x.v[i], 24 - 8 * n), 24); });
  }
  KTX_INLINE I and8(I x, int mask) {
    return each_i([&](int i) KTX_LANES {
      return words(vandq_s8(bytes(x.v[i]), vdupq_n_s8(static_cast<int8_t>(mask))));
    });
  }
  KTX_INLINE I and32(I x, int32_t mask) {
    return each_i([&](int i) KTX_LANES { return vandq_s32(x.v[i], vdupq_n_s32(mask)); });
  }
  KTX_INLINE I or_i(I a, I b) {
    return each_i([&](int i) KTX_LANES { return vorrq_s32(a.v[i], b.v[i]); });
  }
  KTX_INLINE I pick(I a, I b, int mask) {
    const uint8x16_t first = vdupq_n_u8(static_cast<uint8_t>(mask));
    return each_i([&](int i)
                      KTX_LANES { return words(vbslq_s8(first, bytes(a.v[i]), bytes(b.v[i]))); });
  }
  KTX_INLINE I sub8(I x, int n) { return add8(x, -n); }
  KTX_INLINE I triple8(I x) {
    return each_i([&](int i) KTX_LANES {
      const int8x16_t all = bytes(x.v[i]);
      return words(vaddq_s8(all, vaddq_s8(all, all)));
    });
  }
  KTX_INLINE I thirds(I x) {
    return each_i([&](int i) KTX_LANES {
      const uint8x16_t all = vreinterpretq_u8_s32(x.v[i]);
      const uint8x16_t first = vcgeq_u8(all, vdupq_n_u8(86));  // -1 where so
      const uint8x16_t second = vcgeq_u8(all, vdupq_n_u8(171));
      return words(vsubq_u8(vdupq_n_u8(0), vaddq_u8(first, second)));
    });
  }
  KTX_INLINE I add32(I x, int32_t n) {
    return each_i([&](int i) KTX_LANES { return vaddq_s32(x.v[i], vdupq_n_s32(n)); });
  }
  KTX_INLINE I max32(I a, I b) {
    return each_i([&](int i) KTX_LANES { return vmaxq_s32(a.v[i], b.v[i]); });
  }
  KTX_INLINE I min32(I a, int32_t n) {
    return each_i([&](int i) KTX_LANES { return vminq_s32(a.v[i], vdupq_n_s32(n)); });
  }
  KTX_INLINE F as_float(I x) {
    return each([&](int i) KTX_LANES { return vreinterpretq_f32_s32(x.v[i]); });
  }
  KTX_INLINE I as_int(F x) {
    return each_i([&](int i) KTX_LANES { return vreinterpretq_s32_f32(x.v[i]); });
  }
  // (a & mask) | bits
  KTX_INLINE I or_masked(I a, int32_t mask, int32_t bits) {
    return or_i(and32(a, mask), set1_i(bits));
  }
  KTX_INLINE I lookup(const uint8_t* table, I index) {
    const uint8x16_t row = vld1q_u8(table);
    return each_i(
        [&](int i) KTX_LANES { return words(vqtbl1q_u8(row, vreinterpretq_u8_s32(index.v[i]))); });
  }
  template <int w>
  KTX_INLINE I spread_bits(I x) {
    const uint8x16_t word = vreinterpretq_u8_u32(
        vcombine_u32(vcreate_u32(0x0404040400000000), vcreate_u32(0x0C0C0C0C08080808)));
    const uint8x16_t place = vaddq_u8(word, vdupq_n_u8(w / 2));
    const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(w % 2 == 0 ? 0x08040201 : 0x80402010));
    return each_i([&](int i) KTX_LANES {
      const uint8x16_t spread = vqtbl1q_u8(vreinterpretq_u8_s32(x.v[i]), place);
      return words(vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(16)));
    });
  }
  KTX_INLINE F low_halves(I x) {
    return each([&](int i) KTX_LANES { return halves(vmovn_u32(vreinterpretq_u32_s32(x.v[i]))); });
  }
  KTX_INLINE F high_halves(I x) { return low_halves(srl32<16>(x)); }
  KTX_INLINE I load_bytes16(const uint8_t* p) {
    const uint8x16_t all = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(all)), high = vmovl_high_u8(all);
    return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
             vreinterpretq_s32_u32(vmovl_high_u16(low)),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
             vreinterpretq_s32_u32(vmovl_high_u16(high))}};
  }
  // Codes above 127 are no signed bytes: those go as 16-bit numbers.
  template <int kLargest>
  KTX_INLINE I dot(I sum, I codes, const int8_t* x) {
    const int32x4_t four = four_bytes(x);
    if constexpr (kLargest <= 127) {
      return dot64(sum, codes, {{four, four, four, four}});
    } else {
      const int16x8_t wide = vmovl_s8(vget_low_s8(bytes(four)));
      return each_i([&](int i) KTX_LANES {
        const uint8x16_t all = vreinterpretq_u8_s32(codes.v[i]);
        const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(all)));
        const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(all));
        return vaddq_s32(sum.v[i], vpaddq_s32(pairs(low, wide), pairs(high, wide)));
      });
    }
  }
  KTX_INLINE I dot_pair(I sum, I numbers, int32_t pair) {
    const int16x8_t two = vreinterpretq_s16_s32(vdupq_n_s32(pair));
    return each_i([&](int i) KTX_LANES {
      return vaddq_s32(sum.v[i], pairs(vreinterpretq_s16_s32(numbers.v[i]), two));
    });
  }
  // Asks for the line at p, which need not be memory of ours.
  KTX_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
  KTX_INLINE void prefetch_second(const void* p) { __builtin_prefetch(p, 0, 2); }

 private:
  // Sums of the products of neighbours.
  KTX_INLINE int32x4_t pairs(int16x8_t a, int16x8_t b) {
    return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
  }
};

using PanelAvx2 = PanelNeon;

}  // namespace
}  // namespace ktx::kernels
