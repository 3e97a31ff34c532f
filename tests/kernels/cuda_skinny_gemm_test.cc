// Fused launches of 2 to 96 tokens against sums in double, and with the same bits in a graph
// whose launches may overlap.
#include "kernels/cuda/skinny_gemm/cuda_fused_skinny_gemm.h"

#include "kernels/cuda/gemm/cuda_fused_gemm.h"

#include "kernels/cuda/common/this_gpu.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

class CudaSkinnyGemm : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    if (major < 9) GTEST_SKIP() << "products of a batch need sm_90";
  }
};

constexpr float kEps = 1e-5f;

std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& weight,
                          int64_t tokens) {
  const size_t cols = weight.size();
  std::vector<float> n(x.size());
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    double squares = 0;
    for (size_t i = 0; i < cols; ++i) squares += double{x[t * cols + i]} * x[t * cols + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + kEps);
    for (size_t i = 0; i < cols; ++i) {
      n[t * cols + i] = static_cast<float>(x[t * cols + i] * scale * weight[i]);
    }
  }
  return n;
}

// y of every token and row, in double.
std::vector<float> product(const GpuWeights& w, const std::vector<float>& x, int64_t tokens) {
  const int64_t rows = w.gpu().rows, cols = w.gpu().cols;
  std::vector<float> y(static_cast<size_t>(tokens * rows));
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row = w.row(0, r);
    for (int64_t t = 0; t < tokens; ++t) {
      y[static_cast<size_t>(t * rows + r)] = static_cast<float>(dot(row, x.data() + t * cols));
    }
  }
  return y;
}

// Rows of x of very different sizes, so that each needs a scale of its own.
std::vector<float> activations(Random& random, int64_t tokens, int64_t cols) {
  std::vector<float> x = random.normals(tokens * cols, 3);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < cols; ++k)
      x[static_cast<size_t>(t * cols + k)] *= std::ldexp(1.0f, static_cast<int>(3 * (t % 24) - 20));
  }
  return x;
}

// Per token, so that a small one is not lost beside a large one.
void expect_close(const std::vector<float>& got, const std::vector<float>& want, int64_t tokens,
                  double limit) {
  const auto rows = static_cast<std::ptrdiff_t>(want.size()) / tokens;
  ASSERT_EQ(got.size(), want.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<float> a(got.begin() + t * rows, got.begin() + (t + 1) * rows);
    const std::vector<float> b(want.begin() + t * rows, want.begin() + (t + 1) * rows);
    EXPECT_LT(relative_error(a, b), limit) << "token " << t;
  }
}

struct Launchers {
  bool (*take)(const CudaSkinnyProductsArgs&) = skinny_products_take;
  Status (*launch)(const CudaSkinnyProductsArgs&, CudaStream) = launch_skinny_products;
  int64_t (*workspace)(int64_t tokens, int64_t cols) = skinny_workspace;
};
constexpr Launchers kGemms = {gemm_products_take, launch_gemm_products, gemm_workspace};
bool has_wgmma() {
  return (this_gpu_has() & kNeedsWgmma) != 0;
}

void check_products(Random& random, const std::vector<DType>& types,
                    const std::vector<int64_t>& rows, int64_t cols, int64_t tokens, bool norm,
                    const Launchers& launchers = {}, double limit = kHalfProducts) {
  SCOPED_TRACE(testing::Message() << name(types[0]) << " x" << types.size() << " cols " << cols
                                  << " tokens " << tokens << " norm " << norm << " seed "
                                  << random.seed());
  const std::vector<float> x =
      norm ? random.normals(tokens * cols, 3) : activations(random, tokens, cols);
  const std::vector<float> weight = random.normals(cols);
  const std::vector<float> n = norm ? normed(x, weight, tokens) : x;
  Gpu<float> gpu_x(x), gpu_weight(weight);
  CudaSkinnyProductsArgs args;
  args.x = {gpu_x.data(), cols, tokens, norm ? gpu_weight.data() : nullptr, kEps};
  std::vector<std::unique_ptr<GpuWeights>> weights;
  std::vector<std::unique_ptr<Gpu<float>>> outputs, biases;
  std::vector<std::vector<float>> want;
  for (size_t i = 0; i < types.size(); ++i) {
    weights.push_back(std::make_unique<GpuWeights>(random, types[i], rows[i], cols));
    const std::vector<float> before = random.normals(tokens * rows[i]),
                             bias = random.normals(rows[i]);
    outputs.push_back(std::make_unique<Gpu<float>>(before));
    biases.push_back(std::make_unique<Gpu<float>>(bias));
    CudaSkinnyOutput& output = args.outputs[args.count++];
    output = {weights[i]->gpu(), outputs[i]->data(), rows[i], i == 1 ? biases[i]->data() : nullptr,
              i == 2};
    want.push_back(product(*weights[i], n, tokens));
    for (size_t o = 0; o < want[i].size(); ++o) {
      const size_t r = o % static_cast<size_t>(rows[i]);
      want[i][o] += i == 1 ? bias[r] : i == 2 ? before[o] : 0;
    }
  }
  GpuWorkspace workspace(args, launchers.workspace(tokens, cols));
  ASSERT_TRUE(launchers.take(args));
  ASSERT_TRUE(ran(launchers.launch(args, nullptr)));
  for (size_t i = 0; i < types.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "output " << i);
    expect_close(outputs[i]->read(), want[i], tokens, limit);
  }
}

