#include "lib/runtime/gpu/kernel_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/runtime/gpu/gpu_graphs.h"
#include "lib/runtime/gpu/gpu_queue.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

// Steps that make the whole numbers which `step` reads (the chosen experts), the first one
// first. Values take turns in memory, so that by now others may lie there.
void add_sources(const program::Program& program, uint32_t step, std::vector<uint32_t>& out) {
  const auto writes = [&](uint32_t index, program::ValueId value) {
    const std::vector<program::View>& outputs = program.steps[index].outputs;
    return std::ranges::find(outputs, value, &program::View::value) != outputs.end();
  };
  for (const program::View& input : program.steps[step].inputs) {
    if (input.value == program::kAbsent || program.values[input.value].type != ValueType::I32) {
      continue;
    }
    uint32_t source = step;
    while (source > 0 && !writes(source - 1, input.value)) --source;
    if (source == 0 || std::find(out.begin(), out.end(), source - 1) != out.end()) continue;
    add_sources(program, source - 1, out);
    out.push_back(source - 1);
  }
}

// Seconds of a graph of the steps, in this order; the best of some runs.
Result<double> time_graph(GpuState& s, const Part& part, std::span<const uint32_t> steps) {
  constexpr int kRuns = 3;
  GpuDevice& device = s.devices[part.device];
  const std::unique_ptr<GpuGraph> graph = KTX_TRY(capture(device, [&]() -> Status {
    for (uint32_t step : steps) KTX_TRY(queue_step(s, part, step, s.shape));
    return {};
  }));
  double best = INFINITY;
  for (int run = 0; run <= kRuns; ++run) {
    const Timer timer;
    KTX_TRY(device.gpu->launch(*graph));
    KTX_TRY(device.gpu->finish());
    if (run > 0) best = std::min(best, timer.seconds());
  }
  return best;
}

}  // namespace

// Every launch is of another step than the one before, so that weights come from memory
// as they do in a run. What a step needs before it is launched with it, and timed again
// alone.
Result<KernelTime> time_steps(GpuState& s, const Part& part, std::span<const uint32_t> steps) {
  constexpr int64_t kLaunches = 64;
  if (s.shape.tokens == 0) return Error{"no step has run yet; run a batch first"};
  const int64_t rounds = std::max<int64_t>(1, kLaunches / std::ssize(steps));
  std::vector<uint32_t> sources, all;
  for (int64_t round = 0; round < rounds; ++round) {
    for (uint32_t step : steps) {
      std::vector<uint32_t> before;
      add_sources(s.program, step, before);
      sources.insert(sources.end(), before.begin(), before.end());
      all.insert(all.end(), before.begin(), before.end());
      all.push_back(step);
    }
  }
  KTX_TRY(s.devices[part.device].gpu->finish());
  double seconds = KTX_TRY(time_graph(s, part, all));
  if (!sources.empty()) seconds -= KTX_TRY(time_graph(s, part, sources));
  return KernelTime{std::max(seconds, 1e-9) / static_cast<double>(rounds * std::ssize(steps)),
                    s.shape.tokens, s.shape.outputs, s.runs};
}

std::vector<uint32_t> steps_of_launch(const GpuState& s, uint32_t step) {
  const bool fuses = s.fuses(s.shape);
  for (const GpuDevice& device : s.devices) {
    if (device.name != s.program.steps[step].device) continue;
    return device.launches.steps_of_launch(step, s.shape, fuses);
  }
  return {step};
}

}  // namespace ktx::runtime
