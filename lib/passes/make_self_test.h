// Computes the answers that a plan's self-test expects (lib/plan/self_test.h), by the interpreter
// on the source's weights: passes, layouts and kernels play no part in them.
//
// A token costs as many multiplications as the model has weights that it reads, about 1 ns each on
// one thread: 16 tokens of an 8B take two minutes on one core, a tenth of that on twelve. The
// interpreter keeps 1 GiB of weights in F32 and those of a layer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/ir/module_graph.h"
#include "lib/plan/self_test.h"
#include "lib/support/result.h"

namespace ktx::passes {

// `prompts`: tokens of the vocabulary, each list with one at least. `threads` 0: all cores.
// `progress` gets tokens done and in all.
Result<plan::SelfTest> make_self_test(const ir::ModuleGraph& graph, const input::GgufFile& gguf,
                                      std::span<const std::vector<int32_t>> prompts, int threads,
                                      const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace ktx::passes
