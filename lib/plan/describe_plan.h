// Describes a plan for `ktx-run inspect`: tables for people, with one unit in each column of sizes,
// and one JSON object with the same contents for programs.
//
//   segments
//     device  kind     offset       size  weights
//     cpu     weights  0x4000  17.32 GiB      531
#pragma once

#include <string>

#include "lib/plan/plan_reader.h"

namespace ktx::plan {

std::string plan_tables(const PlanView& plan);
std::string plan_json(const PlanView& plan);  // ends with a newline

}  // namespace ktx::plan
