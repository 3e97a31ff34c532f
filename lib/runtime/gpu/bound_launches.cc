#include "lib/runtime/gpu/bound_launches.h"

#include <algorithm>

namespace ktx::runtime {
Status BoundLaunches::add(const program::Launch& launch, Gpu& gpu, const GpuBindContext& context) {
  std::vector<GpuStep*> members;
  std::vector<uint32_t> steps(launch.steps.begin(), launch.steps.end());
  Bound bound{launch.least_tokens, launch.most_tokens,
              launch.needs,        launch.op == FusedOp::Attention,
              std::move(steps),    nullptr};
  if (launch.op) {
    for (uint32_t i : bound.steps) {
      if (!steps_[i].alone.empty()) members.push_back(steps_[i].alone[0].step.get());
    }
  }
  bound.step = KTX_TRY(gpu.make_launch(context, members));
  if (!launch.op) {
    Place& place = steps_[bound.steps[0]];
    place.rows = program_->rows(context.step);
    place.alone.push_back(std::move(bound));
    return {};
  }
  fused_.push_back(std::make_unique<Bound>(std::move(bound)));
  for (uint32_t i : fused_.back()->steps) {
    std::vector<const Bound*>& all = steps_[i].fused;
    const auto shorter = [&](const Bound* other) {
      return other->steps.size() < fused_.back()->steps.size();
    };
    all.insert(std::ranges::find_if(all, shorter), fused_.back().get());
  }
  return {};
}

const BoundLaunches::Bound* BoundLaunches::bound_for(uint32_t index, const GpuShape& shape,
                                                     bool fuses) const {
  const Place& place = steps_[index];
  if (fuses) {
    for (const Bound* bound : place.fused) {
      if (shape.images && bound->of_texts) continue;
      if (bound->least <= shape.tokens && shape.tokens <= bound->most) return bound;
    }
  }
  const int64_t rows = shape.rows(place.rows);
  for (const Bound& bound : place.alone) {
    if (bound.least <= rows && rows <= bound.most) return &bound;
  }
  return nullptr;  // no rows
}

GpuStep* BoundLaunches::find(uint32_t index, const GpuShape& shape, bool fuses) const {
  const Bound* bound = bound_for(index, shape, fuses);
  return bound && bound->steps.back() == index ? bound->step.get() : nullptr;
}

std::vector<uint32_t> BoundLaunches::steps_of_launch(uint32_t index, const GpuShape& shape,
                                                     bool fuses) const {
  const Bound* bound = bound_for(index, shape, fuses);
  if (!bound || bound->steps.back() != index) return {};
  return bound->steps;
}

bool BoundLaunches::need(kernels::KernelNeed need, const plan::RunShape& shape) const {
  const auto needs = [&](const Bound& bound, RowKind rows) {
    const int64_t most = rows == RowKind::Output ? shape.step_outputs : shape.step_tokens;
    return (bound.needs & need) != 0 && bound.least <= most;
  };
  for (const Place& place : steps_) {
    for (const Bound& bound : place.alone) {
      if (needs(bound, place.rows)) return true;
    }
  }
  return std::any_of(fused_.begin(), fused_.end(),
                     [&](const auto& bound) { return needs(*bound, RowKind::Token); });
}

int64_t BoundLaunches::workspace_bytes(const GpuShape& shape) const {
  int64_t most = 0;
  const auto ask = [&](const Bound& bound, RowKind rows) {
    GpuShape own = shape;
    own.tokens = std::min(own.tokens, bound.most);
    own.outputs = std::min(own.outputs, bound.most);
    if (own.rows(rows) >= bound.least) most = std::max(most, bound.step->workspace_bytes(own));
  };
  for (const Place& place : steps_) {
    for (const Bound& bound : place.alone) ask(bound, place.rows);
  }
  for (const auto& bound : fused_) ask(*bound, RowKind::Token);
  return most;
}

}  // namespace ktx::runtime
