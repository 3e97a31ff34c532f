// Element-wise ops. Each element depends on its own inputs only: the same bits at
// any place in a row, in any range.
//
//   swiglu        y = gate / (1 + exp(-gate)) * up
//   add           y = a + b                           (y may be a or b)
//   sigmoid_scale y = x * (1 / (1 + exp(-gate[t])))   (one gate per token; y may be x)
//   gather_rows   y[r] = x[rows[r]]
//
// Strides in elements; token ranges are rows of y. y may be an input where said (for
// swiglu: gate or up), else they do not overlap.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct SwigluArgs {
  const float* gate = nullptr;
  int64_t gate_stride = 0;
  const float* up = nullptr;
  int64_t up_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using SwigluFn = void (*)(const SwigluArgs&);

struct AddArgs {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using AddFn = void (*)(const AddArgs&);

struct SigmoidScaleArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* gate = nullptr;  // gate of token t at gate[t * gate_stride]
  int64_t gate_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using SigmoidScaleFn = void (*)(const SigmoidScaleArgs&);

struct GatherRowsArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* rows = nullptr;  // [R]
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  int64_t token_begin = 0;  // of R
  int64_t token_end = 0;
};
using GatherRowsFn = void (*)(const GatherRowsArgs&);

// Families: "swiglu", "add", "sigmoid_scale", "gather_rows".
Result<SwigluFn> find_swiglu(std::string_view family, Isa isa);
Result<AddFn> find_add(std::string_view family, Isa isa);
Result<SigmoidScaleFn> find_sigmoid_scale(std::string_view family, Isa isa);
Result<GatherRowsFn> find_gather_rows(std::string_view family, Isa isa);

}  // namespace ktx::kernels
