// A network within one process, for tests: each rank is a thread, or several.
//
//   auto ends = make_thread_network(2);   // the ends of ranks 0 and 1
//
// An end that has been cut (cut_thread_network) no longer sends or receives, like a host that
// is lost.
#pragma once

#include <memory>
#include <vector>

#include "lib/runtime/hosts/network.h"

namespace ktx::runtime {

std::vector<std::unique_ptr<Network>> make_thread_network(int ranks);
void cut_thread_network(Network& end);

}  // namespace ktx::runtime
