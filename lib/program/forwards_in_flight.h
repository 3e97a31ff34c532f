// How many passes may be on their way over the hosts of a model, so that none of them is idle:
//
//   host a   A: layers 0-15 | B: layers 0-15 | A: head | C: layers 0-15 | B: head
//   host b                  | A: layers 16-31 | B: layers 16-31 | C: ...
//
// Each host but the first computes them one after the other. The first host's activations are of
// one pass as well, so a pass must leave nothing in them that it needs after it has waited for
// others: the layers of that host come first, and then, after one wait, the head. So it is where
// layers are spread without rules; elsewhere passes take turns. So they do where hosts share the
// experts of layers: each pass has all of them to its end.
#pragma once

#include <cstdint>

#include "lib/program/program.h"

namespace ktx::program {

// As many as hosts have steps of their own, or 1. The parts have passed verify_parts.
int64_t forwards_in_flight(const Program& program);

}  // namespace ktx::program
