// What a step of each op must look like in itself: the shapes of its operands and weights, the
// ranges of its attributes.
#pragma once

#include <cstdint>

#include "lib/plan/step_check.h"

namespace ktx::plan {

enum class InPlace { No, FirstInput, AnyInput };

struct OpRule {
  StepOp op;
  void (*check)(StepCheck&);  // after the step's own fields were checked
  InPlace in_place;           // may y be the first input, or any?
};

// Null for a number that is no op here.
const OpRule* find_op_rule(uint32_t op);

}  // namespace ktx::plan
