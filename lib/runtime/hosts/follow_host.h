// A host that is not the first of its run: opens the plan when the first one does, computes its own
// parts of each pass, and keeps the keys, values and states of its own layers.
//
//   auto group = HostGroup::start(KTX_TRY(open_mpi(say_missing)));
//   if (group->rank() > 0) return follow_host(*group, "m.ktxplan", {.threads = 8});
#pragma once

#include <memory>
#include <string>

#include "lib/runtime/engine/engine_options.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// Returns when the first host ends, cleanly or not; an error is one of the run. Only the options
// for this machine count (threads, isa, huge_pages ...); sizes are the first host's.
Status follow_host(HostGroup& group, const std::string& path, const EngineOptions& options);

}  // namespace ktx::runtime
