// Measures what GPUs of one machine copy to each other, through the driver (libcuda.so.1), without
// a CUDA library.
#pragma once

#include <vector>

#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::target {

// Fills in `peer_write_gbps`, of the first GPU into the memory of another one where all reach each
// other's, and `peer_both_gbps`, each way while two GPUs copy at once, by way of the host where
// they do not; of several pairs the least. Takes some 0.3 s and 512 MiB of each GPU; an error says
// what failed. The GPUs are the driver's, in its order; fewer than two: nothing is done.
Status measure_gpu_links(std::vector<GpuTarget>& gpus);

}  // namespace ktx::target
