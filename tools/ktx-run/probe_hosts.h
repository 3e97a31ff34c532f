// `mpirun -n N ktx-run probe`: measures all machines and the network between them, for one target
// file with `hosts`.
#pragma once

#include "lib/runtime/hosts/host_group.h"
#include "lib/support/result.h"
#include "lib/target/target.h"

namespace ktx::tools {

// On the first host, whose machine is measured: the same with all hosts.
Result<target::Target> probe_hosts(runtime::HostGroup& group, target::Target (*measure)());
// On the others, until the first one leaves.
Status follow_probe(runtime::HostGroup& group, target::Target (*measure)());

}  // namespace ktx::tools
