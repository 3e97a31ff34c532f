#include "lib/formats/step_stages.h"

#include <algorithm>

namespace ktx {
namespace {

constexpr StepOp kRowWise[] = {
    StepOp::Embed,  StepOp::RmsNorm, StepOp::Quantize,     StepOp::Rope, StepOp::KvStore,
    StepOp::Swiglu, StepOp::Router,  StepOp::SigmoidScale, StepOp::Add,  StepOp::GatherRows};
// Too small to share out.
constexpr StepOp kPrelude[] = {StepOp::GroupExperts};

// A step looks so many stages back, and a stage takes so many steps: more than any
// layer has, and the cost stays linear in the steps of a hostile plan.
constexpr int64_t kWindow = 12;
constexpr size_t kStageSteps = 64;

template <size_t N>
bool contains(const StepOp (&ops)[N], StepOp op) {
  return std::find(std::begin(ops), std::end(ops), op) != std::end(ops);
}

enum class Conflict { None, ByRow, Full };

Conflict conflict(const StepAccess& a, const StepAccess& b) {
  if (a.memory != b.memory || (!a.write && !b.write)) return Conflict::None;
  if (a.value != b.value) return Conflict::Full;
  if (a.end <= b.begin || b.end <= a.begin) return Conflict::None;
  return a.by_row && b.by_row ? Conflict::ByRow : Conflict::Full;
}

Conflict conflict(const StepFacts& a, const StepFacts& b) {
  if (a.device != b.device) return Conflict::Full;
  Conflict worst = Conflict::None;
  for (const StepAccess& x : a.accesses) {
    for (const StepAccess& y : b.accesses) worst = std::max(worst, conflict(x, y));
  }
  return worst;
}

struct Grouping {
  std::span<const StepFacts> steps;
  std::vector<Stage> stages;

  size_t size(const Stage& stage) const {
    size_t count = stage.prelude.size();
    for (const auto& part : stage.parts) count += part.size();
    return count;
  }

  // The part that takes runs of rows of this kind through row-wise steps.
  bool is_row_part(const std::vector<int32_t>& part, RowKind rows) const {
    return is_row_wise(steps[part[0]].op) && steps[part[0]].rows == rows;
  }

  bool touches(const StepFacts& step, const Stage& stage) const {
    const auto meets = [&](int32_t other) {
      return conflict(step, steps[other]) != Conflict::None;
    };
    return std::any_of(stage.prelude.begin(), stage.prelude.end(), meets) ||
           std::any_of(stage.parts.begin(), stage.parts.end(), [&](const auto& part) {
             return std::any_of(part.begin(), part.end(), meets);
           });
  }

  // Whether a step that depends on this stage may still be in it: after its
  // prelude, or row by row after its row-wise steps.
  bool may_follow(const StepFacts& step, const Stage& stage) const {
    const bool row_wise = is_row_wise(step.op), prelude = contains(kPrelude, step.op);
    for (int32_t other : stage.prelude) {
      if (step.device != steps[other].device) return false;
    }
    for (const auto& part : stage.parts) {
      for (int32_t other : part) {
        const Conflict found = conflict(step, steps[other]);
        if (found == Conflict::None) continue;
        if (prelude || found == Conflict::Full) return false;
        if (!row_wise || !is_row_part(part, step.rows)) return false;
      }
    }
    return true;
  }

  void put(int32_t index, Stage& stage) {
    const StepFacts& step = steps[index];
    if (contains(kPrelude, step.op)) {
      stage.prelude.push_back(index);
      return;
    }
    if (is_row_wise(step.op)) {
      for (auto& part : stage.parts) {
        if (!is_row_part(part, step.rows)) continue;
        part.push_back(index);
        return;
      }
    }
    stage.parts.push_back({index});
  }

  void add(int32_t index) {
    const StepFacts& step = steps[index];
    const auto count = static_cast<int64_t>(stages.size());
    int64_t at = std::max<int64_t>(0, count - kWindow);  // the first stage it may be in
    for (int64_t i = count - 1; i >= at; --i) {
      if (!touches(step, stages[i])) continue;
      at = may_follow(step, stages[i]) ? i : i + 1;
      break;
    }
    while (at < count && size(stages[at]) >= kStageSteps) ++at;
    if (at == count) stages.emplace_back();
    put(index, stages[at]);
  }
};

}  // namespace

bool is_row_wise(StepOp op) {
  return contains(kRowWise, op);
}

bool reads_by_row(StepOp op) {
  return is_row_wise(op) && op != StepOp::GatherRows;
}

std::vector<Stage> find_stages(std::span<const StepFacts> steps) {
  Grouping grouping{steps, {}};
  for (size_t i = 0; i < steps.size(); ++i) grouping.add(static_cast<int32_t>(i));
  return std::move(grouping.stages);
}

}  // namespace ktx
