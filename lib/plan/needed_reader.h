// The least minor version whose readers know all that a plan has: Prefix::min_reader_minor.
// needed_reader.def has a row for each thing that came after the first format, docs/plan-format.md
// the same in words.
#pragma once

#include <cstdint>

#include "lib/plan/plan_contents.h"

namespace ktx::plan {

// For the plan alone, without the plans within it: they have prefixes of their own.
uint32_t needed_reader(const PlanContents& contents);

}  // namespace ktx::plan
