// Products by cuBLAS against sums in double of the exactly decoded weights.
#include "kernels/cuda/matmul/cublas.h"

#include <cmath>

#include "kernels/cuda/matmul/cuda_matmul.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

class CudaLibrary : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !cublas_found()) GTEST_SKIP() << "no libcublas on this machine";
  }
};

struct Extra {
  bool bias = false, accumulate = false;
};

// Row `step` times, beginning with 0, and every token.
void check_product(Random& random, const GpuWeights& w, const std::vector<float>& x, Extra extra,
                   int64_t step = 1) {
  const int64_t rows = w.gpu().rows, cols = w.gpu().cols;
  const auto tokens = static_cast<int64_t>(x.size()) / cols;
  SCOPED_TRACE(testing::Message() << name(w.gpu().dtype) << " " << rows << "x" << cols << " tokens "
                                  << tokens << " seed " << random.seed());
  const std::vector<float> bias = random.normals(rows), before = random.normals(tokens * rows);
  Gpu<float> gpu_x(x), gpu_bias(bias), y(before);
  CudaMatmulArgs args;
  args.w = w.gpu();
  args.x = gpu_x.data();
  args.x_stride = cols;
  args.tokens = tokens;
  args.y = y.data();
  args.y_stride = rows;
  args.bias = extra.bias ? gpu_bias.data() : nullptr;
  args.accumulate = extra.accumulate;
  args.kernel = GpuKernel::CublasGemm;
  GpuWorkspace workspace(args, cuda_matmul_workspace(args));
  ASSERT_TRUE(ran(launch_matmul(args, nullptr)));
  const std::vector<float> got = y.read();
  for (int64_t t = 0; t < tokens; ++t) {  // each token by itself: small rows count as large ones do
    std::vector<float> of_row, want;
    for (int64_t n = 0; n < rows; n += step) {
      const auto at = static_cast<size_t>(t * rows + n);
      of_row.push_back(got[at]);
      want.push_back(static_cast<float>(dot(w.row(0, n), x.data() + t * cols)) +
                     (extra.bias ? bias[static_cast<size_t>(n)] : 0) +
                     (extra.accumulate ? before[at] : 0));
    }
    ASSERT_LT(relative_error(of_row, want), 2e-3) << "token " << t;
  }
}

TEST_F(CudaLibrary, EveryMarlinTypeAgreesWithTheSum) {
  Random random(91);
  for (DType dtype : kMarlinTypes) {
    const int64_t cols = info(dtype).block_elems == 256 ? 768 : 608;
    const GpuWeights w(random, dtype, 130, cols);
    for (int64_t tokens : {1, 33, 300}) check_product(random, w, random.normals(tokens * cols), {});
  }
}

TEST_F(CudaLibrary, BiasAndWhatStoodThereAreAdded) {
  Random random(92);
  const GpuWeights w(random, DType::Q4_K, 72, 512);
  for (const Extra extra : {Extra{true, false}, Extra{false, true}, Extra{true, true}}) {
    check_product(random, w, random.normals(40 * 512), extra);
  }
}

// The power of two is that of the largest row.
TEST_F(CudaLibrary, RowsFarBelowTheLargestKeepTheirBits) {
  Random random(93);
  const GpuWeights w(random, DType::Q6_K, 64, 512);
  std::vector<float> x = random.normals(6 * 512);
  const float sizes[6] = {1e7f, 1, 1e-1f, 3e5f, 1e3f, 30};
  for (size_t i = 0; i < x.size(); ++i) x[i] *= sizes[i / 512];
  check_product(random, w, x, {});
}

TEST_F(CudaLibrary, ZerosGiveZeros) {
  Random random(94);
  const GpuWeights w(random, DType::Q4_0, 32, 64);
  check_product(random, w, std::vector<float>(3 * 64), {true, false});
}

TEST_F(CudaLibrary, LargeWeightsGoInPieces) {  // 40 MiB in F16
  Random random(95);
  const GpuWeights w(random, DType::Q4_0, 20480 + 8, 1024);
  check_product(random, w, random.normals(20 * 1024), {}, 1009);
}

}  // namespace
}  // namespace ktx::kernels
