// Decides from how many tokens of a pass on GPUs compute the routed experts that live in main
// memory (lib/launches/streams.h), unless `--prefer=stream-experts=` says it.
//
//   time of the CPU for T tokens    grows with T
//   time of the copy over PCIe      the same for any T: all experts of the layer
//
// The threshold is where the copy takes less. Passes are then longer (chunk_tokens.h), as each
// copies all experts. For 128 experts of Qwen3-30B-A3B on 16 cores beside an H200 it is 192;
// measured were 140 (bench/2026-11-gpu-streamed-experts.md).
#pragma once

#include "lib/passes/pass.h"

namespace ktx::passes {

// Of the modules as they are placed. Sets `prefer.stream_tokens` and the step tokens of
// `check.shape`; changes nothing where the preference says how many.
void choose_stream_tokens(CompileState& state);

// Both as if it had been chosen, or not: for placements that are tried. Nothing where the
// preference says how many.
void assume_streams(CompileState& state, bool streams);

// Of the experts of `module`: whether a GPU can compute them over weights of the CPU.
bool can_be_streamed(const ir::Module& module);

}  // namespace ktx::passes
