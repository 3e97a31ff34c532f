// How fast this machine multiplies int8: the ceiling that prefill is compared with.
#pragma once

#include "lib/target/isa.h"

namespace ktx::tools {

// Operations per second (two per multiply-add) of `threads` threads together; the
// best of a few passes. Takes about 0.2 s.
double measure_int8_rate(int threads, Isa isa);

}  // namespace ktx::tools