// Tiles of 32, 64 and 128 tokens, ranges of columns, more formats than one, rows that fill no
// block.
TEST_F(CudaSkinnyGemm, GemmsOfNormedRowsAgreeWithTheSums) {
  if (!has_wgmma()) {
    GTEST_SKIP() << "GEMMs of many tokens in one launch need wgmma";
  }
  Random random(243);
  for (DType dtype : kMarlinTypes) {
    const bool wide = info(dtype).block_elems == 256;
    check_products(random, {dtype, dtype, dtype}, {300, 16, 40}, wide ? 1280 : 1120, 33, true,
                   kGemms);
    // The worst of 130 tokens with 33 sums of few columns each lies further out.
    check_products(random, {dtype, dtype}, {270, 33}, wide ? 256 : 96, 130, true, kGemms,
                   1.5 * kHalfProducts);
  }
  check_products(random, {DType::Q4_K, DType::Q4_K, DType::Q6_K}, {512, 256, 256}, 4096, 70, true,
                 kGemms);
  check_products(random, {DType::Q6_K, DType::Q4_K, DType::Q6_K}, {512, 256, 256}, 2048, 257, true,
                 kGemms);
  check_products(random, {DType::Q4_K}, {4096}, 4096, 129, false, kGemms);
  check_products(random, {DType::Q8_0}, {4096}, 1024, 300, false, kGemms);
}

TEST_F(CudaSkinnyGemm, ProductsOfNormedRowsAgreeWithTheSums) {
  Random random(241);
  for (DType dtype : kMarlinTypes) {
    const bool wide = info(dtype).block_elems == 256;
    check_products(random, {dtype, dtype, dtype}, {300, 16, 40}, wide ? 1280 : 1120, 16, true);
    check_products(random, {dtype, dtype, dtype}, {300, 16, 40}, wide ? 1280 : 1120, 29, true);
    check_products(random, {dtype}, {3000}, wide ? 256 : 96, 5, true);
    check_products(random, {dtype, dtype}, {70, 33}, 4096, 9, true);
  }
}

TEST_F(CudaSkinnyGemm, RowsOfAnySizeKeepTheirPrecision) {
  Random random(242);
  for (DType dtype : kMarlinTypes) {
    check_products(random, {dtype}, {100}, 2048, 2, false);
    check_products(random, {dtype}, {100}, 2048, 16, false);
  }
}

// One to eight ranges of columns, one or two strips a warp, blocks with strips left over.
TEST_F(CudaSkinnyGemm, MatricesOfAllShapesAgree) {
  Random random(243);
  for (DType dtype : {DType::Q4_K, DType::Q6_K, DType::Q8_0}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{17, 14336},
                                     {4112, 512},
                                     {272, 8192},
                                     {9000, 256},
                                     {24, 256},
                                     {1040, 3328}}) {
      for (int64_t tokens : {3, 16, 24, 32, 45, 90})
        check_products(random, {dtype}, {rows}, cols, tokens, false);
    }
  }
}

// Up to eight tokens have a kernel of their own for these formats: one to eight ranges of columns,
// one to sixteen strips of a block at once, with norm, bias and outputs that are added to.
TEST_F(CudaSkinnyGemm, UpToEightTokensAgree) {
  Random random(248);
  for (DType dtype : {DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{40, 14336},
                                     {3000, 4096},
                                     {700, 1280},
                                     {9000, 256},
                                     {56, 32768},
                                     {1040, 11008}}) {
      for (int64_t tokens : {2, 4, 8}) {
        check_products(random, {dtype, dtype, dtype}, {rows, 17, 100}, cols, tokens, tokens != 4);
      }
    }
  }
}

TEST_F(CudaSkinnyGemm, TwoFormatsGoTogether) {
  Random random(244);
  for (DType first : {DType::Q4_K, DType::Q5_K}) {
    check_products(random, {first, first, DType::Q6_K}, {400, 100, 100}, 1024, 16, true);
    check_products(random, {DType::Q6_K, first, first}, {32, 1000, 16}, 512, 7, true);
    check_products(random, {first, first, DType::Q6_K}, {4096, 1024, 1024}, 2048, 4, true);
  }
}

