// The checks behind "what open() accepts can be used without further checks":
// every index, range, count and size of every record of a plan, but for what an
// op asks of its operands (check_step_records.h).
//
// The view's spans lie inside their sections already; nothing in them is trusted.
// Messages name the record and the numbers, but no file.
#pragma once

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::plan {

// Limits of a sane plan. Wide enough for any model to come, small enough that
// products of two of them fit 63 bits.
inline constexpr int64_t kMaxDim = int64_t{1} << 26;       // width of a value or a weight
inline constexpr int64_t kMaxRowElems = int64_t{1} << 28;  // of a value's whole row
inline constexpr int64_t kMaxBlobElems = int64_t{1} << 48;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;         // heads or experts
inline constexpr int64_t kMaxKvTokenElems = int64_t{1} << 24;  // of a slot

Status verify_records(const PlanView& plan);

}  // namespace ktx::plan
