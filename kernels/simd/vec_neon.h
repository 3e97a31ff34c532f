// 16 float lanes and 64 bytes as four NEON registers, with vec_avx2.h's bits. In *_dotprod.cc files
// products of bytes are ARM's dot products; sums of codes are exact, so they change no bit.
// Included by vec_avx2.h on ARM.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/simd/avx2.h"
#include "kernels/simd/inline.h"

#define KTX_LANES __attribute__((always_inline))

namespace ktx::kernels {
namespace {  // one copy per file: see README.md

struct Neon {
  struct F {
    float32x4_t v[4];
  };
  // Register tiles of float products: 4 sums of four registers each, and their operands.
  static constexpr int kTileRows = 2, kTileTokens = 2;

  KTX_INLINE F zero() { return set1(0); }
  KTX_INLINE F set1(float x) {
    return each([x](int) KTX_LANES { return vdupq_n_f32(x); });
  }
  KTX_INLINE F load(const float* p) {
    return each([p](int i) KTX_LANES { return vld1q_f32(p + 4 * i); });
  }
  KTX_INLINE void store(float* p, F x) {
    KTX_UNROLL
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
  }
  // The first n of 16 lanes, 0 <= n < 16; the others are zero, and not written.
  KTX_INLINE F load_part(const float* p, int64_t n) {
    float all[16] = {};
    for (int64_t i = 0; i < n; ++i) all[i] = p[i];
    return load(all);
  }
  KTX_INLINE void store_part(float* p, int64_t n, F x) {
    float all[16];
    store(all, x);
    for (int64_t i = 0; i < n; ++i) p[i] = all[i];
  }
  KTX_INLINE F load_half(const uint16_t* p) {  // 16 IEEE halves
    return each([p](int i) KTX_LANES { return halves(vld1_u16(p + 4 * i)); });
  }
  KTX_INLINE F load_int8(const int8_t* p) {  // 16 int8
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }

