// Measures the int8 multiply-add rate of this machine: the limit that prefill is compared with.
#pragma once

#include "lib/target/isa.h"

namespace ktx::tools {

// Operations per second (two per multiply-add) of `threads` threads together; the
// best of a few passes. Takes about 0.2 s.
double measure_int8_rate(int threads, Isa isa);

}  // namespace ktx::tools
