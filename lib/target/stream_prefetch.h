// How far ahead kernels prefetch the lines of a stream of weights.
//
// Where the hardware's prefetchers keep memory busy by themselves, prefetches by kernels cost
// instructions and room for lines on their way (Zen 4: 14 GB/s instead of 22). Zen 5's prefetchers
// do not keep it busy beside the instructions that unpack weights: a core that reads 36 GB/s got
// 21 from them, whatever the type (bench/2026-11-cpu-zen5.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace ktx {

// In bytes, of this machine; 0: the prefetchers follow a stream.
int64_t stream_prefetch_bytes();

// The same of a processor with this vendor name and family (processor.h).
int64_t stream_prefetch_bytes(std::string_view vendor, unsigned family);

}  // namespace ktx
