// Four floats of a row in one load or store, where rows allow it.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace ktx::kernels {

__device__ __forceinline__ float4 load4(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ __forceinline__ void store4(float* p, float4 v) {
  *reinterpret_cast<float4*>(p) = v;
}

// Whether rows that begin there, so many floats apart, are loaded and stored as above.
inline bool four_floats_at_a_time(std::initializer_list<const void*> pointers,
                                  std::initializer_list<int64_t> strides) {
  bool yes = true;
  for (const void* p : pointers) yes = yes && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  for (int64_t stride : strides) yes = yes && stride % 4 == 0;
  return yes;
}

}  // namespace ktx::kernels
