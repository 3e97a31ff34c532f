// ktx-compile --check: checks rules and a model as far as possible without reading weights.
#pragma once

#include <span>
#include <string>

#include "lib/arch/build_graph.h"
#include "lib/input/model_source.h"
#include "lib/passes/pass.h"
#include "lib/support/diag.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// Exit status: 0 clean or with warnings, 1 errors, 3 warnings under --strict.
int run_check(const Options& options);

// --explain-code and --print-rules-schema: tables, no model. Exit status.
int run_explain_code(const Options& options);

// The -W flags of the command line; they were looked at when it was parsed.
DiagPolicy policy_of(const Options& options);

// Reads the rule files into the state; a file that does not exist is KTX-R008, with
// the name that was meant.
void read_rule_files(std::span<const std::string> paths, passes::CompileState& state);

// What a run is taken to be by placement and checks: --ctx, --max-batch, --kv-budget. The
// run itself may ask for something else.
void set_run_shape(const Options& options, passes::CompileState& state);
// --expert-profile: all files added up, checked against the model's layers.
void read_expert_profiles(const Options& options, passes::CompileState& state);

// Reads the file or profile of --target, if there is one, into the state.
void read_target_file(const Options& options, passes::CompileState& state);

}  // namespace ktx::tools
