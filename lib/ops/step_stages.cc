#include "lib/ops/step_stages.h"

#include <algorithm>

#include "lib/formats/act_q8.h"

namespace ktx {
namespace {

// A step looks so many stages back, and a stage takes so many steps: more than any
// layer has, and the cost stays linear in the steps of a hostile plan.
constexpr int64_t kWindow = 12;
constexpr size_t kStageSteps = 64;

// Whether two steps must keep their order, and what makes it enough to keep it for
// each row, or for each column.
struct Conflict {
  bool any = false;
  bool by_row = true;
  bool by_column = true;
};

bool by_column(const StepFacts& step, const StepAccess& access) {
  return is_column_wise(step.op) || (access.write && is_product(step.op));
}

Conflict conflict(const StepFacts& a, const StepFacts& b) {
  if (a.device != b.device) return {true, false, false};
  Conflict all;
  for (const StepAccess& x : a.accesses) {
    for (const StepAccess& y : b.accesses) {
      if (x.memory != y.memory || (!x.write && !y.write)) continue;
      if (x.value == y.value && (x.end <= y.begin || y.end <= x.begin)) continue;
      const bool same = x.value == y.value;
      all.any = true;
      all.by_row = all.by_row && same && x.by_row && y.by_row;
      all.by_column = all.by_column && same && x.begin == y.begin && x.end == y.end &&
                      by_column(a, x) && by_column(b, y);
    }
  }
  return all;
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

  // Whether a run of columns may go through this part and then through the step. An
  // int8 form is made only of what no other thread is going to read as floats.
  bool is_column_part(const std::vector<int32_t>& part, const StepFacts& step) const {
    const StepFacts& first = steps[part[0]];
    if (!is_product(first.op) || !is_column_wise(step.op)) return false;
    if (first.rows != step.rows || first.inner_rows != step.inner_rows) return false;
    if (!info(step.op).has(kSharedScales)) return first.op == StepOp::Matmul;
    return first.op == StepOp::ExpertsGateUp || part.size() > 1;
  }

  bool touches(const StepFacts& step, const std::vector<int32_t>& part) const {
    return std::any_of(part.begin(), part.end(),
                       [&](int32_t other) { return conflict(step, steps[other]).any; });
  }
  bool touches(const StepFacts& step, const Stage& stage) const {
    return touches(step, stage.prelude) ||
           std::any_of(stage.parts.begin(), stage.parts.end(),
                       [&](const auto& part) { return touches(step, part); });
  }

  // Whether a step that depends on this stage may still be in it: after its prelude,
  // row by row after its row-wise steps, or by columns after products.
  bool may_follow(const StepFacts& step, const Stage& stage) const {
    for (int32_t other : stage.prelude) {
      if (step.device != steps[other].device) return false;
    }
    bool by_row = is_row_wise(step.op), by_column = true;
    int expert_parts = 0, column_parts = 0;
    for (const auto& part : stage.parts) {
      Conflict found;
      for (int32_t other : part) {
        const Conflict one = conflict(step, steps[other]);
        if (!one.any) continue;
        found = {true, found.by_row && one.by_row, found.by_column && one.by_column};
      }
      if (!found.any) continue;
      by_row = by_row && found.by_row && is_row_part(part, step.rows);
      by_column = by_column && found.by_column && is_column_part(part, step);
      column_parts += 1;
      expert_parts += steps[part[0]].op == StepOp::ExpertsGateUp;
    }
    if (info(step.op).has(kPrelude)) return column_parts == 0;
    return by_row || (by_column && (expert_parts == 0 || column_parts == 1));
  }

  // The parts that the step goes on with by columns become one.
  bool put_behind_products(int32_t index, Stage& stage) {
    const StepFacts& step = steps[index];
    std::vector<int32_t>* joined = nullptr;
    for (auto& part : stage.parts) {
      if (!is_column_part(part, step) || !touches(step, part)) continue;
      if (!joined) {
        joined = &part;
        continue;
      }
      joined->insert(joined->end(), part.begin(), part.end());
      part.clear();
    }
    if (!joined) return false;
    joined->push_back(index);
    std::erase_if(stage.parts, [](const auto& part) { return part.empty(); });
    return true;
  }

  void put(int32_t index, Stage& stage) {
    const StepFacts& step = steps[index];
    if (info(step.op).has(kPrelude)) {
      stage.prelude.push_back(index);
      return;
    }
    if (put_behind_products(index, stage)) return;
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
    const int64_t first = std::max<int64_t>(0, count - kWindow);
    int64_t at = first;  // the first stage it may be in
    bool found = false;
    for (int64_t i = count - 1; i >= first && !found; --i) {
      found = touches(step, stages[i]);
      if (found) at = may_follow(step, stages[i]) ? i : i + 1;
    }
    // One that needs nothing of these stages stays: grouped again from the end of the window, it
    // would move on, and its stage would no longer be that of its place.
    if (!found && first > 0) at = count - 1;
    while (at < count && size(stages[at]) >= kStageSteps) ++at;
    if (at == count) stages.emplace_back();
    put(index, stages[at]);
  }
};

}  // namespace

bool is_row_wise(StepOp op) {
  return info(op).has(kRowWise);
}

bool reads_by_row(StepOp op) {
  return is_row_wise(op) && !info(op).has(kReadsAnyRow);
}

bool is_column_wise(StepOp op) {
  return info(op).has(kColumnWise);
}

int64_t column_group(StepOp op) {
  return info(op).has(kSharedScales) ? kActQ8Shared : 32;
}

bool is_product(StepOp op) {
  return info(op).has(kProduct);
}

int32_t quantize_inner_rows(const QuantizeAttrs& attrs, int64_t x_width, int64_t xq_width) {
  const bool dense =
      x_width == xq_width && attrs.rows_per_token > 0 &&
      (attrs.rows_per_token == 1 || int64_t{attrs.rows_per_token} * attrs.stride == x_width);
  return dense ? attrs.rows_per_token : 0;
}

int32_t inner_rows(StepOp op, const StepAttrs& attrs, int64_t x_width, int64_t y_width) {
  if (const auto* quantize = std::get_if<QuantizeAttrs>(&attrs)) {
    return quantize_inner_rows(*quantize, x_width, y_width);
  }
  return op == StepOp::ExpertsGateUp ? std::get<ExpertsAttrs>(attrs).top_k : 1;
}

std::vector<Stage> find_stages(std::span<const StepFacts> steps) {
  Grouping grouping{steps, {}};
  for (size_t i = 0; i < steps.size(); ++i) grouping.add(static_cast<int32_t>(i));
  return std::move(grouping.stages);
}

}  // namespace ktx
