// The search for `--ctx max`, of the compiler (lib/passes/placement/choose_context.cc) and of the
// runtime (lib/runtime/engine/largest_ctx.h).
#pragma once

#include <cstdint>

#include "lib/plan/memory.h"
#include "lib/support/result.h"

namespace ktx::plan {

// The largest context up to `most` tokens, or in whole blocks of the cache, for which
// `fits(tokens)`, a Result<bool>, is true; 0 where none is. If a size fits, so do smaller ones.
template <class Fits>
Result<int64_t> largest_context(int64_t most, const Fits& fits) {
  if (KTX_TRY(fits(most))) return most;
  int64_t low = 0, high = (most - 1) / kKvBlockTokens;  // blocks: fits, and none above does
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (KTX_TRY(fits(middle * kKvBlockTokens))) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * kKvBlockTokens;
}

}  // namespace ktx::plan
