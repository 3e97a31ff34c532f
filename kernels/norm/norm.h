// Norms of each of `groups` equal parts of a row (heads for q/k norms).
//
//   rms_norm    y[j] = x[j] * (1 / sqrt(mean of x^2 over the part + eps)) * weight[j % part]
//   layer_norm  d = x[j] - mean of the part
//               y[j] = d * (1 / sqrt(mean of d^2 over the part + eps)) * weight[j % part] + bias[j
//               % part]
//
// y may be x. Sums are taken in a fixed order that depends on the part's width alone. weight and
// bias are F32[width / groups]; weights may be F32[width], each part's own.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct RmsNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;  // elements
  const float* weight = nullptr;
  int64_t weight_step = 0;  // from a part's weights to the next one's; 0: all have the same
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;  // all groups together
  RmsNormAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using RmsNormFn = void (*)(const RmsNormArgs&);

struct LayerNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;  // elements
  const float* weight = nullptr;
  int64_t weight_step = 0;      // likewise
  const float* bias = nullptr;  // or none
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;  // all groups together
  LayerNormAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using LayerNormFn = void (*)(const LayerNormArgs&);

// Families: "rms_norm", "layer_norm".
Result<RmsNormFn> find_rms_norm(std::string_view family, Isa isa);
Result<LayerNormFn> find_layer_norm(std::string_view family, Isa isa);

}  // namespace ktx::kernels
