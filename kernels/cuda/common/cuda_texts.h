// Steps with a state of each sequence: what their launchers share. States are in slots of one piece
// of memory, read before and written behind the segments of a text (state_segment.h). A slot that
// is written is read by no text of the same launch.
#pragma once

#include <cstdint>

#include "kernels/delta_net/state_segment.h"

namespace ktx::kernels {

// The texts of a launch. All but `texts`, `most_tokens` and `one_token_each` is in GPU memory.
struct CudaTexts {
  const int32_t* begin = nullptr;  // [texts + 1]: segments [begin[i], begin[i + 1]) are text i's
  const StateSegment* segments = nullptr;
  int64_t texts = 0;            // those behind the pass's own have no segments
  int64_t most_tokens = 0;      // no text has more
  bool one_token_each = false;  // row i is text i's: of texts without segments y becomes zeros
};

// The states of one step.
struct CudaStates {
  float* slots = nullptr;   // that of slot 0
  int64_t slot_floats = 0;  // from slot to slot
};

}  // namespace ktx::kernels
