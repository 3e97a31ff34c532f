// Benchmarks of products of dense activations, by ktx's kernels and by cuBLAS.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/cuda/common/this_gpu.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"
#include "lib/formats/layout.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {

using namespace kernels;

namespace {

// One product of dense activations.
class Product {
 public:
  Product(DType dtype, int64_t rows, int64_t cols, int64_t tokens)
      : w_(dtype, rows, cols), x_(tokens * cols * 4), y_(tokens * rows * 4) {
    args_.w = w_.at(0);
    args_.x = x_.as<float>();
    args_.x_stride = cols;
    args_.tokens = tokens;
    args_.y = y_.as<float>();
    args_.y_stride = rows;
  }
  CudaMatmulArgs& args() { return args_; }
  int64_t bytes() const { return w_.bytes; }
  // The time of one launch.
  double seconds() {
    const int64_t workspace_bytes = cuda_matmul_workspace(args_);
    const Memory workspace(workspace_bytes + 1);
    args_.workspace = workspace.as<std::byte>();
    args_.workspace_bytes = workspace_bytes;
    const int count = static_cast<int>(std::clamp<int64_t>(w_.copies, 4, 40));
    return seconds_of(count, [&](int i, cudaStream_t stream) {
      args_.w = w_.at(i);
      check(launch_matmul(args_, stream));
    });
  }

 private:
  Rotating w_;
  Memory x_, y_;
  CudaMatmulArgs args_;
};

void product(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  Product product(dtype, rows, cols, tokens);
  const double seconds = product.seconds();
  report("matmul " + std::string(name(dtype)) + " " + std::to_string(rows) + "x" +
             std::to_string(cols) + " tokens " + std::to_string(tokens),
         seconds, static_cast<double>(product.bytes()), 2.0 * rows * cols * tokens);
}

// One product by our kernels and by cuBLAS.
void both_ways(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  Product product(dtype, rows, cols, tokens);
  GpuForm form;
  form.weights = {{dtype, Layout::Marlin, rows, cols}};
  product.args().kernel = first_choice(choose_gpu_kernels(form, this_gpu()), tokens, kNeedsWgmma);
  const double ours = product.seconds();
  product.args().kernel = GpuKernel::CublasGemm;
  const double library = product.seconds();
  std::printf(
      "%-6s %6lldx%-6lld tokens %5lld: ours %8.1f us, library %8.1f us, ours / library %.2f\n",
      std::string(name(dtype)).c_str(), static_cast<long long>(rows), static_cast<long long>(cols),
      static_cast<long long>(tokens), ours * 1e6, library * 1e6, ours / library);
  std::fflush(stdout);
}

void dequantize(DType dtype, int64_t rows, int64_t cols) {
  const Rotating w(dtype, rows, cols);
  const Memory out(rows * cols * 2);
  const double seconds = seconds_of(4, [&](int i, cudaStream_t stream) {
    check(launch_dequantize({w.at(i), out.as<uint16_t>()}, stream));
  });
  report("dequantize " + std::string(name(dtype)) + " " + std::to_string(rows) + "x" +
             std::to_string(cols),
         seconds, static_cast<double>(w.bytes) + 2.0 * rows * cols);
}

// q, k and v of a normed batch.
void skinny_products(std::vector<DType> types, std::vector<int64_t> rows, int64_t cols,
                     int64_t tokens) {
  std::vector<std::unique_ptr<Rotating>> w;
  std::vector<std::unique_ptr<Memory>> y;
  const Memory x(tokens * cols * 4), norm(cols * 4), workspace(skinny_workspace(tokens, cols));
  CudaSkinnyProductsArgs args;
  args.x = {x.as<float>(), cols, tokens, norm.as<float>(), 1e-5f};
  args.workspace = workspace.as<std::byte>();
  args.workspace_bytes = skinny_workspace(tokens, cols);
  double bytes = 0, operations = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    w.push_back(std::make_unique<Rotating>(types[i], rows[i], cols));
    y.push_back(std::make_unique<Memory>(tokens * rows[i] * 4));
    args.outputs[args.count++] = {w[i]->at(0), y[i]->as<float>(), rows[i], nullptr, false};
    bytes += static_cast<double>(w[i]->bytes);
    operations += 2.0 * static_cast<double>(rows[i] * cols * tokens);
  }
  const double seconds = seconds_of(30, [&](int i, cudaStream_t stream) {
    for (size_t k = 0; k < w.size(); ++k) args.outputs[k].w = w[k]->at(i);
    check(launch_skinny_products(args, stream));
  });
  report("norm, q, k, v of " + std::string(name(types[0])) + ", " +
             std::string(name(types.back())) + " tokens " + std::to_string(tokens),
         seconds, bytes, operations);
}

}  // namespace

