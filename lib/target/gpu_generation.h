// The oldest GPUs that kernels are built for.
#pragma once

#include <fmt/format.h>

#include <string>

namespace ktx::target {

// Compute capability times ten. CUDA 13 builds for nothing older.
inline constexpr int kOldestGpu = 75;

inline std::string generation_text(int times_ten) {
  return fmt::format("{}.{}", times_ten / 10, times_ten % 10);
}

}  // namespace ktx::target
