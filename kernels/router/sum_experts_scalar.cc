// One variant: a token's few rows are read once, beside matrices of many megabytes.
#include <algorithm>

#include "kernels/router/router.h"

namespace ktx::kernels {

void sum_experts_scalar(const SumExpertsArgs& a);

namespace {

// The choice with the least number above `after`, or -1.
int32_t next_choice(const int32_t* ids, int32_t top_k, int64_t after) {
  int32_t next = -1;
  for (int32_t k = 0; k < top_k; ++k) {
    if (ids[k] > after && (next < 0 || ids[k] < ids[next])) next = k;
  }
  return next;
}

}  // namespace

void sum_experts_scalar(const SumExpertsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const int32_t* ids = a.ids + t * a.top_k;
    const float* pairs = a.pairs + t * a.pairs_stride;
    float* y = a.y + t * a.y_stride;
    if (!a.accumulate) std::fill_n(y, a.width, 0.0f);
    int64_t last = -1;
    for (int32_t k = next_choice(ids, a.top_k, last); k >= 0; k = next_choice(ids, a.top_k, last)) {
      const float* pair = pairs + k * a.width;
      for (int64_t n = 0; n < a.width; ++n) y[n] += pair[n];
      last = ids[k];
    }
  }
}

}  // namespace ktx::kernels