void bench_product(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  product(dtype, rows, cols, tokens);
}

void bench_decode() {
  for (DType dtype : {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q5_K, DType::Q5_0,
                      DType::IQ4_XS, DType::MXFP4}) {
    product(dtype, 8192, 8192, 1);
  }
  product(DType::Q4_K, 4096, 4096, 1);
  product(DType::Q4_K, 1024, 4096, 1);
  product(DType::Q6_K, 1024, 4096, 1);
  product(DType::Q4_K, 4096, 14336, 1);
  product(DType::Q6_K, 4096, 14336, 1);
  product(DType::Q6_K, 128256, 4096, 1);
  product(DType::Q4_K, 4096, 2048, 1);
  product(DType::Q4_K, 512, 2048, 1);
  product(DType::Q4_K, 2048, 4096, 1);
  product(DType::F32, 128, 2048, 1);
}

void bench_batch() {
  for (int64_t tokens : {1, 2, 4, 8, 16, 17, 32, 64, 128, 256})
    product(DType::Q4_K, 8192, 8192, tokens);
  for (DType dtype : {DType::Q5_K, DType::Q6_K, DType::Q8_0}) {
    for (int64_t tokens : {8, 16}) product(dtype, 8192, 8192, tokens);
  }
  for (int64_t tokens : {1, 2, 16}) {
    product(DType::Q4_K, 4096, 4096, tokens);
    product(DType::Q4_K, 1024, 4096, tokens);
    product(DType::Q4_K, 14336, 4096, tokens);
    product(DType::Q4_K, 4096, 14336, tokens);
    product(DType::Q6_K, 4096, 14336, tokens);
  }
  product(DType::Q6_K, 128256, 4096, 16);
  for (int64_t tokens : {2, 16}) {
    skinny_products({DType::Q4_K, DType::Q4_K, DType::Q4_K}, {4096, 1024, 1024}, 4096, tokens);
    skinny_products({DType::Q4_K, DType::Q4_K, DType::Q6_K}, {4096, 1024, 1024}, 4096, tokens);
  }

  for (int64_t tokens : {16, 512}) product(DType::F32, 128, 2048, tokens);
}

void bench_prefill() {
  for (int64_t tokens : {512, 2048}) {
    product(DType::Q4_K, 4096, 4096, tokens);
    product(DType::Q4_K, 1024, 4096, tokens);
    product(DType::Q4_K, 14336, 4096, tokens);
    product(DType::Q6_K, 4096, 14336, tokens);
  }
  for (DType dtype : {DType::Q4_K, DType::Q6_K}) dequantize(dtype, 14336, 4096);
}

void bench_library() {
  for (int64_t tokens : {64, 128, 256, 512, 1024, 2048}) {
    for (DType dtype : {DType::Q4_K, DType::Q6_K}) {
      for (int64_t rows : {512, 1024, 2048, 4096, 14336}) both_ways(dtype, rows, 4096, tokens);
      both_ways(dtype, 4096, 14336, tokens);
      both_ways(dtype, 2048, 2048, tokens);
      both_ways(dtype, 5120, 1536, tokens);
    }
    both_ways(DType::Q8_0, 4096, 4096, tokens);
    both_ways(DType::Q8_0, 14336, 4096, tokens);
  }
}

}  // namespace ktx::bench
