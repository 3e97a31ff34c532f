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

}  // namespace

Status join_steps(GpuState& s, size_t number, const Context& context) {
  for (PassSize size : kPassSizes) KTX_TRY(fuse(s, number, context, size));
  return {};
}

}  // namespace ktx::runtime
