// Queries the NVIDIA driver for the GPUs, without a CUDA library at build or run time: opens
// libcuda.so.1 by name at the first query.
//
//   const GpuDriver driver = GpuDriver::open();
//   if (!driver.usable()) say(driver.problem());   // "no NVIDIA driver (libcuda.so.1 ...)"
#pragma once

#include <string>
#include <vector>

#include "lib/target/target.h"

namespace ktx::target {

class GpuDriver {
 public:
  static GpuDriver open();

  bool usable() const { return problem_.empty(); }
  // Why there is none, and what to do; empty when usable.
  const std::string& problem() const { return problem_; }
  int version() const { return version_; }  // 13000: CUDA 13.0
  const std::vector<GpuTarget>& gpus() const { return gpus_; }

 private:
  std::string problem_;
  int version_ = 0;
  std::vector<GpuTarget> gpus_;
};

}  // namespace ktx::target
