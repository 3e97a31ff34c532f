// Which kernel of a batch serves a product (marlin_skinny.h).
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"

#include "kernels/cuda/marlin/marlin_pairs.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

template <DType kFirst, DType kSecond>
Status launch_batch(const BatchProduct& p, cudaStream_t stream);

bool marlin_skinny_runs() {
  static const bool runs = compute_capability() >= 90;
  return runs;
}

bool batch_formats(DType a, DType b) {
  return marlin_pair(a, b);
}

Status launch_marlin_skinny(const BatchProduct& p, CudaStream stream) {
  return for_marlin_formats(p.rows, p.parts, [&]<DType kFirst, DType kSecond>() {
    return launch_batch<kFirst, kSecond>(p, stream);
  });
}

}  // namespace ktx::kernels
