// Measures the memory read bandwidth of this machine: the limit that decode is compared with.
#pragma once

namespace ktx::tools {

// Bytes per second that `threads` threads read from memory of four times the last cache,
// 1 GiB at least, each its own part; the best of a few passes. Takes about half a second.
double measure_read_bandwidth(int threads);

}  // namespace ktx::tools
