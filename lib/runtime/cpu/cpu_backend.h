// The CPU as a backend: each of its parts is walked by all threads of the pool (executor.h).
#pragma once

#include <memory>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"

namespace ktx::runtime {

// Everything but the setup itself must outlive the result.
Result<std::unique_ptr<Backend>> create_cpu_backend(const BackendSetup& setup,
                                                    const BoundParts& parts,
                                                    const HostArena& arena);

}  // namespace ktx::runtime
