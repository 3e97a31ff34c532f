// What a token of a whole text sees (text_attention): positions behind it, too. A window reaches as
// far forward as back, so that with window = 4 a token at 10 sees 7 to 13.
#pragma once

#include <cstdint>

#include "lib/ops/step_attrs.h"

namespace ktx::kernels {

// The last position that a token at `position` sees; those of its text end at `text_end`. The first
// is first_position().
constexpr int64_t last_position(const AttentionAttrs& a, int64_t position, int64_t text_end) {
  if (a.window == 0 || text_end - position < a.window) return text_end;
  return position + a.window - 1;
}

}  // namespace ktx::kernels
