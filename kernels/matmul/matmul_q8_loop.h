// Weights in blocks times int8 activations, over a vector policy (simd/README.md).
//
// 256 weights make a unit: 8 blocks of 32 codes with a float scale, and for some
// formats a minimum, per group of 32 or 16. An output has 8 sums; block b of every
// unit goes to sum[b], unit after unit, each of its groups with
//
//   dot    = sum of code * q over the group                            (an exact int)
//   sum[b] = fma(weight scale * activation scale, dot, sum[b])
//   sum[b] = sum[b] - min * (activation scale * sum of q), one rounding at the end
//
// and the output is ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)). So it may be
// had in two ways with the same bits: with few tokens the packed row goes straight
// into registers, lane b of a register being sum[b]; with more tokens 16 rows are
// unpacked into a panel, a lane is a row, and nothing is ever summed across lanes.
//
// Included by matmul_<isa>.cc only.
#pragma once

#include "kernels/matmul/block_codes_avx2.h"
#include "kernels/matmul/block_codes_iq_avx2.h"
#include "kernels/matmul/code_range.h"
#include "kernels/matmul/matmul_grid_loop.h"
#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/row_decode.h"
#include "lib/formats/act_q8.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

constexpr int kUnit = 256;

template <DType kType>
struct FormOf;
#define KTX_INT8_FORM(id, group, has_min)          \
  template <>                                      \
  struct FormOf<DType::id> {                       \
    static constexpr DType kDType = DType::id;     \
    static constexpr int kGroup = group;           \
    static constexpr bool kHasMin = has_min;       \
    static constexpr int kScales = kUnit / kGroup; \
  };
#include "lib/formats/int8_forms.def"
#undef KTX_INT8_FORM

// How codes meet the unsigned operand of the byte products: with `kOffset` added,
// which is taken off again as kOffset * sum of q; or signed, where that is too large.
template <class V, class Form>
struct Unsigned {
  static constexpr CodeRange kRange = code_range(Form::kDType);
  static constexpr bool kFits = kRange.high - kRange.low <= V::kLargestUnsigned;
  static constexpr int kOffset = kFits ? -kRange.low : 0;
  static constexpr int kLargest = kRange.high + kOffset;
};

// What the loops over panels need to know of a format: most have a sibling here, so
// that the compiler makes half as many of them. kLargest is 0 for signed codes.
template <int group, bool has_min, int largest>
struct PanelForm {
  static constexpr int kGroup = group;
  static constexpr bool kHasMin = has_min;
  static constexpr int kLargest = largest;
  static constexpr int kScales = kUnit / group;
  // The formats with a minimum have no negative codes.
  static constexpr bool kHasOffset = !has_min && largest > 0;
};

constexpr int round_up_to_bits(int value) {
  int bits = 15;
  while (bits < value) bits = 2 * bits + 1;
  return bits;
}

template <class V, class Form>
using PanelFormOf =
    PanelForm<Form::kGroup, Form::kHasMin,
              Unsigned<V, Form>::kFits ? round_up_to_bits(Unsigned<V, Form>::kLargest) : 0>;

// A quantised activation row.
struct ActRow {
  const int8_t* q = nullptr;
  const float* scale = nullptr;
  const int16_t* sum = nullptr;
};

KTX_ALWAYS_INLINE inline ActRow act_row(const MatmulArgs& a, int64_t i) {
  const std::byte* row = a.xq + x_row(a, i) * a.xq_stride;
  return {reinterpret_cast<const int8_t*>(row),
          reinterpret_cast<const float*>(row + act_q8_scale_offset(a.w.cols)),
          reinterpret_cast<const int16_t*>(row + act_q8_sum_offset(a.w.cols))};
}

