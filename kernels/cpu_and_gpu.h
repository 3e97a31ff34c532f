// Functions that a GPU's code has too: compiled by nvcc for both, by the host's compiler for the
// CPU.
#pragma once

#ifdef __CUDACC__
#define KTX_CPU_AND_GPU __host__ __device__
#else
#define KTX_CPU_AND_GPU
#endif

// Before a loop whose counters should be constants in a GPU's code, so that small arrays are
// registers.
#ifdef __CUDA_ARCH__
#define KTX_GPU_UNROLL _Pragma("unroll")
#else
#define KTX_GPU_UNROLL
#endif
