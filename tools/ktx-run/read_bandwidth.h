// Measures the memory read bandwidth of this machine: the limit that decode is compared with.
#pragma once

namespace ktx::tools {

// Bytes per second that `threads` threads read from memory of four times the last cache,
// 256 MiB at least, each its own part; the best of a few passes. Takes about half a second.
// Where the process may not have so much it reads less, and 0 says that it has too little for any.
double measure_read_bandwidth(int threads);

}  // namespace ktx::tools
