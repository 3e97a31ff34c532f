// The parts of a plan (lib/program/launch.h) with what the runtime needs to pass them on: the
// GPUs by number, and which part waits for which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/program/program.h"

namespace ktx::runtime {

struct Part {
  // Elsewhere: all work of other hosts, and what they send each other.
  enum class Kind { Cpu, Gpu, Peer, Network, Reduce, Elsewhere } kind = Kind::Cpu;
  // The receiver. Gpu, Peer, Reduce: index in BoundParts::gpus; Network: number of a host.
  int device = -1;
  int from = -1;  // Peer, Network: the sender
  uint32_t first_step = 0;
  uint32_t step_count = 0;
  bool crosses = false;  // Gpu: holds copies to or from the CPU
  // Cpu, Network: the parts whose copies must be over before it begins, at most one per GPU.
  std::vector<int> waits_for;
  bool awaited = false;  // named in a waits_for

  std::span<const program::Step> steps(const program::Program& program) const {
    return std::span(program.steps).subspan(first_step, step_count);
  }
};

struct BoundParts {
  std::vector<std::string> gpus;  // "cuda:0", ...
  std::vector<Part> parts;
  // The transfer step of the logits and the GPU that computes them; kNone where the CPU does.
  uint32_t logits_step = plan::kNone;
  int logits_device = -1;

  bool has_cpu() const;  // whether a part is the CPU's
};

BoundParts bind_parts(const plan::PlanView& plan);  // of a PlanFile

}  // namespace ktx::runtime
