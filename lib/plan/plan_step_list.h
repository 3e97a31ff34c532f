// Converts the steps, parts and launches of a plan to the form that lib/launches works on.
#pragma once

#include <span>
#include <vector>

#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

// The step records have passed their verifier.
launches::StepList step_list(const PlanView& plan);

// The records of what the compiler decided.
void add_launches(PlanContents& contents, std::span<const launches::Part> parts,
                  std::span<const launches::Launch> launches);

// Records with sound indices (verify_launch_records).
std::vector<launches::Part> parts_of(const PlanView& plan);
std::vector<launches::Launch> launches_of(const PlanView& plan);

// Indices of the records, then the rules of verify_launches.h. The steps have passed.
Status verify_launch_records(const PlanView& plan);

}  // namespace ktx::plan