TEST_F(CudaSkinnyGemm, FormatsWithoutAKernelAreRefused) {
  Random random(245);
  const GpuWeights a(random, DType::Q4_0, 16, 256), b(random, DType::Q8_0, 16, 256);
  const GpuWeights plain(random, DType::F16, 16, 256);
  Gpu<float> x(size_t{512}), y(size_t{32}), z(size_t{32});
  CudaSkinnyProductsArgs args;
  args.x = {x.data(), 256, 2, nullptr, 0};
  args.count = 2;
  args.outputs[0] = {a.gpu(), y.data(), 16, nullptr, false};
  args.outputs[1] = {b.gpu(), z.data(), 16, nullptr, false};
  EXPECT_FALSE(skinny_products_take(args));
  args.outputs[1].w = plain.gpu();
  EXPECT_FALSE(skinny_products_take(args));
  args.outputs[1].w = a.gpu();
  EXPECT_TRUE(skinny_products_take(args));
  EXPECT_FALSE(launch_skinny_products(args, nullptr).ok());  // no workspace
}

TEST_F(CudaSkinnyGemm, GateAndUpOfNormedRowsAgreeWithTheSums) {
  Random random(246);
  for (DType dtype : kMarlinTypes) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{48, 256}, {1000, 512}, {72, 2048}, {40, 1280}}) {
      const int64_t tokens = rows == 48 ? 4 : rows == 72 ? 6 : rows == 40 ? 50 : 16;
      const GpuWeights gate(random, dtype, rows, cols), up(random, dtype, rows, cols);
      const std::vector<float> x = random.normals(tokens * cols),
                               weight = random.normals(cols, 0.1f);
      const std::vector<float> n = normed(x, weight, tokens);
      Gpu<float> gpu_x(x), gpu_weight(weight), y(static_cast<size_t>(tokens * rows));
      CudaSkinnyGateUpArgs args;
      args.x = {gpu_x.data(), cols, tokens, gpu_weight.data(), kEps};
      args.gate = gate.gpu();
      args.up = up.gpu();
      args.y = y.data();
      args.y_stride = rows;
      const bool gemm = tokens > 32 && has_wgmma();
      GpuWorkspace workspace(args,
                             gemm ? gemm_workspace(tokens, cols) : skinny_workspace(tokens, cols));
      ASSERT_TRUE(gemm ? gemm_gate_up_takes(args) : skinny_gate_up_takes(args));
      ASSERT_TRUE(ran((gemm ? launch_gemm_gate_up : launch_skinny_gate_up)(args, nullptr)));
      std::vector<float> want = product(gate, n, tokens);
      const std::vector<float> other = product(up, n, tokens);
      for (size_t r = 0; r < want.size(); ++r) want[r] *= other[r] / (1 + std::exp(-want[r]));
      SCOPED_TRACE(testing::Message() << name(dtype) << " " << rows << "x" << cols);
      expect_close(y.read(), want, tokens, 3 * kHalfProducts);
    }
  }
}

// A step of a chain reads what the one before wrote, in one workspace: nothing may start early.
TEST_F(CudaSkinnyGemm, AGraphOfThemGivesTheSameBits) {
  Random random(247);
  constexpr int64_t kHidden = 1024, kWidth = 2560;
  for (int64_t tokens : {4, 8, 16, 48, 90}) {
    const bool gemm = tokens > 64 && has_wgmma();
    const GpuWeights gate(random, DType::Q4_K, kWidth, kHidden),
        up(random, DType::Q4_K, kWidth, kHidden);
    const GpuWeights down(random, DType::Q6_K, kHidden, kWidth);
    const std::vector<float> start = random.normals(tokens * kHidden);
    Gpu<float> first(start), x(start), h(static_cast<size_t>(tokens * kWidth)),
        weight(random.normals(kHidden, 0.05f));
    GpuWorkspace workspace(gemm ? gemm_workspace(tokens, kWidth)
                                : skinny_workspace(tokens, kWidth));
    const auto run = [&](cudaStream_t stream, bool apart) {
      cudaMemcpyAsync(x.data(), first.data(), x.bytes(), cudaMemcpyDeviceToDevice, stream);
      for (int i = 0; i < 12; ++i) {
        CudaSkinnyGateUpArgs args;
        args.x = {x.data(), kHidden, tokens, weight.data(), kEps};
        args.gate = gate.gpu();
        args.up = up.gpu();
        args.y = h.data();
        args.y_stride = kWidth;
        workspace.give(args);
        ASSERT_TRUE((gemm ? launch_gemm_gate_up : launch_skinny_gate_up)(args, stream).ok());
        if (apart) cudaStreamSynchronize(stream);
        CudaSkinnyProductsArgs product;
        product.x = {h.data(), kWidth, tokens, nullptr, 0};
        product.outputs[0] = {down.gpu(), x.data(), kHidden, nullptr, true};
        product.count = 1;
        workspace.give(product);
        ASSERT_TRUE((gemm ? launch_gemm_products : launch_skinny_products)(product, stream).ok());
        if (apart) cudaStreamSynchronize(stream);
      }
    };
    cudaStream_t stream;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    run(stream, true);
    cudaStreamSynchronize(stream);
    const std::vector<float> want = x.read();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    run(stream, false);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      const std::vector<float> got = x.read();
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0)
          << "run " << i << " tokens " << tokens;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

}  // namespace
}  // namespace ktx::kernels
