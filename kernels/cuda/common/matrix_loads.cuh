// Fragments of halves or BF16 from shared memory: four matrices of 8 x 8, lane l giving the address
// of row l % 8 of matrix l / 8 (as a pointer, or within shared memory). Lane 4 * g + t gets
// elements 2t and 2t + 1 of row g (transposed: of column g) of each.
#pragma once

#include <cstdint>

namespace ktx::kernels {

__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], const void* shared) {
  load_matrices(m, static_cast<uint32_t>(__cvta_generic_to_shared(shared)));
}
__device__ __forceinline__ void load_transposed(uint32_t (&m)[4], const void* shared) {
  load_transposed(m, static_cast<uint32_t>(__cvta_generic_to_shared(shared)));
}

}  // namespace ktx::kernels
