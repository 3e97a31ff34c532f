// State-space layers, Mamba-1 (SelectiveScanAttrs in lib/ops/step_attrs.h says what they compute).
//
// A call takes all tokens of one sequence in a pass, in their order, and a range of channels, which
// do not depend on each other. The state before the tokens is at state_in (null: zeros, before the
// first token), that behind them goes to state_out; the two do not overlap.
//
// Numerics: as of state_space.h; sums over a channel's state rise over its numbers. F32.
//
// Gu & Dao 2023 (arXiv 2312.00752).
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct SelectiveScanArgs {
  const float* x = nullptr;   // [T, channels], of the first of the tokens
  int64_t x_stride = 0;       // elements
  const float* dt = nullptr;  // [T, channels]
  int64_t dt_stride = 0;
  const float* in_out = nullptr;  // [T, input | output]
  int64_t in_out_stride = 0;
  float* y = nullptr;  // [T, channels]
  int64_t y_stride = 0;
  const float* decay = nullptr;  // [state_dim, channels]: the weight's columns are rows here
  const float* skip = nullptr;   // [channels]
  SelectiveScanAttrs attrs;
  const float* state_in = nullptr;  // [state_dim, channels]
  float* state_out = nullptr;
  int64_t tokens = 0;  // > 0
  int64_t channel_begin = 0;
  int64_t channel_end = 0;
};
using SelectiveScanFn = void (*)(const SelectiveScanArgs&);

// Family: "selective_scan".
Result<SelectiveScanFn> find_selective_scan(std::string_view family, Isa isa);

}  // namespace ktx::kernels
