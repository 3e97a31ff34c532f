// The oldest GPU generation that kernels are built for. Gpu: any type with compute_major and
// compute_minor.
#pragma once

#include <fmt/format.h>

#include <string>

namespace ktx::target {

// Compute capability times ten. CUDA 13 builds for nothing older.
inline constexpr int kOldestGpu = 75;

// "7.5"
inline std::string oldest_gpu() {
  return fmt::format("{}.{}", kOldestGpu / 10, kOldestGpu % 10);
}

template <class Gpu>
int generation(const Gpu& gpu) {
  return gpu.compute_major * 10 + gpu.compute_minor;
}
template <class Gpu>
bool too_old(const Gpu& gpu) {
  return generation(gpu) < kOldestGpu;
}

}  // namespace ktx::target
