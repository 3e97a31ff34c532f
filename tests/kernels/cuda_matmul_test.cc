// GPU products against sums in double of the exactly decoded weights: every format, edges
// of tiles, every number of tokens that changes the kernel.
#include "kernels/cuda/matmul/cuda_matmul.h"

#include "lib/formats/layout.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaMatmul = CudaTest;

struct Shape {
  int64_t rows, cols;
};

std::vector<Shape> shapes(DType dtype) {
  if (info(dtype).block_elems == 256) return {{16, 256}, {40, 512}, {130, 1280}, {300, 4096}};
  if (info(dtype).block_elems == 1) return {{5, 256}, {33, 1000}, {12, 37}};
  return {{16, 32}, {40, 96}, {130, 1408}, {300, 4096}};
}

// y = x of `tokens` dense rows times w.
CudaMatmulArgs product_args(const GpuWeights& w, Gpu<float>& x, Gpu<float>& y, int64_t tokens) {
  CudaMatmulArgs args;
  args.w = w.gpu();
  args.x = x.data();
  args.x_stride = args.w.cols;
  args.tokens = tokens;
  args.y = y.data();
  args.y_stride = args.w.rows;
  return args;
}

struct Run {
  bool bias = false, accumulate = false;
};

void check_product(Random& random, const GpuWeights& w, int64_t tokens, Run run) {
  const int64_t rows = w.gpu().rows, cols = w.gpu().cols;
  SCOPED_TRACE(testing::Message() << name(w.gpu().dtype) << " " << rows << "x" << cols << " tokens "
                                  << tokens << " seed " << random.seed());
  const std::vector<float> x = random.normals(tokens * cols), bias = random.normals(rows);
  const std::vector<float> before = random.normals(tokens * rows);
  Gpu<float> gpu_x(x), gpu_bias(bias), y(before);
  CudaMatmulArgs args = product_args(w, gpu_x, y, tokens);
  args.bias = run.bias ? gpu_bias.data() : nullptr;
  args.accumulate = run.accumulate;
  GpuWorkspace workspace(args, cuda_matmul_workspace(args));
  ASSERT_TRUE(ran(launch_matmul(args, nullptr)));
  std::vector<float> want(static_cast<size_t>(tokens * rows));
  for (int64_t n = 0; n < rows; ++n) {
    const std::vector<float> row = w.row(0, n);
    for (int64_t t = 0; t < tokens; ++t) {
      double v = dot(row, x.data() + t * cols);
      if (run.bias) v += bias[n];
      if (run.accumulate) v += before[t * rows + n];
      want[static_cast<size_t>(t * rows + n)] = static_cast<float>(v);
    }
  }
  const bool exact = info(w.gpu().dtype).block_elems == 1;
  EXPECT_LT(relative_error(y.read(), want), exact ? 1e-6 : kHalfProducts);
}

TEST_F(CudaMatmul, EveryMarlinTypeAndNumberOfTokensAgreesWithTheSum) {
  Random random(51);
  for (DType dtype : kMarlinTypes) {
    for (const Shape shape : shapes(dtype)) {
      const GpuWeights w(random, dtype, shape.rows, shape.cols);
      for (int64_t tokens : {1, 2, 7, 8, 9, 16, 17, 33, 64, 100}) {
        check_product(random, w, tokens, {});
      }
    }
  }
}

// Enough for blocks of 32, 64 and 128 tokens on all SMs.
TEST_F(CudaMatmul, EveryMarlinTypeAndThousandsOfTokensAgreeWithTheSum) {
  Random random(59);
  for (DType dtype : kMarlinTypes) {
    const int64_t rows = 300, cols = info(dtype).block_elems == 256 ? 768 : 608;
    const GpuWeights w(random, dtype, rows, cols);
    for (int64_t tokens : {700, 3000, 5000}) {
      const std::vector<float> x = random.normals(tokens * cols);
      Gpu<float> gpu_x(x), gpu_y(static_cast<size_t>(tokens * rows));
      CudaMatmulArgs args = product_args(w, gpu_x, gpu_y, tokens);
      GpuWorkspace workspace(args, cuda_matmul_workspace(args));
      ASSERT_TRUE(ran(launch_matmul(args, nullptr)));
      const std::vector<float> y = gpu_y.read();
      std::vector<float> got, want;
      for (int64_t n = 0; n < rows; n += 7) {
        const std::vector<float> row = w.row(0, n);
        for (int64_t t = tokens % 97; t < tokens; t += t < tokens - 97 ? 97 : 1) {
          got.push_back(y[static_cast<size_t>(t * rows + n)]);
          want.push_back(static_cast<float>(dot(row, x.data() + t * cols)));
        }
      }
      EXPECT_LT(relative_error(got, want), kHalfProducts)
          << name(dtype) << " tokens " << tokens << " seed " << random.seed();
    }
  }
}