// Sums of q of the 8 blocks of a unit, part by part: one part of 32, or the first and
// the second 16 of each block.
template <class Form>
KTX_ALWAYS_INLINE inline void block_sums(const int16_t* sums, __m256i (&out)[Form::kScales / 8]) {
  const __m256i pairs = load256(sums);
  if constexpr (Form::kGroup == 32) {
    out[0] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  } else {
    out[0] = _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
    out[1] = _mm256_srai_epi32(pairs, 16);
  }
}

// sum8 of the head comment.
KTX_ALWAYS_INLINE inline float sum8(__m256 v) {
  const __m256 twos = _mm256_hadd_ps(v, v);
  const __m256 fours = _mm256_hadd_ps(twos, twos);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

// ---- few tokens: straight from the packed row

template <class Block, int kElems, int kGroup>
struct UnitCodes {
  __m256i codes[8];
  float scales[16];
  float mins[16];

  // From the 256 / kElems blocks at `block`.
  KTX_ALWAYS_INLINE explicit UnitCodes(const Block* block) {
    if constexpr (kElems == kUnit) {
      block_scales(*block, scales, mins);
      block_codes(*block, [this](int part, __m256i c) KTX_ALWAYS_INLINE { codes[part] = c; });
    } else if constexpr (kElems > 32) {
      constexpr int kParts = kElems / 32;
      for (int b = 0; b < kUnit / kElems; ++b) {
        block_scales(block[b], scales + kElems / kGroup * b, mins);
        block_codes(block[b], [this, b](int part, __m256i c)
                                  KTX_ALWAYS_INLINE { codes[kParts * b + part] = c; });
      }
    } else {
      for (int b = 0; b < 8; ++b) {
        block_codes(block[b], [this, b](int, __m256i c) KTX_ALWAYS_INLINE { codes[b] = c; });
      }
      small_scales(block);
    }
  }

 private:
  // Eight halves are put together and converted at once: eight single floats would
  // have to reach the cache before they could be read as a register.
  KTX_ALWAYS_INLINE void small_scales(const Block* b) {
    if constexpr (requires { b->scale; }) {
      const __m128i halves =
          _mm_setr_epi16(half(b[0].scale), half(b[1].scale), half(b[2].scale), half(b[3].scale),
                         half(b[4].scale), half(b[5].scale), half(b[6].scale), half(b[7].scale));
      _mm256_storeu_ps(scales, _mm256_cvtph_ps(halves));
    } else {
      for (int i = 0; i < 8; ++i) block_scales(b[i], scales + i, mins + i);
    }
    if constexpr (requires { b->offset; }) {
      const __m128i halves = _mm_setr_epi16(half(b[0].offset), half(b[1].offset), half(b[2].offset),
                                            half(b[3].offset), half(b[4].offset), half(b[5].offset),
                                            half(b[6].offset), half(b[7].offset));
      _mm256_storeu_ps(mins, _mm256_xor_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(-0.0f)));
    }
  }
  KTX_ALWAYS_INLINE static int16_t half(uint16_t bits) { return static_cast<int16_t>(bits); }
};

// Scales of a unit by part: as they are, or those of the first and of the second 16.
template <class Form>
KTX_ALWAYS_INLINE inline void by_part(const float* in, __m256 (&out)[Form::kScales / 8]) {
  const __m256 first = _mm256_loadu_ps(in);
  if constexpr (Form::kGroup == 32) {
    out[0] = first;
  } else {
    const __m256 second = _mm256_loadu_ps(in + 8);
    // Neighbours apart, then quarters 0 2 1 3 in order.
    const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(first, second, 0x88));
    const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(first, second, 0xDD));
    out[0] = _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xD8));
    out[1] = _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xD8));
  }
}

// Lane b of out[p] = sum over part p of quads[b]: all of it, or its lower and upper half.
template <class Form>
KTX_ALWAYS_INLINE inline void sum_quads(const __m256i (&quads)[8],
                                        __m256i (&out)[Form::kScales / 8]) {
  const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(quads[0], quads[1]),
                                        _mm256_hadd_epi32(quads[2], quads[3]));
  const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(quads[4], quads[5]),
                                         _mm256_hadd_epi32(quads[6], quads[7]));
  const __m256i first = _mm256_permute2x128_si256(low, high, 0x20);
  const __m256i second = _mm256_permute2x128_si256(low, high, 0x31);
  if constexpr (Form::kGroup == 32) {
    out[0] = _mm256_add_epi32(first, second);
  } else {
    out[0] = first;
    out[1] = second;
  }
}

