// The launches of a plan on one GPU, bound, and which of them a pass takes. The plan lists
// several for a step or a group, by tokens; those that this machine lacks are left out before.
//
//   BoundLaunches launches(program);
//   for (launch of the plan) launches.add(launch, gpu, context);
//   if (GpuStep* step = launches.find(index, shape, /*fuses=*/true)) step->launch(shape, ...);
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

class BoundLaunches {
 public:
  BoundLaunches() = default;
  explicit BoundLaunches(const program::Program& program)
      : program_(&program), steps_(program.steps.size()) {}

  // In the order of the plan, but fused ops after all single steps.
  Status add(const program::Launch& launch, Gpu& gpu, const GpuBindContext& context);

  // What is launched at the place of step `index`; null where another launch does that step, or
  // there is nothing to do. `fuses`: fused ops take the place of their steps.
  GpuStep* find(uint32_t index, const GpuShape& shape, bool fuses) const;
  // The steps that this launch does: none where another one does the step.
  std::vector<uint32_t> steps_of_launch(uint32_t index, const GpuShape& shape, bool fuses) const;

  // Whether passes of this size have a launch that needs this.
  bool need(kernels::KernelNeed need, const plan::RunShape& shape) const;

  // The most workspace that any launch needs, in passes of this shape and of fewer tokens.
  int64_t workspace_bytes(const GpuShape& shape) const;

 private:
  struct Bound {
    int64_t least = 1, most = 0;  // rows, or tokens of a fused op
    uint32_t needs = 0;
    bool of_texts = false;  // not for passes with tokens of images
    std::vector<uint32_t> steps;
    std::unique_ptr<GpuStep> step;
  };
  struct Place {
    std::vector<Bound> alone;
    std::vector<const Bound*> fused;  // that include the step, the longest first
    RowKind rows = RowKind::Token;
  };
  const Bound* bound_for(uint32_t index, const GpuShape& shape, bool fuses) const;

  const program::Program* program_ = nullptr;
  std::vector<Place> steps_;                   // by step
  std::vector<std::unique_ptr<Bound>> fused_;  // in the order of the plan
};

}  // namespace ktx::runtime
