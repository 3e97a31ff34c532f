// Checks every index, range, count and size of every record of a plan, except the operands of steps
// (check_step_records.h). What passes both can be used without further checks.
//
// The view's spans lie inside their sections already; nothing in them is trusted. Messages name the
// record and the numbers, but no file.
#pragma once

#include "lib/formats/shape_limits.h"
#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

Status verify_records(const PlanView& plan);

// The bytes that one row of a value takes in its buffer.
uint64_t value_row_bytes(const ValueRecord& value);

}  // namespace ktx::plan
