// Fused launches of one token against sums in double and against the launches of their steps
// one by one.
#include "kernels/cuda/gemv/cuda_fused_gemv.h"

#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaOneToken = CudaTest;

constexpr float kEps = 1e-5f;

std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& weight) {
  double squares = 0;
  for (float v : x) squares += double{v} * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<float> n(x.size());
  for (size_t i = 0; i < x.size(); ++i) n[i] = static_cast<float>(x[i] * scale * weight[i]);
  return n;
}

std::vector<float> product(const GpuWeights& w, int64_t matrix, const float* x) {
  std::vector<float> y;
  for (int64_t r = 0; r < w.gpu().rows; ++r) {
    y.push_back(static_cast<float>(dot(w.row(matrix, r), x)));
  }
  return y;
}

void check_products(Random& random, const std::vector<DType>& types,
                    const std::vector<int64_t>& rows, int64_t cols, bool norm) {
  SCOPED_TRACE(testing::Message() << name(types[0]) << " x" << types.size() << " cols " << cols
                                  << " norm " << norm << " seed " << random.seed());
  const std::vector<float> x = random.normals(cols, 3), weight = random.normals(cols);
  const std::vector<float> n = norm ? normed(x, weight) : x;
  Gpu<float> gpu_x(x), gpu_weight(weight);
  CudaOneProductsArgs args;
  args.x = {gpu_x.data(), norm ? gpu_weight.data() : nullptr, kEps};
  std::vector<std::unique_ptr<GpuWeights>> weights;
  std::vector<std::unique_ptr<Gpu<float>>> outputs, biases;
  std::vector<std::vector<float>> want;
  for (size_t i = 0; i < types.size(); ++i) {
    weights.push_back(std::make_unique<GpuWeights>(random, types[i], rows[i], cols));
    const std::vector<float> before = random.normals(rows[i]), bias = random.normals(rows[i]);
    outputs.push_back(std::make_unique<Gpu<float>>(before));
    biases.push_back(std::make_unique<Gpu<float>>(bias));
    CudaOneOutput& output = args.outputs[args.count++];
    output = {weights[i]->gpu(), outputs[i]->data(), i == 1 ? biases[i]->data() : nullptr, i == 2};
    want.push_back(product(*weights[i], 0, n.data()));
    for (size_t r = 0; r < want[i].size(); ++r) {
      want[i][r] += i == 1 ? bias[r] : i == 2 ? before[r] : 0;
    }
  }
  ASSERT_TRUE(one_products_take(args));
  ASSERT_TRUE(ran(launch_one_products(args, nullptr)));
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_LT(relative_error(outputs[i]->read(), want[i]), kHalfProducts) << "output " << i;
  }
}

TEST_F(CudaOneToken, ProductsOfANormedRowAgreeWithTheSums) {
  Random random(141);
  for (DType dtype : kMarlinTypes) {
    const bool wide = info(dtype).block_elems == 256;
    check_products(random, {dtype, dtype, dtype}, {300, 16, 40}, wide ? 1280 : 1120, true);
    check_products(random, {dtype}, {3000}, wide ? 256 : 96, true);
    check_products(random, {dtype, dtype}, {70, 33}, 4096, false);
  }
}

TEST_F(CudaOneToken, TwoFormatsGoTogether) {
  Random random(142);
  for (DType first : {DType::Q4_K, DType::Q5_K}) {
    check_products(random, {first, first, DType::Q6_K}, {400, 100, 100}, 1024, true);
    check_products(random, {DType::Q6_K, first, first}, {32, 5000, 16}, 512, true);
  }
}

// Launches of more strips than blocks have one of each.
TEST_F(CudaOneToken, ProductsOfManyStripsAgreeWithTheSums) {
  Random random(147);
  for (DType dtype : kMarlinTypes) {
    const bool wide = info(dtype).block_elems == 256;
    check_products(random, {dtype, dtype, dtype}, {9000, 16, 40}, wide ? 256 : 288, true);
    check_products(random, {dtype}, {7777}, wide ? 512 : 416, false);
  }
  for (DType dtype : {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::MXFP4}) {
    const bool wide = info(dtype).block_elems == 256;
    check_products(random, {dtype, dtype, dtype}, {6500, 100, 40}, wide ? 4352 : 4256, true);
    check_products(random, {dtype}, {6700}, wide ? 4096 : 4192, false);
  }
  check_products(random, {DType::Q4_K, DType::Q4_K, DType::Q6_K}, {6500, 100, 333}, 4352, true);
}

