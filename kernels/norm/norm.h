// RMS norm of each of `groups` equal parts of a row (heads for q/k norms).
//
//   y[j] = x[j] * (1 / sqrt(mean of x^2 over the part + eps)) * weight[j % part]
//
// y may be x. The sum of squares is taken in a fixed order that depends on the part's
// width alone. weight is F32[width / groups].
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/formats/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RmsNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;  // elements
  const float* weight = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;  // all groups together
  RmsNormAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using RmsNormFn = void (*)(const RmsNormArgs&);

// Families: "rms_norm".
Result<RmsNormFn> find_rms_norm(std::string_view family, Isa isa);

}  // namespace ktx::kernels
