// Chooses the NUMA node whose memory holds each weight of the CPU: of a plan for it alone, or of
// its part beside GPUs, usually the routed experts.
//
// The matrix of a product is cut by rows into as many equal ranges as there are nodes; of
// experts, each expert's matrix is, so that all nodes have work whichever experts are chosen.
// The executor gives a node's threads the items of the same rows first.
//
//   2 nodes, gate of 128 experts of 768 rows:  rows 0..383 of each | rows 384..767
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lib/plan/plan_reader.h"

namespace ktx::runtime {

struct NodeRun {
  std::span<const std::byte> bytes;
  int share = 0;
};

// In the order of the steps; each weight once. Empty for fewer than two shares.
std::vector<NodeRun> split_weights(const plan::PlanView& plan, int shares);

}  // namespace ktx::runtime
