// State-space layers, Mamba-2 (StateSpaceAttrs in lib/ops/step_attrs.h says what they compute).
//
// A call takes all tokens of one sequence in a pass, in their order, and a range of a head's
// columns, which do not depend on each other. The state before the tokens is at state_in (null:
// zeros, before the first token), that behind them goes to state_out; the two do not overlap, so
// that a pass that fails changes nothing.
//
// Numerics: everything of a token is computed from the state before it in one order, so results
// do not depend on how a text was cut into passes, nor on how columns are shared out. F32.
//
// This is the recurrent form of Dao & Gu 2024 (arXiv 2405.21060), for prompts, too. Their chunked
// form, products of matrices, gives other bits where chunks begin elsewhere, and has two thirds of
// the operations of a step that takes 2 to 4 % of a prompt (bench/2026-11-families.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct StateSpaceArgs {
  const float* x = nullptr;   // [T, values | input | output], of the first of the tokens
  int64_t x_stride = 0;       // elements
  const float* dt = nullptr;  // [T, heads]
  int64_t dt_stride = 0;
  float* y = nullptr;  // [T, heads * head_dim]
  int64_t y_stride = 0;
  const float* decay = nullptr;    // [heads]
  const float* skip = nullptr;     // [heads]
  const float* dt_bias = nullptr;  // [heads]
  StateSpaceAttrs attrs;
  const float* state_in = nullptr;  // [heads, state_dim, head_dim]
  float* state_out = nullptr;
  int64_t tokens = 0;  // > 0
  int64_t head = 0;
  int64_t column_begin = 0;  // of head_dim
  int64_t column_end = 0;
};
using StateSpaceFn = void (*)(const StateSpaceArgs&);

Result<StateSpaceFn> find_state_space(std::string_view family, Isa isa);

}  // namespace ktx::kernels