// Few strips, from one warp a block to the most, and of more columns than that.
TEST_F(CudaOneToken, StripsOfAllWidthsAgreeWithTheSums) {
  Random random(148);
  for (int64_t cols : {256, 1792, 2048, 2304, 4096, 5120, 8192, 14336, 16640}) {
    check_products(random, {DType::Q4_K, DType::Q4_K, DType::Q6_K}, {40, 16, 21}, cols, true);
    check_products(random, {DType::Q5_0}, {37}, cols + 32, false);
  }
}

TEST_F(CudaOneToken, FormatsWithoutAKernelAreRefused) {
  Random random(143);
  const GpuWeights a(random, DType::Q4_0, 16, 256), b(random, DType::Q8_0, 16, 256);
  const GpuWeights plain(random, DType::F16, 16, 256);
  Gpu<float> x(size_t{256}), y(size_t{16}), z(size_t{16});
  CudaOneProductsArgs args;
  args.x.x = x.data();
  args.count = 2;
  args.outputs[0] = {a.gpu(), y.data(), nullptr, false};
  args.outputs[1] = {b.gpu(), z.data(), nullptr, false};
  EXPECT_FALSE(one_products_take(args));
  args.outputs[1].w = plain.gpu();
  EXPECT_FALSE(one_products_take(args));
  args.outputs[1].w = a.gpu();
  EXPECT_TRUE(one_products_take(args));
}

TEST_F(CudaOneToken, GateAndUpOfANormedRowAgreeWithTheSums) {
  Random random(144);
  for (DType dtype : kMarlinTypes) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{48, 256}, {3000, 512}, {72, 2048}, {300, 4352}}) {
      const GpuWeights gate(random, dtype, rows, cols), up(random, dtype, rows, cols);
      const std::vector<float> x = random.normals(cols), weight = random.normals(cols, 0.1f);
      const std::vector<float> n = normed(x, weight);
      Gpu<float> gpu_x(x), gpu_weight(weight), y(static_cast<size_t>(rows));
      CudaOneGateUpArgs args{
          {gpu_x.data(), gpu_weight.data(), kEps}, gate.gpu(), up.gpu(), y.data(), {}};
      ASSERT_TRUE(one_gate_up_takes(args));
      ASSERT_TRUE(ran(launch_one_gate_up(args, nullptr)));
      std::vector<float> want = product(gate, 0, n.data());
      const std::vector<float> other = product(up, 0, n.data());
      for (size_t r = 0; r < want.size(); ++r) want[r] *= other[r] / (1 + std::exp(-want[r]));
      EXPECT_LT(relative_error(y.read(), want), 3 * kHalfProducts)
          << name(dtype) << " " << rows << "x" << cols;
    }
  }
}

TEST_F(CudaOneToken, TheRoutersProductGivesTheNormedRowsToo) {
  Random random(145);
  for (int64_t tokens : {1, 3}) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{8, 64}, {128, 2048}, {256, 7168}}) {
      const GpuWeights w(random, DType::F32, rows, cols);
      const std::vector<float> weight = random.normals(cols);
      std::vector<float> x, normed_rows, products;
      for (int64_t t = 0; t < tokens; ++t) {
        const std::vector<float> row = random.normals(cols, 5), n = normed(row, weight);
        const std::vector<float> logits = product(w, 0, n.data());
        x.insert(x.end(), row.begin(), row.end());
        normed_rows.insert(normed_rows.end(), n.begin(), n.end());
        products.insert(products.end(), logits.begin(), logits.end());
      }
      Gpu<float> gpu_x(x), gpu_weight(weight), logits(products.size()), n(x.size());
      CudaOneRouterArgs args;
      args.x = {gpu_x.data(), gpu_weight.data(), kEps};
      args.x_stride = args.normed_stride = cols;
      args.tokens = tokens;
      args.w = w.gpu();
      args.logits = logits.data();
      args.logits_stride = rows;
      args.normed = n.data();
      ASSERT_TRUE(one_router_takes(args));
      ASSERT_TRUE(ran(launch_one_router(args, nullptr)));
      EXPECT_LT(relative_error(n.read(), normed_rows), 1e-6) << rows << " " << tokens;
      EXPECT_LT(relative_error(logits.read(), products), 2e-6) << rows << " " << tokens;
    }
  }
}

struct ExpertsCase {
  int32_t experts, top_k;
  int64_t hidden, width;
  DType gate, down;
};

std::vector<float> product_of(const CudaWeight& w, const float* x, int64_t tokens) {
  Gpu<float> y(static_cast<size_t>(tokens * w.rows));
  CudaMatmulArgs args;
  args.w = w;
  args.x = x;
  args.x_stride = w.cols;
  args.tokens = tokens;
  args.y = y.data();
  args.y_stride = w.rows;
  GpuWorkspace workspace(args, cuda_matmul_workspace(args));
  EXPECT_TRUE(ran(launch_matmul(args, nullptr)));
  return y.read();
}

