// What comes with the tokens of a pass beside their ids (batch.h), for steps on GPUs: rows of
// images (given_rows), or patches (given_hidden). They lie beside the activations there.
#pragma once

#include <cstdint>

#include "lib/plan/plan_reader.h"

namespace ktx::plan {

// Floats of such a row; 0: no GPU reads any.
int64_t given_floats_on_gpus(const PlanView& plan);

}  // namespace ktx::plan
