// Shared by the groups of bench-kernels: device memory, the time of a launch inside a graph, a
// line of the report, and enough copies of the weights to defeat the caches.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "lib/support/result.h"

namespace ktx::bench {

// Ends the program with a message if it is an error.
void check(cudaError_t error, const char* what);
void check(const Status& status);

// Device memory of random bytes that are no NaN as halves or floats.
class Memory {
 public:
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

// Seconds of one call, as a node of a graph of `count`.
double seconds_of(int count, const std::function<void(int, cudaStream_t)>& call);

// Before the first report: the rate of a plain read, which is printed.
void measure_read();
void report(const std::string& what, double seconds, double bytes, double operations = 0);

// Copies of a weight that exceed the caches together.
struct Rotating {
  kernels::CudaWeight weight;
  int64_t bytes, copies;
  std::unique_ptr<Memory> memory;
  Rotating(DType dtype, int64_t rows, int64_t cols, int64_t matrices = 1);
  kernels::CudaWeight at(int64_t i) const;
};

// The groups of the table in main.cc.
void bench_decode();
void bench_batch();
void bench_prefill();
void bench_library();
void bench_experts();
void bench_deepseek();
void bench_attention();
void bench_latent();
void bench_delta();
void bench_rows();
void bench_product(DType dtype, int64_t rows, int64_t cols, int64_t tokens);

}  // namespace ktx::bench
