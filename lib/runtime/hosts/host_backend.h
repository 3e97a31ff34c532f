// The other hosts of a run as a backend. It computes nothing here: a part of the network is the
// sending or receiving of what crosses between two hosts, in their memory; the parts of the others
// are theirs.
//
// On the first host it also leads the others: each call of a backend becomes a message, which they
// follow (follow_host.h), so that nothing above knows of them:
//
//   begin(batch)          Forward               they begin
//   run(1)  to b          Values                b goes on with layer 16
//   run(3)  from b        Values                the last layer's stream, or logits
//   finish()              ForwardOver of each
//
// Several passes may be in flight (forwards_in_flight.h): what is called is of the one that
// HostGroup::begin_forward() has named last, and finish() is of the oldest.
//
// A pass that a host cannot compute, or that this host stops, ends on all of them, and the run
// goes on. If a host is lost, the run does not go on (host_group.h).
#pragma once

#include <memory>

#include "lib/runtime/engine/backend.h"
#include "lib/runtime/engine/bound_parts.h"
#include "lib/runtime/engine/host_arena.h"

namespace ktx::runtime {

class HostBoundaries;

// For setup.hosts. Everything but the setup itself must outlive the result. On the first host it
// fails where another one cannot open the plan, and says which and why.
Result<std::unique_ptr<HostBoundaries>> create_host_backend(const BackendSetup& setup,
                                                            const BoundParts& parts,
                                                            const HostArena& arena);

}  // namespace ktx::runtime
