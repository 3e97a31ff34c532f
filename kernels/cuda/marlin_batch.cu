// Which kernel of a batch serves a product (marlin_batch.h).
#include "kernels/cuda/marlin_batch.h"

#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

template <DType kFirst, DType kSecond>
Status launch_batch(const BatchProduct& p, cudaStream_t stream);

namespace {

// Two formats that have a kernel of their own.
struct Mix {
  DType first, second;
  Status (*launch)(const BatchProduct&, cudaStream_t);
};
constexpr Mix kMixes[] = {
    {DType::Q4_K, DType::Q6_K, launch_batch<DType::Q4_K, DType::Q6_K>},
    {DType::Q5_K, DType::Q6_K, launch_batch<DType::Q5_K, DType::Q6_K>},
};

const Mix* mix_of(DType a, DType b) {
  for (const Mix& mix : kMixes) {
    if ((mix.first == a && mix.second == b) || (mix.first == b && mix.second == a)) return &mix;
  }
  return nullptr;
}

}  // namespace

bool marlin_batch_runs() {
  static const bool runs = compute_capability() >= 90;
  return runs;
}

bool batch_formats(DType a, DType b) {
  return marlin_takes(a) && marlin_takes(b) && (a == b || mix_of(a, b));
}

Status launch_marlin_batch(const BatchProduct& p, CudaStream stream) {
  const DType first = p.rows[0].dtype;
  DType other = first;
  for (int i = 1; i < p.parts; ++i) {
    if (p.rows[i].dtype != first) other = p.rows[i].dtype;
  }
  if (other != first) {
    const Mix* mix = mix_of(first, other);
    return mix ? mix->launch(p, stream) : Status(Error{"no GPU product takes this mix of formats"});
  }
  return for_marlin_type<Status>(
      first, Error{"not a format of marlin weights"},
      [&]<DType kType>() { return launch_batch<kType, kType>(p, stream); });
}

}  // namespace ktx::kernels
