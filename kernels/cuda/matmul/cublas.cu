#include "kernels/cuda/matmul/cublas.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <library_types.h>

#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda/common/cuda_launch.cuh"
#include "lib/support/env.h"

namespace ktx::kernels {
namespace {

// As in cublas_api.h, a header that build machines need not have.
using Handle = void*;
constexpr int kTransposed = 1, kStraight = 0;  // cublasOperation_t
constexpr int kPointersOfDevice = 1;           // cublasPointerMode_t
constexpr int kSumsInFloat = 68;               // CUBLAS_COMPUTE_32F
constexpr int kLibraryChooses = -1;            // CUBLAS_GEMM_DEFAULT

struct Library {
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, cudaStream_t) = nullptr;
  int (*set_pointer_mode)(Handle, int) = nullptr;
  int (*set_workspace)(Handle, void*, size_t) = nullptr;
  int (*gemm)(Handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
              const void* a, cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
              int ldb, const void* beta, void* c, cudaDataType c_type, int ldc, int compute,
              int algorithm) = nullptr;

  bool complete() const {
    return create && set_stream && set_pointer_mode && set_workspace && gemm;
  }
};

template <class Fn>
void find(void* file, const char* symbol, Fn& fn) {
  fn = reinterpret_cast<Fn>(dlsym(file, symbol));
}

Library open_library() {
  Library library;
  constexpr int kNewest = CUDART_VERSION / 1000;
  for (int version = kNewest; version >= kNewest - 1; --version) {
    const std::string file_name = "libcublas.so." + std::to_string(version);
    void* file = dlopen(file_name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open
    if (!file) continue;
    find(file, "cublasCreate_v2", library.create);
    find(file, "cublasSetStream_v2", library.set_stream);
    find(file, "cublasSetPointerMode_v2", library.set_pointer_mode);
    find(file, "cublasSetWorkspace_v2", library.set_workspace);
    find(file, "cublasGemmEx", library.gemm);
    if (library.complete()) break;
  }
  return library;
}

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

Status status_of(int status, const char* what) {
  if (status == 0) return {};
  return Error{"cuBLAS: " + std::string(what) + " failed with status " + std::to_string(status) +
               "; ktx-compile --prefer=cublas=no makes a plan without the library"};
}

// One handle a GPU, for the life of the process. It has one stream at a time.
struct Device {
  std::mutex mutex;
  Handle handle = nullptr;
};

Device& current_device() {
  static std::mutex mutex;
  static std::map<int, Device> devices;
  int number = 0;
  cudaGetDevice(&number);
  const std::lock_guard lock(mutex);
  return devices[number];
}

// The caller holds the device's mutex.
Status start(Device& device) {
  if (device.handle) return {};
  if (!cublas_found()) return Error{"cuBLAS: the library is not there"};
  Handle handle = nullptr;
  KTX_TRY(status_of(library().create(&handle), "cublasCreate"));
  KTX_TRY(status_of(library().set_pointer_mode(handle, kPointersOfDevice), "cublasSetPointerMode"));
  device.handle = handle;
  return {};
}

}  // namespace

bool cublas_found() {
  return library().complete();
}

Status start_cublas() {
  Device& device = current_device();
  const std::lock_guard lock(device.mutex);
  return start(device);
}

// The library counts in columns: our y [tokens, rows] is its C [rows, tokens], our w its A,
// transposed.
Status launch_half_gemm(const HalfGemm& g, CudaStream stream) {
  Device& device = current_device();
  const std::lock_guard lock(device.mutex);
  KTX_TRY(start(device));
  const Library& l = library();
  KTX_TRY(status_of(l.set_stream(device.handle, stream), "cublasSetStream"));
  // Setting the stream gives up the workspace.
  KTX_TRY(status_of(l.set_workspace(device.handle, g.workspace, kCublasWorkspace),
                    "cublasSetWorkspace"));
  const int cols = static_cast<int>(g.cols);
  return status_of(l.gemm(device.handle, kTransposed, kStraight, static_cast<int>(g.rows),
                          static_cast<int>(g.tokens), cols, g.alpha, g.w, CUDA_R_16F, cols, g.x,
                          CUDA_R_16F, cols, g.beta, g.y, CUDA_R_32F, static_cast<int>(g.y_stride),
                          kSumsInFloat, kLibraryChooses),
                   "cublasGemmEx");
}

}  // namespace ktx::kernels
