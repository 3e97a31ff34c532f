// The two ops of a gated delta net that have a state (CausalConvAttrs, DeltaRuleAttrs in
// lib/ops/step_attrs.h say what they compute).
//
// A call takes all tokens of one sequence in a pass, in their order, and a range of channels or
// columns, which do not depend on each other. The state before the tokens is at state_in (null:
// zeros, before the first token), that behind them goes to state_out; the two do not overlap, so
// that a pass that fails changes nothing.
//
// Numerics: everything of a token is computed from the state before it in one order, so results
// do not depend on how a text was cut into passes, nor on how columns are shared out. F32.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct CausalConvArgs {
  const float* x = nullptr;  // [T, channels], of the first of the tokens
  int64_t x_stride = 0;      // elements
  float* y = nullptr;        // likewise
  int64_t y_stride = 0;
  const float* weight = nullptr;  // [taps, channels], the oldest input's first
  const float* bias = nullptr;    // [channels] or null
  CausalConvAttrs attrs;
  const float* state_in = nullptr;  // [attrs.past(), channels], the oldest input first
  float* state_out = nullptr;
  int64_t tokens = 0;  // > 0
  int64_t channel_begin = 0;
  int64_t channel_end = 0;
};
using CausalConvFn = void (*)(const CausalConvArgs&);

struct DeltaRuleArgs {
  const float* x = nullptr;  // [T, q | k | v], of the first of the tokens
  int64_t x_stride = 0;
  const float* b = nullptr;  // [T, value_heads], or [T, 2 * value_heads] without a
  int64_t b_stride = 0;
  const float* a = nullptr;  // [T, attrs.decays()] or null
  int64_t a_stride = 0;
  float* y = nullptr;  // [T, value_heads * head_dim]
  int64_t y_stride = 0;
  const float* decay = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [attrs.decays()]
  DeltaRuleAttrs attrs;
  const float* state_in = nullptr;  // [value_heads, head_dim of k, head_dim of v]
  float* state_out = nullptr;
  int64_t tokens = 0;  // > 0
  int64_t head = 0;
  int64_t column_begin = 0;  // of v
  int64_t column_end = 0;
};
using DeltaRuleFn = void (*)(const DeltaRuleArgs&);

Result<CausalConvFn> find_causal_conv(std::string_view family, Isa isa);
Result<DeltaRuleFn> find_delta_rule(std::string_view family, Isa isa);

}  // namespace ktx::kernels
