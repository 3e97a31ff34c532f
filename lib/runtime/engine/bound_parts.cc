#include "lib/runtime/engine/bound_parts.h"

#include <algorithm>

#include "lib/plan/device_memory.h"

namespace ktx::runtime {
namespace {

int index_of(const std::vector<std::string>& gpus, std::string_view device) {
  const auto found = std::find(gpus.begin(), gpus.end(), device);
  return found == gpus.end() ? -1 : static_cast<int>(found - gpus.begin());
}

bool has_transfer(const plan::PlanView& plan, const Part& part) {
  const auto steps = plan.steps.subspan(part.first_step, part.step_count);
  return std::any_of(steps.begin(), steps.end(), [](const plan::StepRecord& step) {
    return step.op == static_cast<uint32_t>(StepOp::Transfer);
  });
}

// A CPU part must not begin before the copies queued so far are over: those into its inputs, and
// those out of memory that it may write again.
void find_waits(BoundParts& bound) {
  std::vector<int> last(bound.gpus.size(), -1);
  for (size_t i = 0; i < bound.parts.size(); ++i) {
    Part& part = bound.parts[i];
    if (part.kind == Part::Kind::Gpu && part.crosses) last[part.device] = static_cast<int>(i);
    if (part.kind != Part::Kind::Cpu) continue;
    for (int& wait : last) {
      if (wait >= 0) {
        part.waits_for.push_back(wait);
        bound.parts[wait].awaited = true;
      }
      wait = -1;  // a later part waits for later copies only
    }
  }
}

// The steps that are in a part: all but the transfer of a GPU's logits.
size_t steps_in_parts(std::span<const launches::Part> parts) {
  return parts.empty() ? 0 : parts.back().first_step + parts.back().step_count;
}

}  // namespace

BoundParts bind_parts(const plan::PlanView& plan, std::span<const launches::Part> parts) {
  BoundParts bound;
  const std::vector<std::string> devices = plan::plan_devices(plan);
  bound.gpus.assign(devices.begin() + 1, devices.end());
  for (const launches::Part& part : parts) {
    Part& own = bound.parts.emplace_back();
    own.kind = static_cast<Part::Kind>(part.kind);
    own.device = index_of(bound.gpus, part.device);
    own.from = index_of(bound.gpus, part.from);
    own.first_step = static_cast<uint32_t>(part.first_step);
    own.step_count = static_cast<uint32_t>(part.step_count);
    own.crosses = own.kind == Part::Kind::Gpu && has_transfer(plan, own);
  }
  if (steps_in_parts(parts) < plan.steps.size()) {
    bound.logits_step = static_cast<uint32_t>(plan.steps.size()) - 1;
    const uint32_t value = plan.inputs(plan.steps.back())[0].value;
    bound.logits_device =
        index_of(bound.gpus, plan::buffer_devices(plan)[plan.values[value].buffer]);
  }
  find_waits(bound);
  return bound;
}

bool BoundParts::has_cpu() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Part& part) { return part.kind == Part::Kind::Cpu; });
}

}  // namespace ktx::runtime
