// What a rule says about the device for long prompts (`prefill_device`) of experts on the CPU.
#pragma once

#include "lib/ir/module_graph.h"
#include "lib/rules/rule.h"

namespace ktx::passes {

enum class PrefillDevice { Open, Cpu, Gpu };
PrefillDevice prefill_device(const rules::RuleSet& rules, const ir::Module& experts);

// Whether a GPU can compute the experts of `module` over weights of the CPU, and no rule says
// otherwise.
bool can_be_streamed(const rules::RuleSet& rules, const ir::Module& module);

}  // namespace ktx::passes
