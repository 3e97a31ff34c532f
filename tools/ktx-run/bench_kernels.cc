#include "tools/ktx-run/bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/shape_text.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/gpu/step_bytes.h"
#include "lib/support/text_table.h"
#include "tools/ktx-run/bench_steps.h"

namespace ktx::tools {
namespace {

struct Kind {
  std::string name;
  std::vector<uint32_t> steps;  // of the program
  runtime::KernelTime time;     // of one
  double all() const { return time.seconds * static_cast<double>(steps.size()); }
};

// Steps of one kind have the same kernel and shape, on the same GPU.
std::string kind_of(const program::Program& program, const program::Step& step) {
  std::string name = step_kind(step);
  // A bias that a router may do without is a weight of none.
  const program::Blob* const blob = program.weight(step, 0);
  if (blob != nullptr && blob->rows > 1) {
    name += fmt::format(" {} {}", ktx::name(blob->dtype), shape_text(blob->cols, blob->rows));
  }
  return name;
}

// The first of the steps of a launch that has weights names it; of several "(3 steps)".
std::string kind_of(const program::Program& program, const std::vector<uint32_t>& launch) {
  uint32_t named = launch.back();
  for (uint32_t i : launch) {
    const program::Step& step = program.steps[i];
    const StepOp op = step.op;
    const bool small = op == StepOp::RmsNorm || op == StepOp::Rope || op == StepOp::Router;
    if (!small && program.weight(step, 0) != nullptr) {
      named = i;
      break;
    }
  }
  std::string name = kind_of(program, program.steps[named]);
  if (launch.size() > 1) name += fmt::format(" ({} steps)", launch.size());
  return name;
}

std::vector<Kind> gpu_kinds(const runtime::Engine& engine) {
  const program::Program& program = *engine.plan().program;
  std::vector<Kind> kinds;
  std::map<std::pair<std::string_view, std::string>, size_t> places;
  for (uint32_t i = 0; i < program.steps.size(); ++i) {
    const program::Step& step = program.steps[i];
    if (step.device == "cpu" || step.op == StepOp::Transfer) continue;
    const std::vector<uint32_t> launch = engine.runner().steps_of_launch(i);
    if (launch.empty()) continue;
    std::string name = kind_of(program, launch);
    const auto [place, added] = places.try_emplace({step.device, name}, kinds.size());
    if (added) kinds.push_back({std::move(name), {}, {}});
    kinds[place->second].steps.push_back(i);
  }
  return kinds;
}

}  // namespace

Result<std::string> kernels_table(runtime::Engine& engine, double bytes_per_second) {
  const program::Program& program = *engine.plan().program;
  std::vector<Kind> kinds = gpu_kinds(engine);
  if (kinds.empty()) return Error{"--kernels: the plan has no steps on a GPU; --steps times a CPU"};
  double all = 0;
  for (Kind& kind : kinds) {
    kind.time = KTX_TRY(engine.runner().time_steps(kind.steps));
    all += kind.all();
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.all() > b.all(); });
  const auto share = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 0; };
  TextTable table({{fmt::format("kernel, {} tokens", kinds[0].time.tokens), TextTable::Left},
                   {"each"},
                   {"us each"},
                   {"us/step"},
                   {"% of time"},
                   {"GB/s"},
                   {"% of bw"},
                   {"TFLOP/s"}});
  for (const Kind& kind : kinds) {
    const bool per_output = is_per_output(program, program.steps[kind.steps[0]]);
    const int64_t rows = per_output ? kind.time.outputs : kind.time.tokens;
    double bytes = 0, work = 0;
    for (uint32_t i : engine.runner().steps_of_launch(kind.steps[0])) {
      bytes += static_cast<double>(runtime::step_weight_bytes(program, program.steps[i], rows));
      work += step_ops(program, program.steps[i]) * static_cast<double>(rows);
      const CacheWork cache =
          cache_work(program, program.steps[i], engine.kv_type(), kind.time.runs);
      bytes += cache.bytes, work += cache.ops;
    }
    const double rate = bytes / kind.time.seconds, ops = work / kind.time.seconds;
    table.add(
        {kind.name, fmt::format("{}", kind.steps.size()),
         fmt::format("{:.2f}", 1e6 * kind.time.seconds), fmt::format("{:.1f}", 1e6 * kind.all()),
         fmt::format("{:.1f}", share(kind.all(), all)), fmt::format("{:.0f}", rate / 1e9),
         fmt::format("{:.1f}", share(rate, bytes_per_second)), fmt::format("{:.1f}", ops / 1e12)});
  }
  table.add({"sum", "", "", fmt::format("{:.1f}", 1e6 * all)});
  return table.markdown();
}

}  // namespace ktx::tools