template <class V, class Form, class Unit>
KTX_ALWAYS_INLINE inline __m256 add_unit(const Unit& unit, const ActRow& x, int64_t u, __m256 sum) {
  using Codes = Unsigned<V, Form>;
  constexpr int kParts = Form::kScales / 8;
  __m256i quads[8];
  for (int b = 0; b < 8; ++b) {
    const __m256i act = load256(x.q + kUnit * u + 32 * b);
    if constexpr (Codes::kFits) {
      const __m256i shift = _mm256_set1_epi8(static_cast<char>(Codes::kOffset));
      quads[b] = V::quads_unsigned(_mm256_add_epi8(unit.codes[b], shift), act);
    } else {
      quads[b] = V::quads_signed(unit.codes[b], act);
    }
  }
  __m256i dots[kParts], sums[kParts];
  __m256 scales[kParts], mins[kParts];
  sum_quads<Form>(quads, dots);
  block_sums<Form>(x.sum + 16 * u, sums);
  by_part<Form>(unit.scales, scales);
  if constexpr (Form::kHasMin) by_part<Form>(unit.mins, mins);
  const __m256 act_scale = _mm256_loadu_ps(x.scale + 8 * u);
  for (int p = 0; p < kParts; ++p) {
    if constexpr (Codes::kOffset != 0) {
      dots[p] =
          _mm256_sub_epi32(dots[p], _mm256_mullo_epi32(sums[p], _mm256_set1_epi32(Codes::kOffset)));
    }
    sum = _mm256_fmadd_ps(_mm256_mul_ps(scales[p], act_scale), _mm256_cvtepi32_ps(dots[p]), sum);
    if constexpr (Form::kHasMin) {
      const __m256 act_sum = _mm256_mul_ps(act_scale, _mm256_cvtepi32_ps(sums[p]));
      sum = _mm256_fnmadd_ps(mins[p], act_sum, sum);
    }
  }
  return sum;
}

template <class V, DType kType, class Block, int kElems>
void one_token_q8(const MatmulArgs& a, int64_t i) {
  using Form = FormOf<kType>;
  constexpr int kBlocks = kUnit / kElems;
  const int64_t units = a.w.cols / kUnit;
  const int64_t rest = (a.w.cols - units * kUnit) / kElems;  // blocks of a last, partial unit
  const ActRow x = act_row(a, i);
  for (int64_t n = a.row_begin; n < a.row_end; ++n) {
    const auto* block = reinterpret_cast<const Block*>(a.w.data + n * a.w.row_bytes);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t u = 0; u < units; ++u, block += kBlocks) {
      sum = add_unit<V, Form>(UnitCodes<Block, kElems, Form::kGroup>(block), x, u, sum);
    }
    if (kElems < kUnit && rest > 0) {
      Block padded[kBlocks];
      __builtin_memset(padded, 0, sizeof padded);
      __builtin_memcpy(padded, block, static_cast<size_t>(rest) * sizeof(Block));
      sum = add_unit<V, Form>(UnitCodes<Block, kElems, Form::kGroup>(padded), x, units, sum);
    }
    store_output(a, i, n, sum8(sum));
  }
}