TEST_F(CudaMatmul, BiasAndResidualAreAdded) {
  Random random(52);
  for (DType dtype : {DType::Q4_K, DType::Q8_0, DType::F32}) {
    const GpuWeights w(random, dtype, 70, 512);
    for (int64_t tokens : {1, 5, 16, 40, 70}) {
      check_product(random, w, tokens, {true, true});
      check_product(random, w, tokens, {true, false});
      check_product(random, w, tokens, {false, true});
    }
  }
}

TEST_F(CudaMatmul, FloatWeightsAreMultipliedExactly) {
  Random random(53);
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const Shape shape : shapes(dtype)) {
      const GpuWeights w(random, dtype, shape.rows, shape.cols);
      for (int64_t tokens : {1, 3, 8, 21, 64, 515}) check_product(random, w, tokens, {});
    }
  }
}

// Tiles, with ranges of columns or without, and last ones that are not whole.
TEST_F(CudaMatmul, ManyTokensOfFloatWeightsAreMultipliedExactly) {
  Random random(55);
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const Shape shape : {Shape{130, 260}, {256, 2048}, {70, 1028}, {2000, 68}}) {
      const GpuWeights w(random, dtype, shape.rows, shape.cols);
      for (int64_t tokens : {70, 515, 1030}) check_product(random, w, tokens, {true, true});
    }
  }
}

TEST_F(CudaMatmul, ManyRowsOfOneTokenAgree) {  // a grid that goes round several times
  Random random(54);
  const GpuWeights w(random, DType::Q4_K, 40000, 256);
  check_product(random, w, 1, {});
  check_product(random, w, 16, {});
}

TEST_F(CudaMatmul, LongRowsOfManyTokensGoInRanges) {  // x exceeds shared memory
  Random random(55);
  const GpuWeights w(random, DType::Q4_0, 20, 14336);
  for (int64_t tokens : {1, 8, 16, 20}) check_product(random, w, tokens, {});
}

// Values beyond F16 (a massive activation) neither overflow nor drown the others.
TEST_F(CudaMatmul, ActivationsBeyondHalfPrecisionDoNotOverflow) {
  Random random(56);
  const int64_t rows = 32, cols = 512;
  const GpuWeights w(random, DType::Q4_K, rows, cols);
  for (int64_t tokens : {1, 20}) {
    std::vector<float> x = random.normals(tokens * cols, 100);
    x[7] = 3e6f;
    Gpu<float> gpu_x(x), y(static_cast<size_t>(tokens * rows));
    CudaMatmulArgs args = product_args(w, gpu_x, y, tokens);
    GpuWorkspace workspace(args, cuda_matmul_workspace(args));
    ASSERT_TRUE(ran(launch_matmul(args, nullptr)));
    std::vector<float> want;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t n = 0; n < rows; ++n) {
        want.push_back(static_cast<float>(dot(w.row(0, n), x.data() + t * cols)));
      }
    }
    EXPECT_LT(relative_error(y.read(), want), kHalfProducts);
  }
}

TEST_F(CudaMatmul, TheSameCallGivesTheSameBits) {
  Random random(57);
  const GpuWeights w(random, DType::Q6_K, 500, 2048);
  for (int64_t tokens : {1, 12, 50}) {
    Gpu<float> x(random.normals(tokens * 2048));
    std::vector<float> first;
    for (int i = 0; i < 5; ++i) {
      Gpu<float> y(static_cast<size_t>(tokens * 500));
      CudaMatmulArgs args = product_args(w, x, y, tokens);
      GpuWorkspace workspace(args, cuda_matmul_workspace(args));
      ASSERT_TRUE(ran(launch_matmul(args, nullptr)));
      if (first.empty()) first = y.read();
      EXPECT_TRUE(same_bits(first, y.read()));
    }
  }
}

