// Which kernel of a batch serves a product (marlin_skinny.h).
#include "kernels/cuda/skinny_gemm/marlin_skinny.h"

#include "kernels/cuda/marlin/marlin_pairs.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

template <DType kFirst, DType kSecond>
Status launch_batch(const BatchProduct& p, cudaStream_t stream);

template <DType kFirst, DType kSecond>
bool bytes_take(const BatchProduct& p);
template <DType kFirst, DType kSecond>
Status launch_bytes(const BatchProduct& p, cudaStream_t stream);

namespace {

constexpr bool has_bytes(DType dtype) {
  return dtype == DType::Q4_K || dtype == DType::Q5_K || dtype == DType::Q6_K;
}

}  // namespace

bool skinny_bytes_takes(const BatchProduct& p) {
  if (!marlin_skinny_runs()) return false;
  bool takes = false;
  const Status known =
      for_marlin_formats(p.rows, p.parts, [&]<DType kFirst, DType kSecond>() -> Status {
        if constexpr (has_bytes(kFirst) && has_bytes(kSecond)) {
          takes = bytes_take<kFirst, kSecond>(p);
        }
        return {};
      });
  return known.ok() && takes;
}

Status launch_skinny_bytes(const BatchProduct& p, CudaStream stream) {
  return for_marlin_formats(p.rows, p.parts, [&]<DType kFirst, DType kSecond>() -> Status {
    if constexpr (has_bytes(kFirst) && has_bytes(kSecond)) {
      return launch_bytes<kFirst, kSecond>(p, stream);
    }
    return Error{"products of few tokens: no kernel for this format"};
  });
}

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
