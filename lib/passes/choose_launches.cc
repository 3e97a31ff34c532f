// Chooses the kernels of GPUs for each step and group, by number of tokens, and for every
// generation of GPUs (lib/program/launch_choice.h).
#include "lib/program/launch_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/prefill_device.h"
#include "lib/passes/pass.h"
#include "lib/program/program.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

// The generations of the table, with the SMs of the GPUs that --target describes. The GPUs of
// this machine do not count, so that plans are alike wherever they are made.
std::vector<kernels::GpuMachine> machines_of(const target::Target& target) {
  const auto all = kernels::gpu_generations();
  std::vector<kernels::GpuMachine> machines(all.begin(), all.end());
  for (const target::GpuTarget* gpu : all_gpus(target)) {
    if (target.name.empty() || gpu->multiprocessors == 0) continue;
    const int sm = kernels::gpu_machine(target::generation(*gpu)).sm;
    for (kernels::GpuMachine& machine : machines) {
      if (machine.sm == sm) machine.multiprocessors = gpu->multiprocessors;
    }
  }
  return machines;
}

}  // namespace

Status choose_launches(CompileState& state) {
  state.program.launches =
      program::choose_launches(state.program, machines_of(state.target), state.prefer);
  // A rule keeps the experts of a layer on the CPU in prompts, too.
  std::set<std::string_view> kept;
  for (const ir::Module& module : state.modules.modules) {
    if (prefill_device(state.rules, module) == PrefillDevice::Cpu) kept.insert(module.path);
  }
  std::erase_if(state.program.launches, [&](const program::Launch& launch) {
    const program::Step& step = state.program.steps[static_cast<size_t>(launch.steps[0])];
    return target::is_cpu(step.device) && kept.contains(step.module);
  });
  state.program.groups = program::groups_of(state.program.launches);
  return {};
}

}  // namespace ktx::passes
