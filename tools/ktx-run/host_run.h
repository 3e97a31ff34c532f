// A process of a run on several hosts: mpirun starts one on each, all with the same command line.
// The first one is the command as a person or a client sees it; the others follow it.
#pragma once

#include <optional>

#include "tools/ktx-run/options.h"

namespace ktx::tools {

// Where the plan of the command is for several hosts: joins the others. The exit status of a
// process that has followed, or that failed; nothing: `options.engine.hosts` is set, the command
// goes on. For any other plan does nothing at all.
std::optional<int> join_hosts(Options& options);

// After the command: lets the others know that this process ends. Waits for them, but with a limit.
void leave_hosts(Options& options);

}  // namespace ktx::tools
