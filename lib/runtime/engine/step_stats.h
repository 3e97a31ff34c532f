// Time per step of a run, by modules of the user's model.
//
//   engine->runner().enable_times(true); ... run ...
//   for (const StepTime& row : engine->runner().step_times())
//     // "model.layers.0.self_attn.q_proj"  "matmul"  0.8 ms  12 runs
//
// Off by default: two clock readings per step are about 1 % of a small model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/runtime/engine/batch.h"

namespace ktx::runtime {

// The time of a step since timing was switched on.
struct StepTotals {
  uint32_t step = 0;  // of the program
  int64_t runs = 0;
  int64_t tokens = 0;
  double seconds = 0;  // of the clock; steps side by side share theirs by their work
  int64_t weight_bytes = 0;
  double busy_seconds = 0;  // that threads worked at it, all of them together; 0 on a GPU
};

struct StepTime : StepTotals {
  std::string_view module;  // lives as long as the engine
  std::string_view op;
  int32_t layer = -1;
};

// One launch of a kind of GPU step, without what the host adds.
struct KernelTime {
  double seconds = 0;
  int64_t tokens = 0;  // rows of values with one per token, padding included
  int64_t outputs = 0;
  std::vector<SequenceRun> runs;  // of the batch
};

}  // namespace ktx::runtime
