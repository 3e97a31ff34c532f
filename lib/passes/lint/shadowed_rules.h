// Finds rules that lose some or all of their modules to other rules.
#pragma once

#include "lib/passes/lint/rule_reporter.h"

namespace ktx::passes {

// All that satisfies it lies below a match with `recursive: false`.
void report_unreachable(const RuleReporter& reporter, int index);
// Other rules take all of its modules: those before it in its file, or those of a later file.
void report_shadowed(const RuleReporter& reporter, int index);
// For a rule that decides something: the modules that a later file decides otherwise.
void report_refined(const RuleReporter& reporter, int index);
// One note for all rules that lose some of their modules to rules of their file.
void report_partly_shadowed(const RuleReporter& reporter);

}  // namespace ktx::passes
