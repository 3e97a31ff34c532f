// Decides from how many tokens of a pass on GPUs compute the routed experts that live in main
// memory (lib/launches/streams.h), unless `--prefer=stream-experts=` says it.
//
//   time of the CPU for T tokens    grows with T
//   time of the copy over PCIe      the same for any T: all experts of the layer
//
// The threshold is where the copy takes less. For 128 experts of Qwen3-30B-A3B on 16 cores beside
// an H200 it is 192; measured were 140 (bench/2026-11-gpu-streamed-experts.md).
//
// Slots and scratch of streams take memory that experts could have. So there are several ways, from
// a layer at a time in passes of 4096 tokens to an eighth of a matrix in passes of 1024, and the
// placement takes the one with the best predicted time (place_devices.cc).
#pragma once

#include <optional>
#include <vector>

#include "lib/passes/pass.h"

namespace ktx::passes {

// All that the state's preferences allow, from the one that takes the least memory, not to stream,
// to that with the largest slots. Where these say how many tokens a pass needs and slots are
// chosen, too, only that one.
std::vector<StreamWay> stream_ways(const CompileState& state);

// As if passes of any length streamed, or none: for placements that are tried. Where the preference
// says from how many tokens on, that stays.
void assume_streams(CompileState& state, const StreamWay& way);

// Sets `prefer.stream_tokens`, by the modules as they are placed: from how many tokens on a pass
// streams, 0 where none of the state's chunk does. Changes nothing where the preference says it.
void choose_stream_tokens(CompileState& state);

// Of the placement of the state, for which `way` is assumed; nothing where no pass would stream.
std::optional<StreamTrial> predict_trial(const CompileState& state, const StreamWay& way);
// Keeps the best for each slots, in the order of the ways.
void keep_trial(std::vector<StreamTrial>& trials, const StreamTrial& trial);
// Takes the way for the state.
void take_way(CompileState& state, const StreamWay& way);

// Of modules as they are placed: takes the best way that fits, with a note where none does though
// it would pay. Where the placement was chosen with its way, only from how many tokens on.
void settle_streams(CompileState& state);

// What a rule says of the device of long prompts (`prefill_device`), of experts on the CPU.
enum class PrefillDevice { Open, Cpu, Gpu };
PrefillDevice prefill_device(const CompileState& state, const ir::Module& experts);
// Whether some experts on the CPU have the GPU there.
bool wants_streams(const CompileState& state);

// Of the experts of `module`: whether a GPU can compute them over weights of the CPU, and a rule
// does not say otherwise.
bool can_be_streamed(const CompileState& state, const ir::Module& module);

}  // namespace ktx::passes