// The same where codes are entries of a grid (matmul_grid_loop.h).
template <class V, DType kType, class Block>
void one_token_grid(const MatmulArgs& a, int64_t i) {
  using Form = FormOf<kType>;
  constexpr int kParts = Form::kScales / 8;
  constexpr int64_t kAhead = 8;
  struct alignas(64) Prepared {
    __m256 factors[kParts];  // weight scale * activation scale
    GridCodes<V, kType> codes;
  };
  Prepared prepared[kAhead];
  const int64_t units = a.w.cols / kUnit;
  const ActRow x = act_row(a, i);
  auto* act = reinterpret_cast<GridActUnit*>(a.scratch);
  for (int64_t u = 0; u < units; ++u) {
    grid_act_unit<kType>(x.q + kUnit * u, x.sum + 16 * u, act[u]);
  }
  for (int64_t n = a.row_begin; n < a.row_end; ++n) {
    const auto* block = reinterpret_cast<const Block*>(a.w.data + n * a.w.row_bytes);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t first = 0; first < units; first += kAhead) {
      const int64_t count = units - first < kAhead ? units - first : kAhead;
      for (int64_t u = 0; u < count; ++u, ++block) {
        // Words come in bursts, which the hardware fetches too late; past the end is no harm.
        _mm_prefetch(reinterpret_cast<const char*>(block) + 2 * kAhead * sizeof(Block),
                     _MM_HINT_T0);
        float in_order[16];
        __m256 scales[kParts];
        block_scales(*block, in_order, nullptr);
        by_part<Form>(in_order, scales);
        const __m256 act_scale = _mm256_loadu_ps(x.scale + 8 * (first + u));
        for (int p = 0; p < kParts; ++p) {
          prepared[u].factors[p] = _mm256_mul_ps(scales[p], act_scale);
        }
        prepared[u].codes.set(*block);
      }
      for (int64_t u = 0; u < count; ++u) {
        __m256i dots[kParts];
        grid_dots<V>(prepared[u].codes, act[first + u], dots);
        for (int p = 0; p < kParts; ++p) {
          sum = _mm256_fmadd_ps(prepared[u].factors[p], _mm256_cvtepi32_ps(dots[p]), sum);
        }
      }
    }
    store_output(a, i, n, sum8(sum));
  }
}

// ---- many tokens: panels of 16 rows

// Bytes 4k .. 4k + 3 of all 16 rows stand together, and so do their scales.
template <class Form>
struct Panel {
  int8_t* codes;  // [padded / 4][16 rows][4]
  float* scales;  // [padded / group][16 rows]
  float* mins;    // likewise

  Panel(std::byte* memory, int64_t padded)
      : codes(reinterpret_cast<int8_t*>(memory)),
        scales(reinterpret_cast<float*>(memory + kPanelRows * padded)),
        mins(scales + padded / Form::kGroup * kPanelRows) {}
  std::byte* end(int64_t padded) const {
    return reinterpret_cast<std::byte*>(mins + padded / Form::kGroup * kPanelRows);
  }
};

// Four rows of codes into their places in the panel, `shift` added.
KTX_ALWAYS_INLINE inline void interleave4(const int8_t* rows, int64_t padded, __m256i shift,
                                          int8_t* out) {
  const auto put = [out](int64_t k, __m128i four) KTX_ALWAYS_INLINE {
    _mm_store_si128(reinterpret_cast<__m128i*>(out + k * kPanelRows), four);
  };
  for (int64_t k = 0; k < padded; k += 32) {
    const __m256i a = _mm256_add_epi8(load256(rows + k), shift);
    const __m256i b = _mm256_add_epi8(load256(rows + padded + k), shift);
    const __m256i c = _mm256_add_epi8(load256(rows + 2 * padded + k), shift);
    const __m256i d = _mm256_add_epi8(load256(rows + 3 * padded + k), shift);
    const __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
    const __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);
    const __m256i words[4] = {_mm256_unpacklo_epi64(ab0, cd0), _mm256_unpackhi_epi64(ab0, cd0),
                              _mm256_unpacklo_epi64(ab1, cd1), _mm256_unpackhi_epi64(ab1, cd1)};
    for (int w = 0; w < 4; ++w) {
      put(k + 4 * w, _mm256_castsi256_si128(words[w]));
      put(k + 4 * w + 16, _mm256_extracti128_si256(words[w], 1));
    }
  }
}

