#include "lib/program/fused/group_search.h"

#include <algorithm>
#include <utility>

#include "lib/program/fused/fused_rules.h"

namespace ktx::program {

GroupSearch::GroupSearch(const Program& program, const Uses& uses, int32_t first, int32_t count,
                         const Steps& may)
    : program_(program),
      uses_(uses),
      first_(first),
      end_(first + count),
      may_(may),
      free_(may.begin(), may.end()) {}

std::vector<FusedGroup> GroupSearch::run() {
  for (int turn : {1, 2, 3}) {
    if (turn == 3) free_ = {may_.begin(), may_.end()};
    for (int32_t i : may_) {
      for (const FusedRule& rule : fused_rules()) {
        if (rule.turn == turn && is(i, rule.from)) rule.find(*this, i);
      }
    }
  }
  std::sort(found_.begin(), found_.end(), [](const FusedGroup& a, const FusedGroup& b) {
    return std::pair(a.steps.back(), a.steps.size()) < std::pair(b.steps.back(), b.steps.size());
  });
  return std::move(found_);
}

bool GroupSearch::is_product(int32_t i) const {
  return is(i, StepOp::Matmul) && attrs<MatmulAttrs>(i).accumulate == 0;
}

// It also writes whole rows: a step that reads its value reads what it wrote and nothing else (not
// so before a prediction layer, which reads two norms side by side).
bool GroupSearch::is_row_norm(int32_t i) const {
  if (!is(i, StepOp::RmsNorm) || attrs<RmsNormAttrs>(i).groups != 1) return false;
  const View& y = step(i).outputs[0];
  return y.width == row_elements(program_.values[static_cast<size_t>(y.value)]);
}

std::optional<int32_t> GroupSearch::writer(int32_t value, int32_t i) const {
  const Steps& all = uses_.writers[value];
  const auto next = std::lower_bound(all.begin(), all.end(), i);
  if (next == all.begin() || *(next - 1) < first_) return std::nullopt;
  return *(next - 1);
}

bool GroupSearch::only(int32_t value, const Steps& steps) const {
  const auto among = [&](int32_t i) {
    return std::find(steps.begin(), steps.end(), i) != steps.end();
  };
  return std::all_of(readers(value).begin(), readers(value).end(), among);
}

std::optional<GroupSearch::Steps> GroupSearch::readers_behind(int32_t i) const {
  const int32_t value = out(i);
  if (rows(value) == RowKind::Output) return std::nullopt;
  Steps behind;
  for (int32_t reader : readers(value)) {
    if (reader == i) continue;
    if (reader < i || reader >= end_) return std::nullopt;
    behind.push_back(reader);
  }
  if (behind.empty()) return std::nullopt;
  return behind;
}

void GroupSearch::add(FusedOp op, Steps steps, const std::vector<int32_t>& read,
                      const std::vector<int32_t>& written, bool reads_first) {
  std::sort(steps.begin(), steps.end());
  if (steps.back() - steps.front() >= kMostSpan) return;
  std::set<int32_t> reads, writes;  // buffers
  for (int32_t value : read) reads.insert(buffer(value));
  for (int32_t value : written) writes.insert(buffer(value));
  for (int32_t b : writes) {
    if (reads.count(b) && !reads_first) return;
  }
  // A residual is read by the thread that writes it.
  for (int32_t i : steps) {
    if (adds_to_residual(i)) reads.insert(buffer(out(i)));
  }
  for (int32_t i = steps.front(); i < steps.back(); ++i) {
    if (std::binary_search(steps.begin(), steps.end(), i)) continue;
    for (const View& o : step(i).inputs) {
      if (o.value != kAbsent && writes.count(buffer(o.value))) return;
    }
    for (const View& o : step(i).outputs) {
      if (reads.count(buffer(o.value)) || writes.count(buffer(o.value))) return;
    }
  }
  for (int32_t i : steps) free_.erase(i);
  found_.push_back({op, std::move(steps)});
}

bool GroupSearch::adds_to_residual(int32_t i) const {
  return (step(i).op == StepOp::ExpertsDown && attrs<ExpertsAttrs>(i).accumulate != 0) ||
         (step(i).op == StepOp::Add && in(i, 0) == out(i));
}

}  // namespace ktx::program
