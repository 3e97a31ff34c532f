// Chooses the number of prompt tokens per step (chunked prefill), unless --chunk is given.
//
//   dense                     512
//   128 experts, 8 a token   1024: 64 tokens an expert instead of 32
//   streamed experts         4096: each step copies all experts over PCIe
//
// Weights are unpacked once per step for all its tokens, of which an expert gets a part: 16, 32
// and 64 tokens an expert gave 1002, 1090 and 1225 tokens/s (bench/2026-11-cpu-xeon.md). A
// dense model gains nothing from more, and requests that wait for the step lose.
#pragma once

#include <cstdint>

#include "lib/ir/module_graph.h"

namespace ktx::passes {

// stream_tokens: from how many tokens on a GPU computes the CPU's experts
// (program::Preferences); 0: never.
int64_t chunk_tokens(const ir::ModuleGraph& modules, int64_t stream_tokens);

}  // namespace ktx::passes
