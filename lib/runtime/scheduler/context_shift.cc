// Texts that fill their context and go on (ContextShift).
//
//   capacity 8, keep 2:   a b c d e f g h i   ->   a b f g h i     half of c to h is dropped
//
// What stays is computed anew at its new places; llama.cpp rotates the keys instead, which saves
// that pass, but keys and values keep what they took from the dropped tokens. Here the answer
// is that of the shorter text. Half of the context at a time costs one token computed for each
// token that is generated.
#include <algorithm>

#include "lib/runtime/scheduler/running_request.h"

namespace ktx::runtime {

bool BatchScheduler::may_shift(const Running& running) const {
  // What is dropped could be a part of an image.
  return running.request.shift && running.request.max_tokens >= 0 && !running.request.embed &&
         running.images.empty();
}

// Those whose next token has no place any more.
void BatchScheduler::shift_contexts() {
  for (const auto& running : running_) {
    const auto total = static_cast<int64_t>(running->tokens.size());
    if (total <= capacity_ || !may_shift(*running)) continue;
    const ContextShift& shift = *running->request.shift;
    // Bounded, so that no request makes every token compute the whole context.
    const int64_t wanted_keep = shift.keep < 0 ? running->result.prompt_tokens : shift.keep;
    const int64_t keep = std::clamp<int64_t>(wanted_keep, 0, capacity_ * 3 / 4);
    const int64_t behind = total - keep;
    const int64_t wanted_drop = shift.drop > 0 ? std::max(shift.drop, behind / 8) : behind / 2;
    const int64_t drop = std::clamp<int64_t>(wanted_drop, total - capacity_, behind - 1);
    const auto first = running->tokens.begin() + keep;
    running->tokens.erase(first, first + drop);
    running->result.dropped_tokens += drop;
    place_anew(*running);
  }
}

}  // namespace ktx::runtime
