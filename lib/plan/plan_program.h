// Converts the steps, parts and launches of a plan to the form that lib/launches works on, and
// back.
#pragma once

#include <span>
#include <vector>

#include "lib/launches/program.h"
#include "lib/plan/plan_contents.h"
#include "lib/plan/plan_reader.h"

namespace ktx::plan {

// The step records have passed their verifier.
launches::StepList step_list(const PlanView& plan);

// The records of what the compiler decided.
void add_launches(PlanContents& contents, std::span<const launches::Part> parts,
                  std::span<const launches::Launch> launches);

// Checks the indices of the records of parts and launches, converts all, and checks the rules of
// verify_launches.h. The steps have passed.
Result<launches::Program> read_program(const PlanView& plan);
// Of records that have been checked; anew after the names of devices were exchanged.
launches::Program program_of(const PlanView& plan);

}  // namespace ktx::plan
