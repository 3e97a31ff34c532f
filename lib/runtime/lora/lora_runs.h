// Which rows of a pass have which adapters (Batch::lora_runs).
#pragma once

#include <span>

#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

// Fills Batch::lora_runs; tokens and output rows must be set. The runs point into the sequences of
// `items`.
void find_lora_runs(std::span<const BatchItem> items, Batch& batch);

}  // namespace ktx::runtime
