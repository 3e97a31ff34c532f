// Products of BF16 weights and activations in the order of a matrix tile, one output at a
// time: what every variant of matmul_panel16_tile_bf16 has the bits of.
//
//   even, odd = the sums of 16 products each of 32 columns, from zero
//   sum       = sum + (even + odd)
//
// as TDPBF16PS is documented: every step rounded to nearest even, subnormals as zeros.
#include <cmath>

#include "kernels/matmul/matmul_selectors.h"
#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/panel_as_rows.h"
#include "kernels/matmul/panel_bf16_weights.h"
#include "kernels/simd/flush_subnormals.h"
#include "lib/formats/act_q8.h"
#include "lib/formats/int8_form.h"

namespace ktx::kernels {

namespace {

float cut_to_bf16(float f) {
  uint32_t bits;
  __builtin_memcpy(&bits, &f, sizeof bits);
  bits &= 0xffff0000;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

// `count` columns of a row that share a scale, from column `first` on: panel_bf16_weights.h has the
// equation.
void decode_group(DType dtype, int64_t first, const int8_t* codes, int count, float scale,
                  float min, bool has_min, float* out) {
  const int offset = bf16_codes(dtype).offset;
  const float s = kBf16Up * scale;
  for (int i = 0; i < count; ++i) {
    const float one = static_cast<float>(1 << bf16_bits(dtype, first + i));
    const float raise = -(one + static_cast<float>(offset));
    const float add = has_min ? std::fma(s, raise, -kBf16Up * min) : s * raise;
    const float code = static_cast<float>(codes[i] + offset);
    out[i] = cut_to_bf16(std::fma(1 + code / one, one * s, add));
  }
}

float dot(const float* w, const uint16_t* x, int64_t cols) {
  float sum = 0;
  for (int64_t k = 0; k < cols; k += 32) {
    float part[2] = {0, 0};
    for (int64_t j = 0; j < 32; ++j) {
      part[j % 2] = std::fma(w[k + j], bfloat16_to_float(x[k + j]), part[j % 2]);
    }
    sum += part[0] + part[1];
  }
  return sum;
}

void product(const MatmulArgs& a) {
  const Int8Form form = *int8_form(a.w.dtype);
  const int64_t k = a.w.cols, groups = k / form.group;
  auto* codes = reinterpret_cast<int8_t*>(a.scratch);
  auto* scales = reinterpret_cast<float*>(a.scratch + act_q8_padded(k));
  float *mins = scales + groups, *row = mins + groups;
  const FlushSubnormals flush(true);
  for (int64_t n = a.row_begin; n < a.row_end; ++n) {
    decode_int8_row(a.w.dtype, a.w.data + n * a.w.row_bytes, k, codes, scales, mins);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * form.group;
      decode_group(a.w.dtype, first, codes + first, form.group, scales[g],
                   form.has_min ? mins[g] : 0, form.has_min, row + first);
    }
    for (int64_t i = 0; i < a.tokens; ++i) {
      const std::byte* x = a.xq + x_row(a, i) * a.xq_stride;
      store_output(a, i, n, dot(row, reinterpret_cast<const uint16_t*>(x), k));
    }
  }
}

}  // namespace

MatmulFn matmul_panel16_tile_bf16_scalar(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<product> : nullptr;
}

}  // namespace ktx::kernels
