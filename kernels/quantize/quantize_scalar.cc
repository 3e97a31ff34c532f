// Activations to int8, 128 columns at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/quantize/quantize.h"
#include "kernels/quantize/shared_scale.h"

namespace ktx::kernels {

void quantize_scalar(const QuantizeArgs& a);

namespace {

// The bits of the largest magnitude; those of infinity when one is not finite.
int32_t largest_bits(const float* x) {
  float largest = 0;
  for (int64_t i = 0; i < kActQ8Group; ++i) {
    const float magnitude = std::isfinite(x[i]) ? std::fabs(x[i]) : INFINITY;
    largest = std::max(largest, magnitude);
  }
  int32_t bits;
  std::memcpy(&bits, &largest, sizeof bits);
  return bits;
}

// 128 columns, of which `groups` times 32 are there.
void quantize_shared(const float* x, int64_t groups, int8_t* q, float* scale) {
  Int4 largest = {};
  for (int64_t g = 0; g < groups; ++g) largest[g] = largest_bits(x + g * kActQ8Group);
  const Float4 top = share_scale(largest);
  for (int64_t g = 0; g < kSharedGroups; ++g) {
    scale[g] = top[g] / 127;
    for (int64_t i = g * kActQ8Group; i < (g + 1) * kActQ8Group; ++i) {
      const bool usable = g < groups && top[g] > 0;
      q[i] = usable ? static_cast<int8_t>(std::nearbyint(x[i] * (127 / top[g]))) : int8_t{0};
    }
  }
}

void quantize_row(const float* x, int64_t k, ElementRange range, std::byte* row) {
  int8_t* q = reinterpret_cast<int8_t*>(row);
  float* scale = reinterpret_cast<float*>(row + act_q8_scale_offset(k));
  int16_t* sum = reinterpret_cast<int16_t*>(row + act_q8_sum_offset(k));
  const int64_t end = range.end == k ? act_q8_padded(k) : range.end;
  for (int64_t i = range.begin; i < end; i += kActQ8Shared) {
    const int64_t groups = std::clamp<int64_t>((k - i) / kActQ8Group, 0, kSharedGroups);
    quantize_shared(x + i, groups, q + i, scale + i / kActQ8Group);
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
