// Rows of every format to floats or int8 with AVX2 and F16C. What is special to a
// format is in block_codes_avx2.h and block_codes_iq_avx2.h; here are the loops.
//
// Product and difference are separate instructions on purpose: FMA would round once
// where the reference rounds twice.
#include "kernels/matmul/dequant_avx2.h"

#include <cstring>

#include "kernels/matmul/block_codes_avx2.h"
#include "kernels/matmul/block_codes_iq_avx2.h"

namespace ktx::kernels {
namespace {

template <DType kType>
struct Form;
#define KTX_INT8_FORM(id, group, has_min)            \
  template <>                                        \
  struct Form<DType::id> {                           \
    static constexpr Int8Form kForm{group, has_min}; \
  };
#include "lib/formats/int8_forms.def"
#undef KTX_INT8_FORM

template <DType kType, class Block, int kElems>
void int8_row(const void* packed, int64_t elems, int8_t* codes, float* scales, float* mins) {
  constexpr int kGroups = kElems / Form<kType>::kForm.group;
  const auto* block = static_cast<const Block*>(packed);
  for (int64_t i = 0; i < elems; i += kElems, ++block, codes += kElems) {
    block_scales(*block, scales, mins);
    block_codes(*block, [&](int part, __m256i code) KTX_ALWAYS_INLINE {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * part), code);
    });
    scales += kGroups;
    if (Form<kType>::kForm.has_min) mins += kGroups;
  }
}

template <DType kType, class Block, int kElems>
void float_row(const void* packed, int64_t elems, float* out) {
  constexpr Int8Form kForm = Form<kType>::kForm;
  const auto* block = static_cast<const Block*>(packed);
  for (int64_t i = 0; i < elems; i += kElems, ++block, out += kElems) {
    float scales[kElems / kForm.group];
    float mins[kElems / kForm.group];
    block_scales(*block, scales, mins);
    block_codes(*block, [&](int part, __m256i code) KTX_ALWAYS_INLINE {
      const __m128i halves[2] = {_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1)};
      for (int h = 0; h < 2; ++h) {
        const int group = kForm.group == 16 ? 2 * part + h : part;
        const __m256 scale = _mm256_broadcast_ss(scales + group);
        const __m256i low = _mm256_cvtepi8_epi32(halves[h]);
        const __m256i high = _mm256_cvtepi8_epi32(_mm_srli_si128(halves[h], 8));
        __m256 first = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(low));
        __m256 second = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(high));
        if (kForm.has_min) {
          const __m256 min = _mm256_broadcast_ss(mins + group);
          first = _mm256_sub_ps(first, min);
          second = _mm256_sub_ps(second, min);
        }
        _mm256_storeu_ps(out + 32 * part + 16 * h, first);
        _mm256_storeu_ps(out + 32 * part + 16 * h + 8, second);
      }
    });
  }
}

// Not memcpy: for rows of 64 KiB it is "rep movsb", 0.7 G weights/s on Zen 3 when the
// output lies a few bytes above the input modulo 4096; these moves give 8 there.
void f32_row(const void* packed, int64_t elems, float* out) {
  const auto* in = static_cast<const float*>(packed);
  int64_t i = 0;
  for (; i + 8 <= elems; i += 8) _mm256_storeu_ps(out + i, _mm256_loadu_ps(in + i));
  for (; i < elems; ++i) std::memcpy(out + i, in + i, sizeof(float));  // NaNs as they are
}

void f16_row(const void* packed, int64_t elems, float* out) {
  const auto* in = static_cast<const BlockF16*>(packed);
  int64_t i = 0;
  for (; i + 8 <= elems; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load128(in + i)));
  for (; i < elems; ++i) out[i] = _cvtsh_ss(in[i].value);
}

void bf16_row(const void* packed, int64_t elems, float* out) {
  const auto* in = static_cast<const BlockBF16*>(packed);
  int64_t i = 0;
  for (; i + 8 <= elems; i += 8) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(in + i)), 16);
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(bits));
  }
  for (; i < elems; ++i) out[i] = bfloat16_to_float(in[i].value);
}

template <DType kType, class Block, int kElems>
constexpr RowDecoder float_decoder() {
  if constexpr (kType == DType::F32) {
    return f32_row;
  } else if constexpr (kType == DType::F16) {
    return f16_row;
  } else if constexpr (kType == DType::BF16) {
    return bf16_row;
  } else if constexpr (kType == DType::I32) {
    return nullptr;
  } else {
    return float_row<kType, Block, kElems>;
  }
}

template <DType kType, class Block, int kElems>
constexpr Int8Decoder codes_decoder() {
  if constexpr (kType == DType::F32 || kType == DType::F16 || kType == DType::BF16 ||
                kType == DType::I32) {
    return nullptr;
  } else {
    return int8_row<kType, Block, kElems>;
  }
}

}  // namespace

constexpr RowDecoder kRowDecodersAvx2[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) float_decoder<DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

constexpr Int8Decoder kInt8DecodersAvx2[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) codes_decoder<DType::id, Block##id, elems>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

}  // namespace ktx::kernels
