// What a rule says about the device for long prompts (`prefill_device`) of experts on the CPU.
#pragma once

#include "lib/ir/module_graph.h"
#include "lib/rules/rule.h"

namespace ktx::passes {

enum class PrefillDevice { Open, Cpu, Gpu };
PrefillDevice prefill_device(const rules::RuleSet& rules, const ir::Module& experts);

// Of the experts of `module`: whether a GPU can compute them over weights of the CPU, and a rule
// does not say otherwise.
bool can_be_streamed(const rules::RuleSet& rules, const ir::Module& module);

}  // namespace ktx::passes
