// The steps of a model with all that the compiler decided about who computes them: what a plan
// that is open keeps of its records (lib/plan/plan_program.h).
#pragma once

#include <vector>

#include "lib/launches/launch.h"
#include "lib/launches/step_list.h"
#include "lib/launches/streams.h"

namespace ktx::launches {

struct Program {
  StepList list;
  std::vector<Part> parts;
  std::vector<Launch> launches;
  std::vector<Stream> streams;  // streams_of() these
};

}  // namespace ktx::launches
