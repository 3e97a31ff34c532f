// Chooses the kernels of GPUs for each step and group, by number of tokens, and for every
// generation of GPUs (lib/launches/launch_choice.h).
#include "lib/launches/launch_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/pass.h"
#include "lib/steps/graph_step_list.h"
#include "lib/target/gpu_generation.h"

namespace ktx::passes {
namespace {

// The generations of the table, with the SMs of the GPUs that --target describes. The GPUs of
// this machine do not count, so that plans are alike wherever they are made.
std::vector<kernels::GpuMachine> machines_of(const target::Target& target) {
  const auto all = kernels::gpu_generations();
  std::vector<kernels::GpuMachine> machines(all.begin(), all.end());
  for (const target::GpuTarget& gpu : target.gpus) {
    if (target.name.empty() || gpu.multiprocessors == 0) continue;
    const int sm = kernels::gpu_machine(target::generation(gpu)).sm;
    for (kernels::GpuMachine& machine : machines) {
      if (machine.sm == sm) machine.multiprocessors = gpu.multiprocessors;
    }
  }
  return machines;
}

}  // namespace

Status choose_launches(CompileState& state) {
  const launches::StepList list = steps::step_list(state.steps);
  state.steps.launches = launches::choose_launches(list, state.steps.parts, state.steps.groups,
                                                   machines_of(state.target), state.prefer);
  return {};
}

}  // namespace ktx::passes
