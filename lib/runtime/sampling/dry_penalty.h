// DRY: a penalty on the tokens that would go on with a repetition.
//
//   ... a b c d ... a b c _      d would make it 4 tokens: its logit loses multiplier * base^(3 -
//   2)
//
// A repetition does not reach over a breaker (a newline, a quote), so that the frame of a chat or
// a list costs nothing.
#pragma once

#include <cstdint>
#include <span>

#include "lib/runtime/sampling/sampling_options.h"

namespace ktx::runtime {

// `history`: all tokens of the text, oldest first; ids outside of `logits` are ignored. Takes time
// in proportion to the window.
void apply_dry_penalty(const DryOptions& options, std::span<const int32_t> history,
                       std::span<float> logits);

}  // namespace ktx::runtime
