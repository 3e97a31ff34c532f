// The work of a device, as the compiler decides it and a plan stores it.
//
//   part    steps 4 to 17 on cuda:0                          handed over at once
//   group   steps 9, 10, 11, 12 are a gate_up                may be computed together
//   launch  kernel gate_up_gemv for steps 9 to 12, 1 token   one kernel over some steps
//
// For each step on a GPU the launches of that step alone cover any number of tokens; a launch of a
// fused op takes their place where its conditions hold. The first launch for the same steps and
// tokens whose conditions hold is used, so those that need what a machine may lack stand before
// those that need nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gpu/gpu_kernels.h"
#include "lib/ops/fused_ops.h"

namespace ktx::program {

// A stretch of steps for one device.
struct Part {
  enum class Kind : uint32_t { Cpu, Gpu, Peer, Network, Reduce };
  Kind kind = Kind::Cpu;
  std::string device;  // "cuda:0", "b/cpu"; of the receiver for Peer and Network
  std::string from;    // Peer, Network: the sender
  int32_t first_step = 0;
  int32_t step_count = 0;
  bool operator==(const Part&) const = default;
};

std::string_view part_kind_name(Part::Kind kind);  // "cpu", "gpu", "peer", "network", "reduce"
std::optional<Part::Kind> part_kind_from_name(std::string_view name);

struct FusedGroup {
  FusedOp op = FusedOp::Products;
  std::vector<int32_t> steps;  // rising; the group runs at the place of the last
  bool operator==(const FusedGroup&) const = default;
};

struct Launch {
  std::optional<FusedOp> op;   // none: a single step
  std::vector<int32_t> steps;  // rising
  std::string kernel;          // a row of kernels/gpu/gpu_kernels.def
  // For a single step: rows of its values. For a fused op: tokens of the pass.
  int64_t least_tokens = 1, most_tokens = kernels::kAnyRows;
  int least_sm = 0, most_sm = kernels::kNewestSm;  // compute capability times ten
  uint32_t needs = kernels::kNeedsNothing;
  // A sequence with fewer tokens in the pass is computed step by step; 0: all alike.
  int64_t least_run = 0;
  bool operator==(const Launch&) const = default;
};

}  // namespace ktx::program
