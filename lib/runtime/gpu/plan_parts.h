// Partitions of the plan: stretches of steps for one device each, which the host issues in
// order.
//
//   part 0  cpu      embed
//   part 1  cuda:0   x from the CPU, attention, router; three values to the CPU
//   part 2  cuda:0   shared experts                          (queued behind part 1)
//   part 3  cpu      routed experts            waits for part 1, not for part 2
//   part 4  cuda:0   their sum from the CPU, the next layer ...
//
// A GPU's part is queued and can be captured as a graph. It ends after values for the CPU, so
// that the CPU waits for these alone. Transfers from GPU to GPU are parts of their own. The
// last transfer, of a GPU's logits, is in no part, because the wanted rows differ from run to
// run (gpu_logits.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"

namespace ktx::runtime {

struct Part {
  enum class Kind { Cpu, Gpu, Peer } kind = Kind::Cpu;
  int device = -1;  // Gpu, Peer: index in PlanParts::gpus, of the receiver for Peer
  int from = -1;    // Peer: the sender
  uint32_t first_step = 0;
  uint32_t step_count = 0;
  bool crosses = false;  // Gpu: holds copies to or from the CPU
  // Cpu: the parts whose copies must be over before it begins, at most one per GPU.
  std::vector<int> waits_for;
  bool awaited = false;  // named in a waits_for
};

struct PlanParts {
  std::vector<std::string> gpus;  // "cuda:0", ...
  std::vector<Part> parts;
  // The transfer step of the logits and the GPU that computes them; kNone where the CPU does.
  uint32_t logits_step = plan::kNone;
  int logits_device = -1;
};

PlanParts cut_parts(const plan::PlanView& plan);

// "cuda:3" -> 3; -1 for anything else.
int gpu_number(std::string_view device);

}  // namespace ktx::runtime