// A shared expert with a score and one without: the routed ones' sum and its products one by one.
void check_shared(Random& random, const CudaOneChoicesArgs& choices, CudaOneSumArgs sum,
                  const std::vector<float>& routed, const std::vector<float>& before) {
  const int64_t tokens = sum.tokens, width = choices.gate.rows, hidden = choices.gate.cols;
  const GpuWeights gate(random, choices.gate.dtype, width, hidden, 1),
      up(random, choices.gate.dtype, width, hidden, 1),
      down(random, sum.down.dtype, hidden, width, 1);
  std::vector<float> score_weight = random.normals(hidden);
  for (float& v : score_weight) v /= std::sqrt(static_cast<float>(hidden));
  Gpu<float> score_row(score_weight), score(static_cast<size_t>(tokens));
  Gpu<float> h(static_cast<size_t>(tokens * width));
  const Gpu<float> scores(product_of({reinterpret_cast<const std::byte*>(score_row.data()),
                                      DType::F32, Layout::Rows, 1, hidden, 0},
                                     choices.x, tokens));
  std::vector<float> inner = product_of(gate.gpu(), choices.x, tokens);
  const std::vector<float> of_up = product_of(up.gpu(), choices.x, tokens);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] *= of_up[i] / (1 + std::exp(-inner[i]));
  Gpu<float> read(inner);
  const std::vector<float> out = product_of(down.gpu(), read.data(), tokens);
  for (const bool scored : {true, false}) {
    std::vector<float> want = routed;
    for (size_t i = 0; i < want.size(); ++i) {
      const float of_token = scores.read()[i / static_cast<size_t>(hidden)];
      want[i] += out[i] * (scored ? 1 / (1 + std::exp(-of_token)) : 1);
    }
    CudaOneShared shared{gate.gpu(), up.gpu(), down.gpu(), h.data(), width};
    if (scored) {
      shared.score_weight = score_row.data();
      shared.score = score.data();
      shared.score_stride = 1;
    }
    ASSERT_TRUE(one_shared_takes(choices, sum, shared));
    Gpu<float> y(before);
    sum.y = y.data();
    ASSERT_TRUE(ran(launch_one_experts(choices, sum, &shared, nullptr)));
    EXPECT_LT(relative_error(y.read(), want), kHalfProducts) << "scored " << scored;
    EXPECT_LT(relative_error(h.read(), inner), kHalfProducts);
    const std::vector<float> first = y.read();
    Gpu<float> again(before);
    sum.y = again.data();
    ASSERT_TRUE(ran(launch_one_experts(choices, sum, &shared, nullptr)));
    EXPECT_TRUE(same_bits(again.read(), first));
  }
}

