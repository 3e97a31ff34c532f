#include "lib/runtime/gpu/joined_steps.h"

namespace ktx::runtime {
namespace {

using Context = std::function<GpuBindContext(uint32_t)>;
using MakeFused = Result<std::unique_ptr<GpuStep>> (Gpu::*)(const Fusion&, std::span<GpuStep* const>,
                                                            const GpuBindContext&);

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

// `joined`: by record, all steps; those of a fusion become null but for the last, which becomes
// the fusion.
Status fuse(GpuState& s, size_t number, const Context& context, MakeFused make,
            std::vector<std::unique_ptr<GpuStep>>& fused, std::vector<GpuStep*>& joined,
            std::vector<Fusion>& used) {
  GpuDevice& device = s.devices[number];
  for (const auto& step : device.steps) joined.push_back(step.get());
  return each_part(s, number, [&](const Part& part) -> Status {
    for (const Fusion& fusion : find_fusions(s.plan, part.first_step, part.step_count)) {
      std::vector<GpuStep*> steps;
      for (uint32_t i : fusion.steps) steps.push_back(device.steps[i].get());
      const uint32_t last = fusion.steps.back();
      auto made = (*device.gpu.*make)(fusion, steps, context(last));
      if (!made) return s.in_step(last, device.name, made.error());
      if (!*made) continue;
      for (uint32_t i : fusion.steps) joined[i] = nullptr;
      fused.push_back(made.take());
      joined[last] = fused.back().get();
      used.push_back(fusion);
    }
    return {};
  });
}

// Runs of launches of one token that the GPU can do in one: within a part, and not across
// transfers.
Status find_runs(GpuState& s, size_t number) {
  GpuDevice& device = s.devices[number];
  device.one_token_runs = device.one_token;
  const auto is_transfer = [&](uint32_t i) {
    return s.plan.steps[i].op == static_cast<uint32_t>(StepOp::Transfer);
  };
  return each_part(s, number, [&](const Part& part) -> Status {
    const uint32_t end = part.first_step + part.step_count;
    for (uint32_t first = part.first_step; first < end; ++first) {
      if (!device.one_token[first]) continue;
      std::vector<uint32_t> records;
      std::vector<GpuStep*> steps;
      for (uint32_t i = first; i < end && !is_transfer(i); ++i) {
        if (!device.one_token[i]) continue;
        records.push_back(i);
        steps.push_back(device.one_token[i]);
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
  GpuDevice& device = s.devices[number];
  KTX_TRY(fuse(s, number, context, &Gpu::make_fused, device.fused, device.one_token, s.fusions));
  KTX_TRY(fuse(s, number, context, &Gpu::make_fused_few, device.fused_few, device.few_tokens,
               s.fusions_few));
  KTX_TRY(fuse(s, number, context, &Gpu::make_fused_many, device.fused_many, device.many_tokens,
               s.fusions_many));
  return find_runs(s, number);
}

}  // namespace ktx::runtime
