// The rules for a single step of each op: its operands, their shapes, the ranges of its attributes.
// Behind the compiler's passes and for plans alike (lib/program/step_verifier.h).
#pragma once

#include <cstdint>

#include "lib/ops/op_check.h"

namespace ktx {

// Number of operands, as a list of step_ops.def names them: those that may be absent and stand
// at the end may also be left out.
bool operand_count_fits(std::string_view operands, int64_t count);

// Checks one step; the first mistake is in s.error. A kv_store step marks its slot as stored.
void check_op(OpCheck& s);

// Notes in s.flow who wrote the step's outputs, after it was checked.
void note_outputs(OpCheck& s, int64_t step);

}  // namespace ktx
