// Rows that are changed by what all of their elements have in common (Gemma 3n).
//
//   match_rms      y[i] = x[i] * sqrt(mean of like^2 / max(mean of x^2, eps))
//   gaussian_topk  y[i] = max(x[i] - (mean + deviations * deviation), 0)
//                  mean and deviation (root of the mean of (x - mean)^2) of the row
//
// y may be x. Sums are taken in a fixed order that depends on the width alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct MatchRmsArgs {
  const float* x = nullptr;     // [T, width]
  int64_t x_stride = 0;         // elements
  const float* like = nullptr;  // [T, like_width]
  int64_t like_stride = 0;
  int64_t like_width = 0;
  float* y = nullptr;  // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;
  MatchRmsAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using MatchRmsFn = void (*)(const MatchRmsArgs&);

struct GaussianTopKArgs {
  const float* x = nullptr;  // [T, width]
  int64_t x_stride = 0;      // elements
  float* y = nullptr;        // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;
  GaussianTopKAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using GaussianTopKFn = void (*)(const GaussianTopKArgs&);

// Families: "match_rms", "gaussian_topk".
Result<MatchRmsFn> find_match_rms(std::string_view family, Isa isa);
Result<GaussianTopKFn> find_gaussian_topk(std::string_view family, Isa isa);

}  // namespace ktx::kernels
