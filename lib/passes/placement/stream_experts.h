// Decides from how many tokens of a pass on GPUs compute the routed experts that live in main
// memory (lib/program/streams.h), unless `--prefer=stream-experts=` says it.
//
//   time of the CPU for T tokens    grows with T
//   time of the copy over PCIe      the same for any T: all experts of the layer
//
// The threshold is where the copy takes less. For 128 experts of Qwen3-30B-A3B on 16 cores beside
// an H200 it is 192; measured were 140 (bench/2026-11-gpu-streamed-experts.md).
//
// Slots and scratch of streams take memory that experts could have. So there are several ways, from
// a layer at a time in passes of 4096 tokens to an eighth of a matrix in passes of 1024, and the
// placement takes the one with the best predicted time (find_placement.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/passes/cost/memory_formulas.h"
#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// All that the preferences allow, from the one that takes the least memory, not to stream, to that
// with the largest slots. Where these say how many tokens a pass needs and slots are chosen, too,
// only that one.
std::vector<StreamWay> stream_ways(const PricedModel& model);

// As if passes of any length streamed, or none: for placements that are tried. Where the preference
// says from how many tokens on, that stays.
void assume_streams(const PricedModel& model, StreamChoice& streams, const StreamWay& way);

// Sets from how many tokens on a pass of the placement streams, 0 where none of its chunk does.
// Changes nothing where the preference says it.
void choose_stream_tokens(const PricedModel& model, Placement& placement);

// Takes the way for the placement, with the tokens that pay.
void take_way(const PricedModel& model, Placement& placement, const StreamWay& way);

// For a placement whose devices are final: takes the best way that fits. Where the placement was
// chosen with its way, sets only from how many tokens on. The text is a note where none fits though
// it would pay: "long prompts are computed by the CPU alone: ...", else "".
std::string settle_streams(const PricedModel& model, Placement& placement,
                           const std::vector<StreamTrial>& trials);

// Whether a rule has some experts on the CPU computed by the GPU in long prompts
// (prefill_device.h).
bool wants_streams(const PricedModel& model, const Placement& placement);

}  // namespace ktx::passes
