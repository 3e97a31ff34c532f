// Moves memory pages, also those of a mapped file, to a NUMA node.
#pragma once

#include <cstddef>
#include <span>

#include "lib/support/result.h"

namespace ktx {

// The whole pages that hold `bytes` are read in and go to the node, as far as it has
// room; where others map them too, they stay. Fails with the system's word ("mbind:
// Operation not permitted") when it does not let us.
Status move_to_node(std::span<const std::byte> bytes, int node);

}  // namespace ktx