void check_experts(Random& random, const ExpertsCase& c, int64_t tokens, bool padding,
                   bool gpt_oss = false) {
  SCOPED_TRACE(testing::Message() << c.experts << " top " << c.top_k << " " << c.hidden << " "
                                  << c.width << " " << name(c.gate) << " tokens " << tokens
                                  << " padding " << padding << " seed " << random.seed());
  const GpuWeights gate(random, c.gate, c.width, c.hidden, c.experts),
      up(random, c.gate, c.width, c.hidden, c.experts),
      down(random, c.down, c.hidden, c.width, c.experts);
  const std::vector<float> before = random.normals(tokens * c.hidden);
  Gpu<float> logits(random.normals(tokens * c.experts)), x(random.normals(tokens * c.hidden));
  Gpu<float> bias(random.normals(c.experts)), y(before), expected(before);
  std::vector<int32_t> positions(static_cast<size_t>(tokens), 3);
  if (padding) positions.back() = -1;
  Gpu<int32_t> position(positions);
  const auto top = static_cast<size_t>(tokens * c.top_k);
  Gpu<int32_t> ids(top), other_ids(top), order(top), offsets(static_cast<size_t>(c.experts) + 1);
  Gpu<float> weights(top), other_weights(top);
  Gpu<float> h(top * static_cast<size_t>(c.width)), other_h(top * static_cast<size_t>(c.width));
  // One by one.
  CudaRouterArgs router;
  router.logits = logits.data();
  router.logits_stride = c.experts;
  router.bias = bias.data();
  router.position = position.data();
  router.attrs.experts = c.experts;
  router.attrs.top_k = c.top_k;
  router.attrs.scoring = static_cast<int32_t>(Scoring::Sigmoid);
  router.attrs.normalize = 1;
  router.tokens = tokens;
  router.ids = other_ids.data();
  router.weights = other_weights.data();
  ASSERT_TRUE(ran(launch_router(router, nullptr)));
  CudaGroupExpertsArgs group;
  group.ids = other_ids.data();
  group.tokens = tokens;
  group.attrs = {c.experts, c.top_k};
  group.order = order.data();
  group.offsets = offsets.data();
  ASSERT_TRUE(ran(launch_group_experts(group, nullptr)));
  CudaExpertsGateUpArgs first;
  first.gate = gate.gpu();
  first.up = up.gpu();
  first.attrs = {c.experts, c.top_k, 0};
  const auto bias_of = [&](int64_t rows) { return random.normals(c.experts * rows); };
  Gpu<float> gate_bias(bias_of(c.width)), up_bias(bias_of(c.width)), down_bias(bias_of(c.hidden));
  if (gpt_oss) {
    first.attrs.activation = static_cast<int32_t>(Activation::GptOss);
    first.attrs.limit = 1;
    first.gate_bias = gate_bias.data();
    first.up_bias = up_bias.data();
  }
  first.order = order.data();
  first.offsets = offsets.data();
  first.x = x.data();
  first.x_stride = c.hidden;
  first.tokens = tokens;
  first.kernel = GpuKernel::MarlinGemv;
  first.h = other_h.data();
  first.h_stride = c.width;
  GpuWorkspace first_workspace(first, cuda_experts_gate_up_workspace(first));
  ASSERT_TRUE(ran(launch_experts_gate_up(first, nullptr)));
  CudaExpertsDownArgs second;
  second.down = down.gpu();
  if (gpt_oss) second.bias = down_bias.data();
  second.attrs = {c.experts, c.top_k, 1};
  second.order = order.data();
  second.offsets = offsets.data();
  second.weights = other_weights.data();
  second.h = other_h.data();
  second.h_stride = c.width;
  second.tokens = tokens;
  second.kernel = GpuKernel::MarlinGemv;
  second.y = expected.data();
  second.y_stride = c.hidden;
  GpuWorkspace second_workspace(second, cuda_experts_down_workspace(second));
  ASSERT_TRUE(ran(launch_experts_down(second, nullptr)));
  // Together.
  CudaOneChoicesArgs choices;
  choices.router = router;
  choices.gate = gate.gpu();
  choices.up = up.gpu();
  choices.glu = first.attrs.glu();
  choices.gate_bias = first.gate_bias;
  choices.up_bias = first.up_bias;
  choices.x = x.data();
  choices.x_stride = c.hidden;
  choices.h = h.data();
  choices.h_stride = c.width;
  choices.router.ids = ids.data();
  choices.router.weights = weights.data();
  ASSERT_TRUE(one_choices_take(choices));
  ASSERT_TRUE(ran(launch_one_choices(choices, nullptr)));
  CudaOneSumArgs sum;
  sum.down = down.gpu();
  sum.attrs = second.attrs;
  sum.tokens = tokens;
  sum.ids = ids.data();
  sum.weights = weights.data();
  sum.h = h.data();
  sum.h_stride = c.width;
  sum.y = y.data();
  sum.y_stride = c.hidden;
  sum.bias = second.bias;
  ASSERT_TRUE(one_sum_takes(sum));
  ASSERT_TRUE(ran(launch_one_sum(sum, nullptr)));
  EXPECT_EQ(ids.read(), other_ids.read());
  EXPECT_TRUE(same_bits(weights.read(), other_weights.read()));
  const double most = padding && tokens == 1 ? 1e-9 : kHalfProducts;
  EXPECT_LT(relative_error(y.read(), expected.read()), most);
  // Both in a row, the second reading the choice ahead: the same bits.
  Gpu<float> again(before);
  sum.y = again.data();
  ASSERT_TRUE(ran(launch_one_experts(choices, sum, nullptr, nullptr)));
  EXPECT_TRUE(same_bits(again.read(), y.read()));
  if (padding) return;
  EXPECT_LT(relative_error(h.read(), other_h.read()), kHalfProducts);
  if (!gpt_oss) check_shared(random, choices, sum, expected.read(), before);
}

TEST_F(CudaOneToken, ExpertsAgreeWithTheirStepsOneByOne) {
  Random random(146);
  const ExpertsCase cases[] = {
      {8, 2, 256, 512, DType::Q4_K, DType::Q6_K},     {128, 8, 2048, 768, DType::Q4_K, DType::Q6_K},
      {32, 8, 1024, 1024, DType::Q4_K, DType::Q8_0},  {16, 6, 96, 160, DType::Q8_0, DType::Q5_0},
      {256, 8, 512, 256, DType::IQ4_XS, DType::Q4_K}, {4, 4, 64, 32, DType::MXFP4, DType::Q4_1},
      {256, 8, 2048, 512, DType::Q4_K, DType::Q6_K}};
  for (const ExpertsCase& c : cases) {
    for (int64_t tokens : {1, 2, 3}) {
      check_experts(random, c, tokens, false);
      check_experts(random, c, tokens, true);
      check_experts(random, c, tokens, false, true);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