TEST_F(CudaMatmul, HeadsTakeTheirRowsOfTheirMatrices) {
  Random random(59);
  for (DType dtype : {DType::Q8_0, DType::Q4_K, DType::Q5_0, DType::F16}) {
    for (bool transposed : {false, true}) {
      for (int32_t row_begin : {0, 24}) {
        const int64_t heads = 3, matrix_rows = 64, cols = 512;
        const GpuWeights w(random, dtype, matrix_rows, cols, heads);
        MatmulHeadsAttrs attrs;
        attrs.heads = static_cast<int32_t>(heads);
        attrs.transposed = transposed;
        attrs.row_begin = row_begin;
        attrs.row_count = 40;
        const int64_t k = transposed ? attrs.row_count : cols;
        const int64_t n = transposed ? cols : attrs.row_count;
        attrs.x_stride = static_cast<int32_t>(k + 8);
        attrs.y_stride = static_cast<int32_t>(n + 4);
        for (int64_t tokens : {1, 5, 16, 37}) {
          const std::vector<float> x = random.normals(tokens * heads * attrs.x_stride);
          Gpu<float> gpu_x(x), y(static_cast<size_t>(tokens * heads * attrs.y_stride));
          CudaMatmulHeadsArgs args;
          args.w = w.gpu();
          args.attrs = attrs;
          args.x = gpu_x.data();
          args.x_stride = heads * attrs.x_stride;
          args.tokens = tokens;
          args.y = y.data();
          args.y_stride = heads * attrs.y_stride;
          GpuWorkspace workspace(args, cuda_matmul_heads_workspace(args));
          ASSERT_TRUE(ran(launch_matmul_heads(args, nullptr)));
          const std::vector<float> got = y.read();
          std::vector<float> want = got;
          for (int64_t h = 0; h < heads; ++h) {
            std::vector<std::vector<float>> rows;
            for (int64_t r = 0; r < attrs.row_count; ++r) rows.push_back(w.row(h, row_begin + r));
            for (int64_t t = 0; t < tokens; ++t) {
              const float* in = x.data() + t * args.x_stride + h * attrs.x_stride;
              float* out = want.data() + t * args.y_stride + h * attrs.y_stride;
              for (int64_t i = 0; i < n; ++i) {
                double v = 0;
                for (int64_t j = 0; j < k; ++j)
                  v += double{in[j]} * (transposed ? rows[j][i] : rows[i][j]);
                out[i] = static_cast<float>(v);
              }
            }
          }
          EXPECT_LT(relative_error(got, want), kHalfProducts)
              << name(dtype) << " transposed " << transposed << " row " << row_begin << " tokens "
              << tokens;
        }
      }
    }
  }
}

TEST_F(CudaMatmul, DequantizedRowsAreTheWeights) {
  Random random(60);
  for (DType dtype : kMarlinTypes) {
    for (const Shape shape : shapes(dtype)) {
      const GpuWeights w(random, dtype, shape.rows, shape.cols);
      Gpu<uint16_t> out(static_cast<size_t>(shape.rows * shape.cols));
      CudaDequantizeArgs args;
      args.w = w.gpu();
      args.out = out.data();
      ASSERT_TRUE(ran(launch_dequantize(args, nullptr)));
      const std::vector<uint16_t> halves = out.read();
      for (int64_t n = 0; n < shape.rows; ++n) {
        const std::vector<float> want = w.row(0, n);
        float largest = 0;
        for (float v : want) largest = std::max(largest, std::fabs(v));
        for (int64_t k = 0; k < shape.cols; ++k) {
          const float got = half_to_float(halves[static_cast<size_t>(n * shape.cols + k)]);
          ASSERT_NEAR(got, want[static_cast<size_t>(k)], largest / 1024)
              << name(dtype) << " " << shape.rows << "x" << shape.cols << " at " << n << "," << k;
        }
      }
    }
  }
}

TEST_F(CudaMatmul, HalfRowsTimesTheirScaleAreTheRows) {
  Random random(61);
  const int64_t tokens = 3, cols = 320;
  std::vector<float> x = random.normals(tokens * cols);
  for (int64_t k = 0; k < cols; ++k) x[static_cast<size_t>(k)] *= 1e6f;
  for (int64_t k = 0; k < cols; ++k) x[static_cast<size_t>(2 * cols + k)] *= 1e-9f;
  Gpu<float> gpu_x(x), scale(tokens);
  Gpu<uint16_t> halves(static_cast<size_t>(tokens * cols));
  CudaHalfRowsArgs args;
  args.x = gpu_x.data();
  args.x_stride = cols;
  args.tokens = tokens;
  args.cols = cols;
  args.xh = halves.data();
  args.scale = scale.data();
  ASSERT_TRUE(ran(launch_half_rows(args, nullptr)));
  const std::vector<float> scales = scale.read();
  const std::vector<uint16_t> got = halves.read();
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<float> back, want(x.begin() + t * cols, x.begin() + (t + 1) * cols);
    for (int64_t k = 0; k < cols; ++k) {
      back.push_back(half_to_float(got[static_cast<size_t>(t * cols + k)]) *
                     scales[static_cast<size_t>(t)]);
    }
    EXPECT_LT(relative_error(back, want), 5e-4) << "row " << t;
  }
}

TEST_F(CudaMatmul, RefusesWhatItCannotMultiply) {
  CudaMatmulArgs args;
  args.w.dtype = DType::Q2_K;
  args.w.layout = Layout::Rows;
  args.tokens = 1;
  const Status status = launch_matmul(args, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "no GPU product takes weights of Q2_K in layout rows");
}

}  // namespace
}  // namespace ktx::kernels
