#include "lib/runtime/gpu/step_bytes.h"

#include <algorithm>

namespace ktx::runtime {

int64_t step_weight_bytes(const program::Program& program, const program::Step& step,
                          int64_t tokens) {
  // One sequence's states are read and written.
  int64_t sum = 8 * kept_by(step.attrs).state_floats;
  for (const program::BlobId number : step.weights) {
    if (number == program::kAbsent) continue;
    const program::Blob& blob = program.blobs[number];
    const auto bytes = static_cast<int64_t>(program::blob_bytes(blob));
    if (step.op == StepOp::Embed || step.op == StepOp::EmbedRow) {
      sum += bytes / std::max<int64_t>(blob.rows, 1) * tokens;
    } else if (const auto* ngrams = std::get_if<EmbedNgramsAttrs>(&step.attrs)) {
      sum += bytes / std::max<int64_t>(blob.rows, 1) * std::min(blob.rows, tokens * ngrams->rows());
    } else if (const auto* experts = std::get_if<ExpertsAttrs>(&step.attrs)) {
      sum += bytes / std::max<int64_t>(blob.matrices, 1) *
             std::min<int64_t>(blob.matrices, tokens * experts->top_k);
    } else {
      sum += bytes;
    }
  }
  return sum;
}

}  // namespace ktx::runtime
