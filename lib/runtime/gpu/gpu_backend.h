// The GPUs of a plan as a backend: parts are queued on them, as CUDA graphs where possible.
// gpu_state.h lists the files behind it.
//
// Creation allocates all memory, uploads the weights and captures the steps of one token per
// sequence as graphs, by bucket (gpu_buckets.h).
#pragma once

#include <memory>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"

namespace ktx::runtime {

// Everything but the setup itself must outlive the result. Fails before anything is uploaded when
// a GPU is missing, too old or too small.
Result<std::unique_ptr<Backend>> create_gpu_backend(const BackendSetup& setup,
                                                    const BoundParts& parts, const HostArena& host);

}  // namespace ktx::runtime
