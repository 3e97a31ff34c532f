// Values that go from a GPU of one host to a GPU of another one, and nowhere else. Where GPUs have
// links (gpu_link.h), such a value has a place in the GPU's memory instead of its host's: the steps
// that would copy it to the host and from there copy it within the GPU, and what crosses between
// the hosts goes from the one place to the other.
//
//   x            cuda:0       the residual stream of host a
//   x@cpu        cpu          a place in the memory of a's cuda:0
//   x@b/cpu      b/cpu        a place in the memory of b's cuda:0
//   x@b/cuda:0   b/cuda:0
//
// All hosts find the same boundaries, by the plan alone, and the same passes, by their batch alone.
// A pass of few tokens, or of one of each text, goes by way of host memory: it is a graph, and a
// message of its size is faster there (a token of an 8B over two H200 of one machine: 1.64 ms, by
// NCCL 2.0; 2026-11). A prompt of 512 tokens takes 36 ms by way of host memory, 25.6 by NCCL, 24.7
// on one GPU.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/bound_parts.h"

namespace ktx::runtime {

// A part of the network whose values are all of this kind, of one GPU on each side. Between two
// hosts all such parts are of the same GPUs.
struct GpuBoundary {
  uint32_t part = 0;             // in BoundParts
  std::string sender, receiver;  // devices, as the plan has them where it is read
};

bool is_linked(const Batch& batch);

std::vector<GpuBoundary> gpu_boundaries(const plan::PlanView& plan, const BoundParts& parts);

// The values of these boundaries on this host, and the GPU that holds them.
struct BoundaryValue {
  uint32_t value = 0;
  std::string gpu;
};
// Bytes of a value in the largest pass.
uint64_t most_value_bytes(const program::Value& value, const plan::RunShape& shape);

std::vector<BoundaryValue> boundary_values(const plan::PlanView& plan, const BoundParts& parts,
                                           const std::vector<GpuBoundary>& boundaries);

}  // namespace ktx::runtime
