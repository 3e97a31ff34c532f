// Activations to int8, one group of 32 at a time.
#include <cmath>
#include <cstring>

#include "kernels/quantize/quantize.h"

namespace ktx::kernels {

void quantize_scalar(const QuantizeArgs& a);

namespace {

// One group; returns its scale. The largest magnitude becomes +-127.
float quantize_group(const float* x, int8_t* q) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < kActQ8Group; ++i) {
    largest = std::fabs(x[i]) > largest ? std::fabs(x[i]) : largest;
    finite = finite && std::isfinite(x[i]);
  }
  std::memset(q, 0, kActQ8Group);
  if (!finite) return NAN;
  const float scale = largest / 127;
  // A subnormal scale has no finite inverse worth the name: such a group is zero.
  if (scale < 1e-37f) return 0;
  const float inverse = 127 / largest;
  for (int64_t i = 0; i < kActQ8Group; ++i) {
    q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
  }
  return scale;
}

void quantize_row(const float* x, int64_t k, ElementRange range, std::byte* row) {
  int8_t* q = reinterpret_cast<int8_t*>(row);
  float* scale = reinterpret_cast<float*>(row + act_q8_scale_offset(k));
  int16_t* sum = reinterpret_cast<int16_t*>(row + act_q8_sum_offset(k));
  const int64_t end = range.end == k ? act_q8_padded(k) : range.end;
  for (int64_t i = range.begin; i < end; i += kActQ8Group) {
    if (i < k) {
      scale[i / kActQ8Group] = quantize_group(x + i, q + i);
    } else {
      scale[i / kActQ8Group] = 0;
      std::memset(q + i, 0, kActQ8Group);
    }
  }
  for (int64_t i = range.begin; i < end; i += 16) {
    sum[i / 16] = 0;
    for (int64_t j = i; j < i + 16; ++j) sum[i / 16] = static_cast<int16_t>(sum[i / 16] + q[j]);
  }
}

}  // namespace

void quantize_scalar(const QuantizeArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t r = 0; r < a.attrs.rows_per_token; ++r) {
      quantize_row(a.x + t * a.x_stride + r * a.attrs.stride, a.row_elems, quantize_range(a),
                   a.xq + t * a.xq_stride + r * act_q8_row_bytes(a.row_elems));
    }
  }
}

}  // namespace ktx::kernels
