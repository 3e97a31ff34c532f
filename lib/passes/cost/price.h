// What placements are ranked by: the predicted time of an answer of 512 tokens, a prompt of 4096
// and one of 512 (stream_trial.h).
//
//   512 tokens of decode     5.5 s
//   a prompt of 4096         0.6 s    in passes of the chunk that the placement has
//   a prompt of 512          0.3 s
//
// A function of the model and the placement alone; memory is another one (estimate.h).
#pragma once

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

ConversationTime price(const PricedModel& model, const Placement& placement);

}  // namespace ktx::passes
