// Finds the devices of all modules.
//
// Rules that name a device win, also for the modules around theirs (placed_by_rules.h); `cuda:0-3`
// spreads layers over these GPUs. Everything else, and modules with `auto`, are placed by bytes: on
// as few GPUs of the target as hold all of it, or divided over all where that is faster
// (split_over_gpus.h). Where all are too few, layers are spread over them
// in equal shares, then the embedding and the experts of as many layers as still fit, of one more
// layer as many experts as fit; the rest stays on the CPU. With a profile of experts the most used
// ones of all layers go to the GPUs instead, where that is faster. Whether room is kept to stream
// the experts of the CPU in long prompts, how much of it (stream_experts.h), and which of the two
// it is, is decided by the price of each such placement (price.h).
//
// Where the target has several hosts, layers are spread over these (spread_over_hosts.h), and each
// has its layers on its GPUs and its CPU as one machine has all; the head is on the first host.
// `cuda:0-3` and `cuda:*` are GPUs of the first host.
#pragma once

#include <string>
#include <vector>

#include "lib/passes/cost/priced_model.h"
#include "lib/passes/team_trial.h"

namespace ktx::passes {

struct FoundPlacement {
  Placement placement;
  std::vector<StreamTrial> trials;    // the best for each slots; empty: there was no choice
  std::vector<TeamTrial> teams = {};  // what GPUs would divide; empty: there was no choice
};

// Less what cannot run (runnable_placement.h), with the best way to stream experts that fits
// (stream_experts.h).
FoundPlacement find_placement(const PricedModel& model, DiagSink& diags);

}  // namespace ktx::passes
