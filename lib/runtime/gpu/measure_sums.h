// Measures sums over GPUs of one machine (gpu_sums.h), as kernels make them.
#pragma once

#include <memory>
#include <span>

#include "lib/runtime/gpu/gpu.h"

namespace ktx::runtime {

struct SumTimes {
  double seconds_16k = 0;  // of a sum of 16 KiB over all
  double seconds_mib = 0;  // of 1 MiB
  // Bytes a second that each GPU takes from the others in large sums; 0: they do not reach each
  // other's memory.
  double read = 0;
};

// Sums in graphs of each GPU, one behind the other; the best of some rounds. All zero where kernels
// cannot add up. `gpus` are open and have nothing queued, and are of no use to an engine later.
// `large_bytes`: of large sums, a MiB at least.
Result<SumTimes> measure_sums(std::span<const std::unique_ptr<Gpu>> gpus,
                              int64_t large_bytes = 32 << 20);

}  // namespace ktx::runtime
