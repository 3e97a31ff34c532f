// Measures a GPU through its driver (libcuda.so.1), without a CUDA library.
#pragma once

#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::target {

// Fills in `pcie_gbps`, copies of pinned host memory to the GPU, and `read_gbps`, what a copy
// within its memory reads and writes. Takes some 0.3 s and 1 GiB of the GPU; an error says what
// failed. `number`: in the driver's order, as of detect_gpus().
Status measure_gpu(int number, GpuTarget& gpu);

}  // namespace ktx::target
