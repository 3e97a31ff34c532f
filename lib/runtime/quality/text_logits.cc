#include "lib/runtime/quality/text_logits.h"

#include <algorithm>

#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/logits_rows.h"
#include "lib/runtime/engine/text_chunks.h"

namespace ktx::runtime {

int64_t TextLogits::rows_of_pass() const {
  return std::min(engine_.chunk_tokens(), engine_.max_outputs());
}

Result<Forward> TextLogits::compute(std::span<const int32_t> tokens, int64_t first,
                                    const std::atomic<bool>* stop, const Visit& visit) {
  const auto size = static_cast<int64_t>(tokens.size());
  first = std::min(first, size);
  if (first > 0) {
    const BatchItem head{&sequence_, tokens.first(static_cast<size_t>(first)), Want::None};
    const Forward result = KTX_TRY(forward_in_chunks(engine_, head, {.stop = stop}));
    if (result != Forward::Done) return result;
  }
  const ForwardWatch watch{stop, {}};
  for (int64_t begin = first; begin < size;) {
    const int64_t count = std::min(rows_of_pass(), size - begin);
    const BatchItem item{&sequence_,
                         tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                         Want::All};
    const Forward result = KTX_TRY(engine_.forward({&item, 1}, {}, &watch));
    if (result != Forward::Done) return result;
    KTX_TRY(visit_logits(engine_, 0, count, [&](int64_t i, std::span<const float> logits) {
      visit(begin + i, logits);
    }));
    begin += count;
  }
  return Forward::Done;
}

}  // namespace ktx::runtime
