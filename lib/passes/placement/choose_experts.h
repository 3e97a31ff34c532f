// Which experts of a layer go where its stack is split (ir::ExpertSet).
//
//   experts: {cuda:0: 32}       the 32 most used ones of --expert-profile; without one the first 32
//   experts: {cuda:0: 0..31}    these
//   experts: {cuda:0: {slots: 32}}    at first the 32 most used ones
//
// Also computes the expected share of the layer's activations for each set.
#pragma once

#include "lib/passes/cost/priced_model.h"

namespace ktx::passes {

// Fills in what is open: devices of splits, experts of which only the number is given, uses. Where
// the attention of a layer has no device, that of a split stays open.
void choose_experts(const PricedModel& model, Placement& placement);

// Puts the `count` most used experts of the module on `device`, and the others on the CPU; all of
// them or none where count says so.
void split_experts(const PricedModel& model, const ir::Module& experts, const DeviceId& device,
                   int32_t count, ModulePlace& place);

}  // namespace ktx::passes
