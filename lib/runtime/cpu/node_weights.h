// Chooses the NUMA node whose memory holds each CPU weight: for a plan on the CPU alone, or for
// the CPU's part of a plan with GPUs, usually the routed experts.
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

// In step order, each weight once. Empty for fewer than two shares.
std::vector<NodeRun> split_weights(const plan::PlanView& plan, int shares);

}  // namespace ktx::runtime
