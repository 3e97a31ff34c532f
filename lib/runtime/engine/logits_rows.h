// The rows of logits of a pass, each worked on by one of the engine's threads: a row has 150,000.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// Calls visit(i, logits) for rows first + i of the last pass, i from 0 to count - 1, several at
// once; nothing may leave it by a throw. Copies from a GPU what is not here yet, and fails where
// that does.
Status visit_logits(Engine& engine, int64_t first, int64_t count,
                    const std::function<void(int64_t i, std::span<const float> logits)>& visit);

}  // namespace ktx::runtime