// Unpacks rows [n, n + count) with the columns from cols to padded, and the rows from
// count to 16, as zeros.
template <class Form>
void fill_panel(const MatmulArgs& a, int64_t n, int64_t count, int64_t padded, Int8Decoder decode,
                int offset, const Panel<Form>& panel) {
  int8_t* codes = reinterpret_cast<int8_t*>(panel.end(padded));  // four rows
  float* scales = reinterpret_cast<float*>(codes + 4 * padded);  // one row
  float* mins = scales + padded / Form::kGroup;
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(offset));
  const int64_t groups = a.w.cols / Form::kGroup;
  __builtin_memset(panel.scales, 0, static_cast<size_t>(padded / Form::kGroup * kPanelRows) * 8);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    int8_t* row = codes + r % 4 * padded;
    if (r < count) {
      decode(a.w.data + (n + r) * a.w.row_bytes, a.w.cols, row, scales, mins);
      __builtin_memset(row + a.w.cols, 0, static_cast<size_t>(padded - a.w.cols));
      for (int64_t g = 0; g < groups; ++g) {
        panel.scales[g * kPanelRows + r] = scales[g];
        if constexpr (Form::kHasMin) panel.mins[g * kPanelRows + r] = mins[g];
      }
    } else {
      __builtin_memset(row, 0, static_cast<size_t>(padded));
    }
    if (r % 4 == 3) interleave4(codes, padded, shift, panel.codes + (r - 3) * 4);
  }
}

// What a token brings to a unit, by group in the order of the weights.
struct ActUnit {
  float scale[8];
  float sum[16];       // activation scale * sum of q
  int32_t offset[16];  // code offset * sum of q
};

template <class Form>
KTX_ALWAYS_INLINE inline void load_act_unit(const ActRow& x, int64_t u, int offset, ActUnit& out) {
  constexpr int kParts = Form::kScales / 8;
  const __m256 scale = _mm256_loadu_ps(x.scale + 8 * u);
  _mm256_storeu_ps(out.scale, scale);
  __m256i sums[kParts];
  block_sums<Form>(x.sum + 16 * u, sums);
  for (int p = 0; p < kParts; ++p) {
    if constexpr (Form::kHasMin) {
      _mm256_storeu_ps(out.sum + 8 * p, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sums[p])));
    }
    if constexpr (Form::kHasOffset) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.offset + 8 * p),
                          _mm256_mullo_epi32(sums[p], _mm256_set1_epi32(offset)));
    }
  }
}

