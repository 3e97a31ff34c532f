// Copies of small values by a kernel, several in one launch. Either side may be pinned
// memory of the host, which the kernel reads and writes over PCIe: of 8 KB that takes 2 to 3
// us, where each copy by the copy engine takes about as long and stands alone in the queue.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaCopies {
  static constexpr int kMost = 8;
  struct Copy {
    std::byte* to = nullptr;  // addresses and sizes are multiples of 4
    const std::byte* from = nullptr;
    int64_t bytes = 0;
  };
  Copy copies[kMost];
  int count = 0;
};
Status launch_copies(const CudaCopies& args, CudaStream stream);

}  // namespace ktx::kernels
