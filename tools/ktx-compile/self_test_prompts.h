// The self-test of a plan: prompts out of texts, and what the source's weights answer
// (lib/passes/make_self_test.h).
#pragma once

#include <string>

#include "lib/input/model_source.h"
#include "lib/ir/module_graph.h"
#include "lib/plan/plan_facts.h"
#include "lib/support/result.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// The section's text, with options.self_tests prompts. Fails for models that give no logits, and
// where weights were rounded: the source's answers are not the plan's then.
Result<std::string> make_self_test(const Options& options, const input::ModelSource& source,
                                   const ir::ModuleGraph& graph, const plan::PlanFacts& facts);

}  // namespace ktx::tools
