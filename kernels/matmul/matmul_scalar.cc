// Products without vector instructions: a weight row is decoded by lib/formats and
// multiplied with one accumulator in double. What every other variant is held to.
#include "kernels/matmul/matmul_selectors.h"
#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/panel_as_rows.h"
#include "lib/formats/act_q8.h"
#include "lib/formats/int8_form.h"

namespace ktx::kernels {

namespace {

float as_it_is(float x) {
  return x;
}
float rounded_to_bf16(float x) {
  return bfloat16_to_float(float_to_bfloat16(x));
}

template <float (*kTake)(float)>
void product_floats(const MatmulArgs& a) {
  float* row = reinterpret_cast<float*>(a.scratch);
  for (int64_t n = a.row_begin; n < a.row_end; ++n) {
    dequantize_row(a.w.dtype, a.w.data + n * a.w.row_bytes, a.w.cols, row);
    for (int64_t i = 0; i < a.tokens; ++i) {
      const float* x = a.x + x_row(a, i) * a.x_stride;
      double sum = 0;
      for (int64_t k = 0; k < a.w.cols; ++k) sum += double{kTake(x[k])} * row[k];
      store_output(a, i, n, static_cast<float>(sum));
    }
  }
}
constexpr MatmulFn product_f32 = product_floats<as_it_is>;
constexpr MatmulFn product_bf16 = product_floats<rounded_to_bf16>;

// A weight row as codes with a scale and a min per group.
struct Int8Row {
  int group;
  int8_t* codes;
  float* scales;
  float* mins;  // null: none
};

double dot_q8(const Int8Row& w, int64_t k, const std::byte* activation) {
  const int8_t* q = reinterpret_cast<const int8_t*>(activation);
  const float* scale = reinterpret_cast<const float*>(activation + act_q8_scale_offset(k));
  double total = 0;
  for (int64_t begin = 0; begin < k; begin += w.group) {
    int32_t product = 0, sum = 0;
    for (int64_t j = begin; j < begin + w.group; ++j) {
      product += w.codes[j] * q[j];
      sum += q[j];
    }
    double group = double{w.scales[begin / w.group]} * product;
    if (w.mins) group -= double{w.mins[begin / w.group]} * sum;
    total += scale[begin / kActQ8Group] * group;
  }
  return total;
}

void product_q8(const MatmulArgs& a) {
  const Int8Form form = *int8_form(a.w.dtype);
  const int64_t k = a.w.cols;
  Int8Row row{form.group, reinterpret_cast<int8_t*>(a.scratch),
              reinterpret_cast<float*>(a.scratch + act_q8_padded(k)), nullptr};
  if (form.has_min) row.mins = row.scales + k / form.group;
  for (int64_t n = a.row_begin; n < a.row_end; ++n) {
    decode_int8_row(a.w.dtype, a.w.data + n * a.w.row_bytes, k, row.codes, row.scales, row.mins);
    for (int64_t i = 0; i < a.tokens; ++i) {
      store_output(a, i, n, static_cast<float>(dot_q8(row, k, a.xq + x_row(a, i) * a.xq_stride)));
    }
  }
}

void product_transposed(const MatmulTransposedArgs& a) {
  float* row = reinterpret_cast<float*>(a.scratch);
  const DTypeInfo& dtype = info(a.w.dtype);
  const int64_t cols = a.col_end - a.col_begin;
  const int64_t offset = a.col_begin / dtype.block_elems * dtype.block_bytes;
  for (int64_t i = 0; i < a.tokens; ++i) {
    for (int64_t n = a.col_begin; n < a.col_end; ++n) a.y[i * a.y_stride + n] = 0;
  }
  for (int64_t k = 0; k < a.row_count; ++k) {
    dequantize_row(a.w.dtype, a.w.data + (a.row_begin + k) * a.w.row_bytes + offset, cols, row);
    for (int64_t i = 0; i < a.tokens; ++i) {
      const float x = a.x[i * a.x_stride + k];
      float* y = a.y + i * a.y_stride + a.col_begin;
      for (int64_t n = 0; n < cols; ++n) y[n] += x * row[n];
    }
  }
}

}  // namespace

MatmulFn matmul_f32_scalar(DType) {
  return product_f32;
}
MatmulFn matmul_bf16_scalar(DType dtype) {
  return dtype == DType::BF16 ? product_bf16 : nullptr;
}
MatmulFn matmul_q8_scalar(DType dtype) {
  return matmul_q8_takes(dtype) ? product_q8 : nullptr;
}
MatmulFn matmul_panel16_f32_scalar(DType dtype) {
  const bool known = panel16_form(dtype) || panel16_float_columns(dtype);
  return known ? product_of_panels<product_f32> : nullptr;
}
MatmulFn matmul_panel16_bf16_scalar(DType dtype) {
  return dtype == DType::BF16 ? product_of_panels<product_bf16> : nullptr;
}
MatmulFn matmul_panel16_q8_scalar(DType dtype) {
  return panel16_form(dtype) ? product_of_panels<product_q8> : nullptr;
}
MatmulFn matmul_panel16s_f32_scalar(DType dtype) {
  return panel16_stream_takes(dtype) ? product_of_panels<product_f32> : nullptr;
}
MatmulFn matmul_panel16s_q8_scalar(DType dtype) {
  return panel16_stream_takes(dtype) ? product_of_panels<product_q8> : nullptr;
}
MatmulTransposedFn matmul_transposed_f32_scalar(DType) {
  return product_transposed;
}

}  // namespace ktx::kernels
