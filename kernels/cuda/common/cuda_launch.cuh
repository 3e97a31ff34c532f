// What launchers share: launch errors as Status, facts of the current device (its SMs, the SM
// occupancy of a kernel), the check of a workspace, and the choice of a template by dtype.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "lib/formats/dtype.h"
#include "lib/support/result.h"

namespace ktx::kernels {

inline Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  return Error{std::string(what) + ": " + cudaGetErrorString(error)};
}
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) return 0;
  return value;
}
inline int sm_count() {
  const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return count > 0 ? count : 1;
}
// 75, 80, 89, 90 ...
inline int compute_capability() {
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
         device_attribute(cudaDevAttrComputeCapabilityMinor);
}
inline int shared_memory_limit() {
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

inline Status check_workspace(const char* op, int64_t has, int64_t needs) {
  if (has >= needs) return {};
  return Error{std::string(op) + ": " + std::to_string(has) + " bytes of workspace, needs " +
               std::to_string(needs)};
}

// Whether kernels may start while the ones before them drain: on sm_90 and newer.
inline bool overlap_launches() {
  return compute_capability() >= 90;
}

// Launches with `shared` bytes of dynamic shared memory, blocks in clusters of `cluster` along
// x (more than 1: sm_90 and newer). Above 48 KiB, a kernel's static shared memory included
// (all here have less than 8), it has to be asked for. With overlap_launches() the kernel may
// start before the one ahead of it has ended (begin_kernel, mma.cuh).
template <class... Params, class... Args>
Status launch_clusters(const char* what, void (*kernel)(Params...), dim3 grid, int cluster,
                       int threads, int shared, cudaStream_t stream, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  if (shared > 40 * 1024) {
    KTX_TRY(cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), what));
  }
  // One division of shared memory and L1 for all kernels: an SM that has to change it
  // takes no block of the next kernel before all of this one are gone.
  KTX_TRY(cuda_status(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared),
                      what));
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (overlap_launches()) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& clusters = attributes[config.numAttrs++];
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  return cuda_status(cudaLaunchKernelEx(&config, kernel, Params(args)...), what);
}
// How many clusters of so many blocks (1: blocks) the GPU runs at a time; at least 1.
template <class... Params>
int clusters_at_once(void (*kernel)(Params...), int cluster, int threads, int shared) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  int count = 0;
  if (cluster == 1) {
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads,
                                                  static_cast<size_t>(shared));
    count *= sm_count();
  } else {
    cudaLaunchAttribute clusters = {};
    clusters.id = cudaLaunchAttributeClusterDimension;
    clusters.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.attrs = &clusters;
    config.numAttrs = 1;
    cudaOccupancyMaxActiveClusters(&count, kernel, &config);
  }
  return count > 0 ? count : 1;
}
template <class... Params, class... Args>
Status launch(const char* what, void (*kernel)(Params...), dim3 grid, int threads, int shared,
              cudaStream_t stream, const Args&... args) {
  return launch_clusters(what, kernel, grid, 1, threads, shared, stream, args...);
}

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// Calls fn.template operator()<dtype>() for a dtype that marlin takes; else `otherwise`.
template <class R, class Fn>
R for_marlin_type(DType dtype, R otherwise, Fn&& fn) {
  switch (dtype) {
    case DType::Q4_0:
      return fn.template operator()<DType::Q4_0>();
    case DType::Q4_1:
      return fn.template operator()<DType::Q4_1>();
    case DType::Q5_0:
      return fn.template operator()<DType::Q5_0>();
    case DType::Q5_1:
      return fn.template operator()<DType::Q5_1>();
    case DType::Q8_0:
      return fn.template operator()<DType::Q8_0>();
    case DType::Q4_K:
      return fn.template operator()<DType::Q4_K>();
    case DType::Q5_K:
      return fn.template operator()<DType::Q5_K>();
    case DType::Q6_K:
      return fn.template operator()<DType::Q6_K>();
    case DType::IQ4_NL:
      return fn.template operator()<DType::IQ4_NL>();
    case DType::IQ4_XS:
      return fn.template operator()<DType::IQ4_XS>();
    case DType::MXFP4:
      return fn.template operator()<DType::MXFP4>();
    default:
      return otherwise;
  }
}

}  // namespace ktx::kernels
