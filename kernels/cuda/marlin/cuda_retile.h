// Panels of the CPU as marlin tiles, on the GPU (kernels/matmul/retile.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaRetileArgs {
  DType dtype = DType::F32;
  Layout from = Layout::Panel16;
  int64_t cols = 0;
  int64_t strips = 0;  // of 16 rows, of all matrices
  // At multiples of 16; they do not overlap.
  const std::byte* panels = nullptr;
  std::byte* tiles = nullptr;
};
Status launch_retile(const CudaRetileArgs& args, CudaStream stream);

}  // namespace ktx::kernels
