#include "lib/runtime/gpu/joined_steps.h"

namespace ktx::runtime {
namespace {

using Context = std::function<GpuBindContext(uint32_t)>;

// Of the parts of the plan on this GPU.
template <class Call>
Status each_part(const GpuState& s, size_t number, Call call) {
  for (const Part& part : s.parts.parts) {
    if (part.kind == Part::Kind::Gpu && part.device == static_cast<int>(number)) {
      KTX_TRY(call(part));
    }
  }
  return {};
}

// All steps by record; those of a fusion become null but for the last, which becomes the fusion.
Status fuse(GpuState& s, size_t number, const Context& context, PassSize size) {
  GpuDevice& device = s.devices[number];
  JoinedSteps& joined = device.joined_for(size);
  for (const auto& step : device.steps) joined.steps.push_back(step.get());
  return each_part(s, number, [&](const Part& part) -> Status {
    for (const Fusion& fusion : find_fusions(s.plan, part.first_step, part.step_count)) {
      std::vector<GpuStep*> steps;
      for (uint32_t i : fusion.steps) steps.push_back(device.steps[i].get());
      const uint32_t last = fusion.steps.back();
      auto made = device.gpu->make_fused(size, fusion, steps, context(last));
      if (!made) return s.in_step(last, device.name, made.error());
      if (!*made) continue;
      for (uint32_t i : fusion.steps) joined.steps[i] = nullptr;
      joined.fused.push_back(made.take());
      joined.steps[last] = joined.fused.back().get();
      s.fusions[static_cast<size_t>(size)].push_back(fusion);
    }
    return {};
  });
}

// Runs of launches of one token that the GPU can do in one: within a part, and not across
// transfers.
Status find_runs(GpuState& s, size_t number) {
  GpuDevice& device = s.devices[number];
  const std::vector<GpuStep*>& one_token = device.joined_for(PassSize::One).steps;
  device.one_token_runs = one_token;
  const auto is_transfer = [&](uint32_t i) {
    return s.plan.steps[i].op == static_cast<uint32_t>(StepOp::Transfer);
  };
  return each_part(s, number, [&](const Part& part) -> Status {
    const uint32_t end = part.first_step + part.step_count;
    for (uint32_t first = part.first_step; first < end; ++first) {
      if (!one_token[first]) continue;
      std::vector<uint32_t> records;
      std::vector<GpuStep*> steps;
      for (uint32_t i = first; i < end && !is_transfer(i); ++i) {
        if (!one_token[i]) continue;
        records.push_back(i);
        steps.push_back(one_token[i]);
      }
      auto made = device.gpu->make_run(steps);
      if (!made) return s.in_step(first, device.name, made.error());
      GpuRun run = made.take();
      if (run.count == 0) continue;
      for (size_t i = 0; i < run.count; ++i) device.one_token_runs[records[i]] = nullptr;
      device.one_token_runs[records[run.count - 1]] = run.step.get();
      device.runs.push_back(std::move(run.step));
      first = records[run.count - 1];
    }
    return {};
  });
}

}  // namespace

Status join_steps(GpuState& s, size_t number, const Context& context) {
  for (PassSize size : kPassSizes) KTX_TRY(fuse(s, number, context, size));
  return find_runs(s, number);
}

}  // namespace ktx::runtime
