#include "lib/plan/state_layout.h"

#include <algorithm>
#include <numeric>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_hosts.h"
#include "lib/program/program.h"

namespace ktx::plan {

void StateLayout::add(int32_t state, int64_t floats) {
  if (state < 0) return;
  if (static_cast<int64_t>(sizes_.size()) <= state) sizes_.resize(static_cast<size_t>(state) + 1);
  sizes_[static_cast<size_t>(state)] = (floats + 15) / 16 * 16;
}

int64_t StateLayout::offset(int32_t state) const {
  return std::accumulate(sizes_.begin(), sizes_.begin() + state, int64_t{0});
}

namespace {

// Calls visit(state, floats) for the states of a device's steps; "": of all.
template <class Visit>
void for_each_state(const PlanView& plan, std::string_view device, const Visit& visit) {
  for (const program::Step& step : plan.program->steps) {
    if (!device.empty() && step.device != device) continue;
    const KeptUse use = kept_by(step.attrs);
    if (use.state >= 0) visit(use.state, use.state_floats);
  }
}

}  // namespace

StateLayout state_layout(const PlanView& plan) {
  return state_layout(plan, "");
}

StateLayout state_layout(const PlanView& plan, std::string_view device) {
  StateLayout layout;
  for_each_state(plan, device, [&](int32_t state, int64_t floats) { layout.add(state, floats); });
  return layout;
}

std::vector<StatePart> state_parts(const PlanView& plan, std::string_view device) {
  const StateLayout here = state_layout(plan, device), all = state_layout(plan);
  const auto bytes = [](int64_t floats) { return static_cast<uint64_t>(floats) * sizeof(float); };
  std::vector<StatePart> parts;
  for_each_state(plan, device, [&](int32_t state, int64_t floats) {
    parts.push_back({bytes(here.offset(state)), bytes(all.offset(state)), bytes(floats)});
  });
  return parts;
}

std::vector<StatePart> state_parts_of_host(const PlanView& plan, size_t host) {
  std::vector<StatePart> parts;
  for (const std::string& device : plan_devices(plan)) {
    if (host_of(plan, device) != host) continue;
    const std::vector<StatePart> own = state_parts(plan, device);
    parts.insert(parts.end(), own.begin(), own.end());
  }
  std::ranges::sort(parts, {}, &StatePart::among_all);
  return parts;
}

}  // namespace ktx::plan
