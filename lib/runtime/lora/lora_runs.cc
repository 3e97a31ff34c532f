#include "lib/runtime/lora/lora_runs.h"

namespace ktx::runtime {
namespace {

void add_row(int64_t row, const LoraChoice& choice, std::vector<LoraRun>& runs) {
  if (choice.empty()) return;
  if (!runs.empty() && runs.back().first + runs.back().rows == row &&
      (runs.back().choice == &choice || *runs.back().choice == choice)) {
    ++runs.back().rows;
    return;
  }
  runs.push_back({row, 1, &choice});
}

}  // namespace

void find_lora_runs(std::span<const BatchItem> items, Batch& batch) {
  for (std::vector<LoraRun>& runs : batch.lora_runs) runs.clear();
  const auto choice = [&](int64_t token) -> const LoraChoice& {
    return items[static_cast<size_t>(batch.sequence[token])].sequence->lora();
  };
  for (int64_t t = 0; t < batch.tokens; ++t) {
    add_row(t, choice(t), batch.lora_runs[static_cast<size_t>(RowKind::Token)]);
  }
  for (int64_t r = 0; r < batch.outputs; ++r) {
    add_row(r, choice(batch.output_rows[r]), batch.lora_runs[static_cast<size_t>(RowKind::Output)]);
  }
}

}  // namespace ktx::runtime
