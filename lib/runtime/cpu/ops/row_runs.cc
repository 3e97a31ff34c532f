#include "lib/runtime/cpu/ops/row_runs.h"

#include <cstdint>

#include "kernels/matmul/experts.h"
#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/cpu_step.h"

namespace ktx::runtime {
namespace {

// Bytes of an item. Shorter items leave the hardware no stream to follow; longer ones gain
// nothing, and a preempted thread delays the others by one whole item.
constexpr int64_t kLeastBytes = 64 << 10, kMostBytes = 2 << 20;

int64_t round_up(int64_t rows, int64_t multiple) {
  return ceil_div(std::max<int64_t>(rows, 1), multiple) * multiple;
}

}  // namespace

void RowRuns::add_round(int64_t rows, int64_t each, int64_t most_runs) {
  const int64_t runs = std::min(most_runs, ceil_div(rows - rows_, each));
  if (runs <= 0) return;
  rounds_[used_++] = {count_, rows_, each};
  count_ += runs;
  rows_ = std::min(rows, rows_ + runs * each);
}

RowRuns RowRuns::even(int64_t rows, int64_t each) {
  RowRuns runs;
  runs.add_round(rows, std::max<int64_t>(each, 1), INT64_MAX);
  return runs;
}

RowRuns RowRuns::falling(int64_t rows, const Limits& limits) {
  const int64_t multiple = std::max<int64_t>(limits.multiple, 1);
  const int64_t takers = std::max<int64_t>(limits.takers, 1);
  const int64_t least = round_up(limits.least, multiple);
  const int64_t most = std::max(round_up(limits.most, multiple), least);
  RowRuns runs;
  while (runs.rows_ < rows) {
    const int64_t left = rows - runs.rows_, share = left / (2 * takers);
    const int64_t each = std::clamp(round_up(share, multiple), least, most);
    if (each == least || runs.used_ + 1 == kRounds) {
      runs.add_round(rows, each, INT64_MAX);
    } else {
      // As long as shares are above the longest run, rounds of it are one.
      runs.add_round(rows, each, std::max(takers, left / most - 2 * takers));
    }
  }
  return runs;
}

bool is_stream(const kernels::WeightMatrix& w, int64_t tokens) {
  if (kernels::matmul_q8_takes(w.dtype)) return tokens <= kernels::kStreamTokens;
  return tokens == 1 && in_panels(w.layout);
}

RowRuns stream_runs(const StreamWork& work) {
  const int64_t item_row_bytes = std::max<int64_t>(work.w.row_bytes, 1) * work.products;
  const int64_t items_of_rows = work.matrices / work.products;
  const int64_t multiple = std::max<int64_t>(work.multiple, 1);
  const int64_t longest = kernels::kExpertsMaxRows / multiple * multiple;
  if (work.threads == 1) return RowRuns::even(work.w.rows, longest);
  const int64_t least = round_up(kLeastBytes / item_row_bytes + 1, multiple);
  const int64_t most =
      std::max(least, std::min(round_up(kMostBytes / item_row_bytes, multiple), longest));
  if (work.shares > 1) {  // runs of one length, so that as many are each share's
    const int64_t eighth = work.matrices * work.w.rows / (8 * work.threads * work.products);
    return RowRuns::even(work.w.rows, std::clamp(round_up(eighth, multiple), least, most));
  }
  return RowRuns::falling(work.w.rows,
                          {least, most, multiple, ceil_div(work.threads, items_of_rows)});
}

}  // namespace ktx::runtime
