// --coverage and --list-unruled: which modules each rule decides.
#pragma once

#include <string>

#include "lib/passes/cost/estimate.h"
#include "lib/passes/pass.h"

namespace ktx::tools {

std::string coverage_table(const passes::CompileState& state);
std::string coverage_json(const passes::CompileState& state);
// Modules without a rule, with where the compiler puts them; one line each.
std::string unruled_list(const passes::CompileState& state);

// Bytes of all modules that a rule decides.
uint64_t bytes_of_rule(const passes::CompileState& state, int rule);

}  // namespace ktx::tools
