// A link between two GPUs by NCCL: a communicator of two ranks; rank 0 sends. It does not
// block: the host may give it up at any point.
#pragma once

#include <memory>

#include "lib/runtime/cuda/nccl.h"
#include "lib/runtime/gpu/gpu_link.h"

namespace ktx::runtime {

// A link of the calling thread's GPU. Waits for the other end until `gives_up` returns true.
Result<std::unique_ptr<GpuLink>> make_nccl_link(const GpuLinkId& id, bool sends,
                                                const std::function<bool()>& gives_up);

}  // namespace ktx::runtime
