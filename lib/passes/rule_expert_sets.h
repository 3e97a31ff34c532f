// The effect of a rule's `experts` on a module.
#pragma once

#include <string>

#include "lib/ir/module_graph.h"
#include "lib/rules/rule.h"

namespace ktx::passes {

// Why the module cannot have them: "has 32 experts, and a rule puts 40 elsewhere"; "": it can.
std::string expert_sets_obstacle(const rules::Replace& replace, const ir::Module& module);

}  // namespace ktx::passes
