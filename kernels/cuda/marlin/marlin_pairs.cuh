// The choice of a template by the formats of a launch's parts: one, or a pair of marlin_pairs.def.
#pragma once

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/gpu/gpu_limits.h"
#include "kernels/matmul/marlin_layout.h"

namespace ktx::kernels {

// Calls fn.template operator()<first, second>() for the formats of the parts [rows, rows + parts).
template <class Rows, class Fn>
Status for_marlin_formats(const Rows* rows, int parts, Fn&& fn) {
  const DType a = rows[0].dtype;
  DType b = a;
  for (int i = 1; i < parts; ++i) {
    if (rows[i].dtype != a) b = rows[i].dtype;
  }
  if (a == b) {
    return for_marlin_type<Status>(a, Error{"not a format of marlin weights"}, [&]<DType kType>() {
      return fn.template operator()<kType, kType>();
    });
  }
#define KTX_MARLIN_PAIR(first, second)                                                          \
  if ((a == DType::first && b == DType::second) || (a == DType::second && b == DType::first)) { \
    return fn.template operator()<DType::first, DType::second>();                               \
  }
#include "kernels/gpu/marlin_pairs.def"
#undef KTX_MARLIN_PAIR
  return Error{"no GPU product takes this mix of formats"};
}

}  // namespace ktx::kernels
