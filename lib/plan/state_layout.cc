#include "lib/plan/state_layout.h"

#include <numeric>

#include "lib/formats/step_attrs.h"

namespace ktx::plan {

void StateLayout::add(int32_t state, int64_t floats) {
  if (state < 0) return;
  if (static_cast<int64_t>(sizes_.size()) <= state) sizes_.resize(static_cast<size_t>(state) + 1);
  sizes_[static_cast<size_t>(state)] = (floats + 15) / 16 * 16;
}

int64_t StateLayout::offset(int32_t state) const {
  return std::accumulate(sizes_.begin(), sizes_.begin() + state, int64_t{0});
}

StateLayout state_layout(const PlanView& plan) {
  StateLayout layout;
  for (const StepRecord& step : plan.steps) {
    const StepAttrs attrs =
        attrs_from_bytes(static_cast<StepOp>(step.op), plan.attrs.data() + step.attrs_offset);
    layout.add(state_of(attrs), state_floats_of(attrs));
  }
  return layout;
}

}  // namespace ktx::plan
