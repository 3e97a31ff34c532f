// What launches of several products in one ask of their weights and activations.
#pragma once

#include <cstdint>

#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::kernels {

inline bool aligned_16(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}
inline bool is_marlin(const CudaWeight& w) {
  return w.layout == Layout::Marlin && marlin_takes(w.dtype);
}
inline bool same_form(const CudaWeight& a, const CudaWeight& b) {
  return a.dtype == b.dtype && a.layout == b.layout && a.rows == b.rows && a.cols == b.cols;
}

// Whether the weights of outputs[0 .. count) are of equal columns and at most two formats:
// takes(weight) holds for each, together(a, b) for the formats.
template <class Output, class Takes, class Together>
bool products_go_together(const Output* outputs, int count, Takes takes, Together together) {
  const CudaWeight& first = outputs[0].w;
  DType other = first.dtype;
  for (int i = 0; i < count; ++i) {
    const CudaWeight& w = outputs[i].w;
    if (!takes(w) || w.cols != first.cols) return false;
    if (w.dtype == first.dtype) continue;
    if (other != first.dtype && other != w.dtype) return false;
    other = w.dtype;
  }
  return together(first.dtype, other);
}

}  // namespace ktx::kernels
