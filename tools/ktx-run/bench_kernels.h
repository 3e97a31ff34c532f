// bench --kernels: the roofline of each kind of GPU kernel.
#pragma once

#include <string>

#include "lib/runtime/engine/engine.h"

namespace ktx::tools {

// Times the kernels of the last forward(), at its number of tokens, each kind by itself
// inside a graph over all layers:
//
//   | kernel                       | each | us each | us/step |   time | GB/s | % of bw | TFLOP/s |
//   | matmul q_proj Q4_K 4096x4096 |   32 |    4.10 |     131 |  7.1 % | 2302 |    48.0 |     8.2 |
//
// Bytes are those of weights, of states, and of the cache that attention reads. The last row is
// their sum; what a step takes beyond it goes into the gaps between
// kernels and into the host. Overwrites the activations. Fails for a plan without a GPU.
Result<std::string> kernels_table(runtime::Engine& engine, double bytes_per_second);

}  // namespace ktx::tools