// 16 rows times kTokens tokens.
template <class V, class Form, int kTokens>
void panel_tile(const MatmulArgs& a, const Panel<Form>& panel, int64_t n, int64_t count, int64_t i,
                int64_t units, int offset) {
  constexpr int kParts = Form::kScales / 8;
  constexpr int kSteps = Form::kGroup / 4;
  alignas(64) float sums[kTokens][8][kPanelRows];
  __builtin_memset(sums, 0, sizeof sums);
  ActRow x[kTokens];
  const int8_t* q[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    x[t] = act_row(a, i + t);
    q[t] = x[t].q;
  }
  for (int64_t u = 0; u < units; ++u) {
    ActUnit act[kTokens];
    for (int t = 0; t < kTokens; ++t) load_act_unit<Form>(x[t], u, offset, act[t]);
    for (int b = 0; b < 8; ++b) {
      for (int p = 0; p < kParts; ++p) {
        const int64_t group = u * Form::kScales + b * kParts + p;
        const int64_t k = group * Form::kGroup;
        typename V::I dots[kTokens];
        if constexpr (Form::kLargest > 0) {
          V::template panel_dots<kSteps, Form::kLargest, kTokens>(panel.codes + k * kPanelRows, q,
                                                                  k, dots);
        } else {
          V::template panel_dots_signed<kSteps, kTokens>(panel.codes + k * kPanelRows, q, k, dots);
        }
        const typename V::F scale = V::load(panel.scales + group * kPanelRows);
        for (int t = 0; t < kTokens; ++t) {
          if constexpr (Form::kHasOffset) dots[t] = V::sub(dots[t], act[t].offset[8 * p + b]);
          const typename V::F factor = V::mul(scale, V::set1(act[t].scale[b]));
          typename V::F sum = V::fma(factor, V::to_float(dots[t]), V::load(sums[t][b]));
          if constexpr (Form::kHasMin) {
            sum = V::fnma(V::load(panel.mins + group * kPanelRows), V::set1(act[t].sum[8 * p + b]),
                          sum);
          }
          V::store(sums[t][b], sum);
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    typename V::F four[4];
    for (int j = 0; j < 4; ++j) {
      four[j] = V::add(V::load(sums[t][2 * j]), V::load(sums[t][2 * j + 1]));
    }
    V::store(sums[t][0], V::add(V::add(four[0], four[1]), V::add(four[2], four[3])));
    for (int64_t r = 0; r < count; ++r) store_output(a, i + t, n + r, sums[t][0][r]);
  }
}

// Tokens from i on, kTokens at a time and the rest in halves of that.
template <class V, class Form, int kTokens>
void panel_tokens(const MatmulArgs& a, const Panel<Form>& panel, int64_t n, int64_t count,
                  int64_t i, int64_t units, int offset) {
  for (; i + kTokens <= a.tokens; i += kTokens) {
    panel_tile<V, Form, kTokens>(a, panel, n, count, i, units, offset);
  }
  if constexpr (kTokens > 1)
    panel_tokens<V, Form, kTokens / 2>(a, panel, n, count, i, units, offset);
}

template <class V, class Form>
void many_tokens_q8(const MatmulArgs& a, Int8Decoder decode, int offset) {
  const int64_t padded = act_q8_padded(a.w.cols);
  const int64_t units = padded / kUnit;
  const Panel<Form> panel(a.scratch, padded);
  for (int64_t n = a.row_begin; n < a.row_end; n += kPanelRows) {
    const int64_t count = a.row_end - n < kPanelRows ? a.row_end - n : kPanelRows;
    fill_panel<Form>(a, n, count, padded, decode, offset, panel);
    panel_tokens<V, Form, V::kPanelTokens>(a, panel, n, count, 0, units, offset);
  }
}

// ---- kernels, by dtype; null where it has no int8 form

template <class V, DType kType, class Block, int kElems>
void gemv_q8(const MatmulArgs& a) {
  for (int64_t i = 0; i < a.tokens; ++i) {
    if constexpr (kHasGrid<kType>) {
      one_token_grid<V, kType, Block>(a, i);
    } else {
      one_token_q8<V, kType, Block, kElems>(a, i);
    }
  }
}

template <class V, DType kType>
void gemm_q8(const MatmulArgs& a) {
  using Form = FormOf<kType>;
  many_tokens_q8<V, PanelFormOf<V, Form>>(a, int8_decoder(kType, Isa::Avx2),
                                          Unsigned<V, Form>::kOffset);
}

template <class V, DType kType, class Block, int kElems>
constexpr MatmulFn gemv_q8_of() {
  if constexpr (requires { FormOf<kType>::kGroup; }) {
    return gemv_q8<V, kType, Block, kElems>;
  } else {
    return nullptr;
  }
}
template <class V, DType kType>
constexpr MatmulFn gemm_q8_of() {
  if constexpr (requires { FormOf<kType>::kGroup; }) {
    return gemm_q8<V, kType>;
  } else {
    return nullptr;
  }
}

template <class V>
constexpr MatmulFn kGemvQ8[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) gemv_q8_of<V, DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};
template <class V>
constexpr MatmulFn kGemmQ8[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) gemm_q8_of<V, DType::id>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace
}  // namespace ktx::kernels
