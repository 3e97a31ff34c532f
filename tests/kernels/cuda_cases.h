// Shared by the tests of GPU kernels: skipping without a GPU, buffers, marlin packing.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <span>

#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/matmul.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {

// Skips visibly where no GPU answers.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error);
    }
  }
};

// Device memory with a copy to and from.
template <class T>
class Gpu {
 public:
  explicit Gpu(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + 256), cudaSuccess);
    cudaMemset(data_, 0xA5, bytes() + 256);  // floats of no sense: unwritten outputs show
  }
  explicit Gpu(std::span<const T> from) : Gpu(from.size()) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  explicit Gpu(const std::vector<T>& from) : Gpu(std::span<const T>(from)) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() { cudaFree(data_); }
  T* data() { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> read() const {
    std::vector<T> out(count_);
    EXPECT_EQ(cudaMemcpy(out.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// The workspace of a launch: GpuWorkspace workspace(args, cuda_matmul_workspace(args));
class GpuWorkspace {
 public:
  explicit GpuWorkspace(int64_t bytes) : memory_(static_cast<size_t>(bytes)) {}
  template <class Args>
  GpuWorkspace(Args& args, int64_t bytes) : GpuWorkspace(bytes) {
    give(args);
  }
  template <class Args>
  void give(Args& args) {
    args.workspace = memory_.data();
    args.workspace_bytes = static_cast<int64_t>(memory_.bytes());
  }

 private:
  Gpu<std::byte> memory_;
};

// Launched, and finished without an error.
inline ::testing::AssertionResult ran(const Status& status) {
  if (!status.ok()) return ::testing::AssertionFailure() << status.error().message;
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << cudaGetErrorString(error);
}

// `matrices` matrices of rows x cols, in the GGUF form and in device memory.
class GpuWeights {
 public:
  GpuWeights(Random& random, DType dtype, int64_t rows, int64_t cols, int64_t matrices = 1,
             bool marlin = true)
      : host_(random, dtype, rows * matrices, cols), rows_(rows) {
    const bool packed = marlin && marlin_takes(dtype);
    weight_.dtype = dtype;
    weight_.layout = packed ? Layout::Marlin : Layout::Rows;
    weight_.rows = rows;
    weight_.cols = cols;
    weight_.matrix_bytes =
        packed ? marlin_matrix_bytes(dtype, rows, cols) : rows * host_.row_bytes();
    std::vector<std::byte> bytes(static_cast<size_t>(weight_.matrix_bytes * matrices));
    for (int64_t m = 0; m < matrices; ++m) {
      std::byte* out = bytes.data() + m * weight_.matrix_bytes;
      const std::byte* in = host_.data() + m * rows * host_.row_bytes();
      if (packed) {
        pack(in, out);
      } else {
        std::memcpy(out, in, static_cast<size_t>(weight_.matrix_bytes));
      }
    }
    device_ = std::make_unique<Gpu<std::byte>>(bytes);
    weight_.data = device_->data();
  }
  const CudaWeight& gpu() const { return weight_; }
  const Weights& host() const { return host_; }
  std::vector<float> row(int64_t matrix, int64_t r) const { return host_.row(matrix * rows_ + r); }

 private:
  void pack(const std::byte* in, std::byte* out) const {
    const int64_t strip_bytes = marlin_strip_bytes(weight_.dtype, weight_.cols);
    for (int64_t first = 0; first < rows_; first += kMarlinRows) {
      std::array<const std::byte*, 16> rows{};
      for (int64_t r = 0; r < kMarlinRows && first + r < rows_; ++r) {
        rows[static_cast<size_t>(r)] = in + (first + r) * host_.row_bytes();
      }
      marlin_pack_strip(weight_.dtype, weight_.cols, rows, out + first / kMarlinRows * strip_bytes);
    }
  }
  Weights host_;
  int64_t rows_;
  CudaWeight weight_;
  std::unique_ptr<Gpu<std::byte>> device_;
};

inline constexpr DType kMarlinTypes[] = {DType::Q4_0,   DType::Q4_1,   DType::Q5_0, DType::Q5_1,
                                         DType::Q8_0,   DType::Q4_K,   DType::Q5_K, DType::Q6_K,
                                         DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4};

inline double dot(const std::vector<float>& a, const float* b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += double{a[k]} * b[k];
  return sum;
}

// The distance of two vectors, relative to the length of the second; infinite when
// anything is not a number.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  const double relative = std::sqrt(error / (norm > 0 ? norm : 1));
  return std::isnan(relative) || got.size() != want.size() ? INFINITY : relative;
}

// Products of weights and activations in F16: two roundings of 2^-12 on average.
inline constexpr double kHalfProducts = 1.2e-3;

}  // namespace ktx::kernels
