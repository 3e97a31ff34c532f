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

// Of a plan that has been checked; anew after the names of its devices were exchanged.
std::vector<launches::Part> parts_of(const PlanView& plan);

struct PlanLaunches {
  std::vector<launches::Part> parts;
  std::vector<launches::Launch> launches;
};
// Checks the indices of the records, converts them, and checks the rules of verify_launches.h. The
// steps have passed.
Result<PlanLaunches> read_launches(const PlanView& plan);

}  // namespace ktx::plan
