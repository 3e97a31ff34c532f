// Spreads the layers of a model over the hosts of a target: contiguous runs, in the hosts' order.
//
//   a (300 GB/s)  embedding, layers 0..18, head
//   b (200 GB/s)  layers 19..31
//
//   b (GPU of 24 GiB)         layers 19..31, as many as fit on its GPU, the others on its CPU
//
// Hosts work one after the other on a token, and at the same time on several requests, or on chunks
// of a prompt. So that none waits for another, the one that takes longest should take as little as
// possible: each has layers in proportion to its rate of reading, as far as its memory holds them.
// GPUs hold what fits them, routed experts and the embedding last (fill_gpus.h), and the
// host's CPU the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/ir/module_graph.h"
#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

struct HostRoom {
  double rate = 1;        // bytes a second, of the CPU
  double room_bytes = 0;  // 0: not known, any number fits
  struct Gpu {
    double rate = 1;
    double room_bytes = 0;
  };
  std::vector<Gpu> gpus = {};  // the fastest first
};
struct LayerLoad {
  double read_bytes = 0;  // for a token
  double kept_bytes = 0;  // weights, keys and values
  // The part of these bytes that GPUs take last.
  double late_read_bytes = 0;
  double late_kept_bytes = 0;
};

// The host of each layer, rising. `first`: what the first host has besides. Where the memory of all
// is too small it does not count (check-memory reports it).
std::vector<int> spread_layers(std::span<const LayerLoad> layers, const LayerLoad& first,
                               std::span<const HostRoom> hosts);

// Puts these modules, which no rule has placed and which are on the first CPU, on hosts; all that
// is in no layer stays there.
void spread_over_hosts(const PricedModel& model, const MemoryFormulas* formulas,
                       const std::vector<const ir::Module*>& open, Placement& placement);

}  // namespace ktx::passes