  KTX_INLINE F add(F a, F b) {
    return each([&](int i) KTX_LANES { return vaddq_f32(a.v[i], b.v[i]); });
  }
  KTX_INLINE F sub(F a, F b) {
    return each([&](int i) KTX_LANES { return vsubq_f32(a.v[i], b.v[i]); });
  }
  KTX_INLINE F mul(F a, F b) {
    return each([&](int i) KTX_LANES { return vmulq_f32(a.v[i], b.v[i]); });
  }
  KTX_INLINE F div(F a, F b) {
    return each([&](int i) KTX_LANES { return vdivq_f32(a.v[i], b.v[i]); });
  }
  KTX_INLINE F fma(F a, F b, F c) {
    return each([&](int i) KTX_LANES { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  KTX_INLINE F fnma(F a, F b, F c) {  // c - a * b
    return each([&](int i) KTX_LANES { return vfmsq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // A NaN in b wins, one in a is lost.
  KTX_INLINE F max(F a, F b) {
    return each([&](int i) KTX_LANES { return larger(a.v[i], b.v[i]); });
  }
  KTX_INLINE F min(F a, F b) {
    return each([&](int i)
                    KTX_LANES { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }

  // Four sums over lanes at once, each by the tree of README.md.
  KTX_INLINE float32x4_t sum4(F a, F b, F c, F d) {
    return vpaddq_f32(vpaddq_f32(fours(a), fours(b)), vpaddq_f32(fours(c), fours(d)));
  }
  KTX_INLINE float sum(F x) { return vgetq_lane_f32(sum4(x, x, x, x), 0); }
  KTX_INLINE float max_of(F x) {
    float32x4_t m = larger(larger(x.v[0], x.v[2]), larger(x.v[1], x.v[3]));
    m = larger(m, vextq_f32(m, m, 2));
    return vgetq_lane_f32(larger(m, vdupq_laneq_f32(m, 1)), 0);
  }

  // v * 2^n for integers n in [-252, 254] (in float lanes), in two exact steps, so
  // that results may be subnormal or infinite.
  KTX_INLINE F scale_by_power(F x, F n) {
    return each([&](int i) KTX_LANES {
      const int32x4_t power = vcvtnq_s32_f32(n.v[i]), first = vshrq_n_s32(power, 1);
      return vmulq_f32(vmulq_f32(x.v[i], two_to(first)), two_to(vsubq_s32(power, first)));
    });
  }
  KTX_INLINE F round(F x) {
    return each([&](int i) KTX_LANES { return vrndnq_f32(x.v[i]); });
  }
  // v * 2^n of t = n + 1.5 * 2^23, for a result that is normal (or v and t NaN).
  KTX_INLINE F add_power(F x, F t) {
    return each([&](int i) KTX_LANES {
      return vreinterpretq_f32_s32(
          vaddq_s32(vreinterpretq_s32_f32(x.v[i]), vshlq_n_s32(vreinterpretq_s32_f32(t.v[i]), 23)));
    });
  }
  // To BF16 and back: to nearest even; subnormals become zero, NaNs quiet.
  KTX_INLINE F round_bf16(F x) {
    return each([&](int i) KTX_LANES { return round_bf16(x.v[i]); });
  }

  // ---- integers: codes are weights 0..127 ("unsigned") or -128..127 ("signed"), x is
  // -127..127, and all sums are exact.

  // 32 codes times 32 x: lane j of the result is the sum of products 4j .. 4j + 3.
  KTX_INLINE __m256i quads_signed(__m256i codes, __m256i x) {
    const auto half = [](__m128i a, __m128i b) KTX_LANES {
      return vreinterpretq_s64_s32(
          add_quads(vdupq_n_s32(0), vreinterpretq_s8_s64(a), vreinterpretq_s8_s64(b)));
    };
    return _mm256_set_m128i(
        half(_mm256_extracti128_si256(codes, 1), _mm256_extracti128_si256(x, 1)),
        half(_mm256_castsi256_si128(codes), _mm256_castsi256_si128(x)));
  }
  KTX_INLINE __m256i quads_unsigned(__m256i codes, __m256i x) { return quads_signed(codes, x); }

  // 16 int32, one for each row of a panel; or 64 bytes.
  struct I {
    int32x4_t v[4];
  };
  KTX_INLINE I sub(I a, int32_t b) {
    return each_i([&](int i) KTX_LANES { return vsubq_s32(a.v[i], vdupq_n_s32(b)); });
  }
  KTX_INLINE F to_float(I x) {
    return each([&](int i) KTX_LANES { return vcvtq_f32_s32(x.v[i]); });
  }

  // 64 bytes: eight entries of a table, those of every kStep-th index.
  template <int kStep, class Index>
  KTX_INLINE I eight(const uint64_t* table, const Index* at) {
    return each_i([&](int i) KTX_LANES {
      return vreinterpretq_s32_u64(vcombine_u64(vcreate_u64(table[at[kStep * 2 * i]]),
                                                vcreate_u64(table[at[kStep * (2 * i + 1)]])));
    });
  }
  KTX_INLINE I load64(const void* p) {
    const auto* bytes = static_cast<const int8_t*>(p);
    return each_i([&](int i) KTX_LANES { return words(vld1q_s8(bytes + 16 * i)); });
  }
  KTX_INLINE I zero_i() {
    return each_i([](int) KTX_LANES { return vdupq_n_s32(0); });
  }
  KTX_INLINE I add8(I x, int n) {
    const int8x16_t all = vdupq_n_s8(static_cast<int8_t>(n));
    return each_i([&](int i) KTX_LANES { return words(vaddq_s8(bytes(x.v[i]), all)); });
  }
  // Negates byte i where bit i is set.
  KTX_INLINE I negate8(I x, uint64_t bits) {
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    return each_i([&](int i) KTX_LANES {
      const uint8x16_t spread = vcombine_u8(vdup_n_u8(static_cast<uint8_t>(bits >> 16 * i)),
                                            vdup_n_u8(static_cast<uint8_t>(bits >> (16 * i + 8))));
      const int8x16_t all = bytes(x.v[i]);
      return words(vbslq_s8(vtstq_u8(spread, bit), vnegq_s8(all), all));
    });
  }
  // sum + 64 codes (0..127) times 64 x, by fours.
  KTX_INLINE I dot64(I sum, I codes, I x) {
    return each_i([&](int i)
                      KTX_LANES { return add_quads(sum.v[i], bytes(codes.v[i]), bytes(x.v[i])); });
  }
  // Lane j: lanes 2j and 2j + 1.
  KTX_INLINE __m256i pair_sums(I x) {
    return _mm256_set_m128i(vreinterpretq_s64_s32(vpaddq_s32(x.v[2], x.v[3])),
                            vreinterpretq_s64_s32(vpaddq_s32(x.v[0], x.v[1])));
  }

  // Codes of a panel that the sums below take: 0 .. 127 here, or signed beyond.
  static constexpr int kLargestUnsigned = 127;
  static constexpr int kPanelTokens = 4;

  // 16 rows times the 4 * kSteps elements from x[t] of each token. codes: per step 4
  // bytes of each of the 16 rows.
  template <int kSteps, int kTokens>
  KTX_INLINE void panel_dots_signed(const int8_t* codes, const int8_t* const* x, int64_t offset,
                                    I (&out)[kTokens]) {
    for (int t = 0; t < kTokens; ++t) out[t] = zero_i();
    KTX_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const I step = load64(codes + 64 * s);
      for (int t = 0; t < kTokens; ++t) {
        const int32x4_t four = four_bytes(x[t] + offset + 4 * s);
        out[t] = dot64(out[t], step, {{four, four, four, four}});
      }
    }
  }
  template <int kSteps, int kLargest, int kTokens>
  KTX_INLINE void panel_dots(const int8_t* codes, const int8_t* const* x, int64_t offset,
                             I (&out)[kTokens]) {
    static_assert(kLargest <= 127);
    panel_dots_signed<kSteps>(codes, x, offset, out);
  }

 protected:
  template <class Op>
  KTX_INLINE F each(const Op& op) {
    return {{op(0), op(1), op(2), op(3)}};
  }
  template <class Op>
  KTX_INLINE I each_i(const Op& op) {
    return {{op(0), op(1), op(2), op(3)}};
  }
  KTX_INLINE int8x16_t bytes(int32x4_t x) { return vreinterpretq_s8_s32(x); }
  KTX_INLINE int32x4_t words(int8x16_t x) { return vreinterpretq_s32_s8(x); }
  KTX_INLINE int32x4_t words(uint8x16_t x) { return vreinterpretq_s32_u8(x); }
  KTX_INLINE int32x4_t four_bytes(const void* p) {
    int32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return vdupq_n_s32(word);
  }
  KTX_INLINE float32x4_t halves(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
  // sum + the products of signed bytes, by fours.
  KTX_INLINE int32x4_t add_quads(int32x4_t sum, int8x16_t a, int8x16_t b) {
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vpadalq_s16(sum, vpaddq_s16(low, high));  // a pair is at most 2 * 128 * 127
#endif
  }

 private:
  KTX_INLINE float32x4_t larger(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
  }
  // Sums of lanes i .. i + 1 (mod 8), i even, of v[i] + v[i + 8]; then two of them each.
  KTX_INLINE float32x4_t fours(F x) {
    return vpaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  }
  KTX_INLINE float32x4_t two_to(int32x4_t e) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
  }
  KTX_INLINE float32x4_t round_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), upper = vdupq_n_u32(0xFFFF0000);
    const uint32x4_t last = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(last, vdupq_n_u32(0x7FFF)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    const uint32x4_t sign = vandq_u32(bits, vdupq_n_u32(0x80000000));
    const uint32x4_t is_number = vceqq_f32(x, x);
    const uint32x4_t is_normal = vtstq_u32(bits, vdupq_n_u32(0x7F800000));
    const uint32x4_t r = vandq_u32(vbslq_u32(is_number, rounded, quiet), upper);
    return vreinterpretq_f32_u32(vbslq_u32(is_normal, r, sign));
  }
};

using Avx2 = Neon;  // the files of AVX2 are NEON's too

}  // namespace
}  // namespace ktx::kernels
