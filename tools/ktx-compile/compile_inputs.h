// What a command line names beside the model, read into the compiler's state: rules, target,
// profiles of experts, the shape of a run. Mistakes go to the state's diagnostics.
#pragma once

#include <span>
#include <string>

#include "lib/passes/pass.h"
#include "lib/support/diag.h"
#include "tools/ktx-compile/options.h"

namespace ktx::tools {

// The -W flags, which were checked when the command line was parsed.
DiagPolicy policy_of(const Options& options);

// KTX-R008 for a file that does not exist, with the name that was meant.
void read_rule_files(std::span<const std::string> paths, passes::CompileState& state);

// The file of --target; `rtx-4090` is the profile of this name that comes with the program.
std::string target_path(const std::string& given);
void read_target_file(const Options& options, passes::CompileState& state);

// The run that placement and checks assume: --ctx, --max-batch, --kv-budget, --vram. The run itself
// may take others.
void set_run_shape(const Options& options, passes::CompileState& state);

// --expert-profile: the sum of all files, checked against the model's layers.
void read_expert_profiles(const Options& options, passes::CompileState& state);

}  // namespace ktx::tools
