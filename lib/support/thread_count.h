// How many threads an option for work in parallel means.
#pragma once

#include <algorithm>
#include <thread>

namespace ktx {

// So many; 0 and below: one for each core, where the system says how many there are.
inline int thread_count(int asked) {
  return asked > 0 ? asked : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace ktx
