// What placements are compared by: the predicted time of an answer of 512 tokens, a prompt of 4096
// and one of 512 (stream_trial.h).
//
//   512 tokens of decode     5.5 s
//   a prompt of 4096         0.6 s    in passes of the chunk that the placement has
//   a prompt of 512          0.3 s
#pragma once

#include "lib/passes/pass.h"

namespace ktx::passes {

// Of modules that have their devices, with the state's choice of streams.
ConversationTime conversation_time(const CompileState& state);
// Of a prompt alone; `graph` has its launches.
double prompt_seconds(const steps::StepGraph& graph, const CompileState& state, int64_t tokens);

}  // namespace ktx::passes
