// How many tokens of a prompt a step should take, unless --chunk says otherwise.
//
//   dense                     512
//   128 experts, 8 a token   1024: 64 tokens an expert instead of 32
//
// Weights are unpacked once a step for all its tokens, of which an expert gets a part:
// 16, 32 and 64 tokens an expert gave 1002, 1090 and 1225 tokens/s (bench/2026-11-cpu-xeon.md).
// A dense model gains nothing from more, and whoever waits for the step loses.
#pragma once

#include <cstdint>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

int64_t chunk_tokens(const ir::ModuleGraph& modules);

}  // namespace ktx::passes
