// Reading of memory as fast as a core can: the floor of decode, which `ktx-run bench`
// compares with. Wide loads and prefetches some KiB ahead; plain loops reached 70 % of
// what the products of a decode step then read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/target/isa.h"

namespace ktx::kernels {

// Reads all of `bytes` bytes, a multiple of 512; the result depends on each of them.
using ReadStreamFn = uint64_t (*)(const std::byte* data, size_t bytes);
ReadStreamFn find_read_stream(Isa isa);

}  // namespace ktx::kernels
