// Row ops of the GPU against the scalar CPU ops.
#include "kernels/cuda/rows/cuda_rows.h"

#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "lib/formats/layout.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaRows = CudaTest;

void expect_close(const std::vector<float>& got, const std::vector<float>& want, float epsilon) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], epsilon * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

TEST_F(CudaRows, EmbedDecodesRowsExactlyAndTilesInHalfPrecision) {
  Random random(81);
  for (DType dtype : weight_dtypes()) {
    for (bool marlin : {false, true}) {
      if (!cuda_embed_takes(dtype, marlin ? Layout::Marlin : Layout::Rows)) continue;
      const int64_t rows = 50, cols = 512;
      const GpuWeights table(random, dtype, rows, cols, 1, marlin);
      const std::vector<int32_t> ids = {0, 49, 17, -1, 50, 8};
      Gpu<int32_t> gpu_ids(ids);
      Gpu<float> y(ids.size() * cols);
      CudaEmbedArgs args;
      args.table = table.gpu();
      args.ids = gpu_ids.data();
      args.tokens = static_cast<int64_t>(ids.size());
      args.y = y.data();
      args.y_stride = cols;
      ASSERT_TRUE(ran(launch_embed(args, nullptr)));
      std::vector<float> want;
      for (int32_t id : ids) {
        const std::vector<float> row =
            id >= 0 && id < rows ? table.row(0, id) : std::vector<float>(cols);
        want.insert(want.end(), row.begin(), row.end());
      }
      if (marlin) {
        EXPECT_LT(relative_error(y.read(), want), kHalfProducts) << name(dtype);
      } else {
        EXPECT_TRUE(same_bits(y.read(), want)) << name(dtype);
      }
    }
  }
}

TEST_F(CudaRows, RmsNormOfRowsAndHeads) {
  Random random(82);
  struct Case {
    int64_t width;
    int32_t groups;
    int64_t tokens;
  };
  for (const Case c : {Case{4096, 1, 3}, Case{256, 1, 1}, Case{512, 8, 5}, Case{100, 4, 7},
                       Case{5001, 1, 2}, Case{4096, 32, 9}}) {
    const std::vector<float> x = random.normals(c.tokens * c.width);
    const std::vector<float> weight = random.normals(c.width / c.groups);
    std::vector<float> want(x.size());
    RmsNormArgs host;
    host.x = x.data();
    host.x_stride = host.y_stride = host.width = c.width;
    host.weight = weight.data();
    host.y = want.data();
    host.attrs.eps = 1e-6f;
    host.attrs.groups = c.groups;
    host.token_end = c.tokens;
    (*find_rms_norm("rms_norm", Isa::Scalar))(host);
    Gpu<float> y(x), gpu_weight(weight);  // in place
    CudaRmsNormArgs args;
    args.x = args.y = y.data();
    args.x_stride = args.y_stride = args.width = c.width;
    args.weight = gpu_weight.data();
    args.tokens = c.tokens;
    args.attrs = host.attrs;
    ASSERT_TRUE(ran(launch_rms_norm(args, nullptr)));
    expect_close(y.read(), want, 2e-6f);

    // Added to a residual, in its place: the same bits as the norm and then the sum.
    const std::vector<float> normed = y.read(), residual = random.normals(c.tokens * c.width);
    std::vector<float> sum(residual);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += normed[i];
    Gpu<float> gpu_x(x);
    Gpu<float> added(residual);
    args.x = gpu_x.data();
    args.residual = args.y = added.data();
    args.residual_stride = c.width;
    ASSERT_TRUE(ran(launch_rms_norm(args, nullptr)));
    EXPECT_TRUE(same_bits(added.read(), sum)) << c.width;
  }
}

TEST_F(CudaRows, LayerNormOfRowsAndHeads) {
  Random random(84);
  struct Case {
    int64_t width;
    int32_t groups;
    int64_t tokens;
  };
  for (const Case c : {Case{4096, 1, 3}, Case{128, 1, 1}, Case{512, 8, 5}, Case{100, 4, 7}}) {
    std::vector<float> x = random.normals(c.tokens * c.width);
    for (float& v : x) v += 2;
    const std::vector<float> weight = random.normals(c.width / c.groups);
    const std::vector<float> bias = random.normals(c.width / c.groups);
    for (bool biased : {false, true}) {
      std::vector<float> want(x.size());
      LayerNormArgs host;
      host.x = x.data();
      host.x_stride = host.y_stride = host.width = c.width;
      host.weight = weight.data();
      host.bias = biased ? bias.data() : nullptr;
      host.y = want.data();
      host.attrs = {1e-6f, c.groups};
      host.token_end = c.tokens;
      (*find_layer_norm("layer_norm", Isa::Scalar))(host);
      Gpu<float> y(x), gpu_weight(weight), gpu_bias(bias);  // in place
      CudaLayerNormArgs args;
      args.x = args.y = y.data();
      args.x_stride = args.y_stride = args.width = c.width;
      args.weight = gpu_weight.data();
      args.bias = biased ? gpu_bias.data() : nullptr;
      args.tokens = c.tokens;
      args.attrs = host.attrs;
      ASSERT_TRUE(ran(launch_layer_norm(args, nullptr)));
      expect_close(y.read(), want, 1e-5f);
    }
  }
}

TEST_F(CudaRows, RopeTurnsThePartThatItIsAskedTo) {
  Random random(83);
  for (bool interleaved : {false, true}) {
    for (bool in_place : {false, true}) {
      RopeArgs host;
      host.attrs.heads = 3;
      host.attrs.head_dim = 96;
      host.attrs.rotary_begin = 64;
      host.attrs.rotary_dim = 32;
      host.attrs.y_head_dim = in_place ? 96 : 80;
      host.attrs.y_begin = in_place ? 64 : 40;
      host.attrs.interleaved = interleaved;
      host.attrs.mscale = 1.2f;
      const int64_t tokens = 4;
      const std::vector<float> x = random.normals(tokens * 3 * 96);
      const std::vector<int32_t> position = {0, 1, 777, 131071};
      std::vector<float> inv_freq, scratch(32);
      for (int i = 0; i < 16; ++i)
        inv_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / 16));
      std::vector<float> want = in_place ? x : random.normals(tokens * 3 * host.attrs.y_head_dim);
      Gpu<float> gpu_x(x), gpu_y(want), gpu_freq(inv_freq);
      host.x = in_place ? want.data() : x.data();
      host.x_stride = 3 * 96;
      host.y = want.data();
      host.y_stride = 3 * host.attrs.y_head_dim;
      host.inv_freq = inv_freq.data();
      host.position = position.data();
      host.token_end = tokens;
      host.scratch = scratch.data();
      Gpu<int32_t> gpu_position(position);
      CudaRopeArgs args;
      args.x = in_place ? gpu_y.data() : gpu_x.data();
      args.x_stride = host.x_stride;
      args.y = gpu_y.data();
      args.y_stride = host.y_stride;
      args.inv_freq = gpu_freq.data();
      args.position = gpu_position.data();
      args.tokens = tokens;
      args.attrs = host.attrs;
      (*find_rope("rope", Isa::Scalar))(host);
      ASSERT_TRUE(ran(launch_rope(args, nullptr)));
      expect_close(gpu_y.read(), want, 1e-6f);
    }
  }
}

TEST_F(CudaRows, ElementwiseOpsAgree) {
  Random random(84);
  for (int64_t width : {1024, 37}) {
    const int64_t tokens = 3;
    const std::vector<float> a = random.normals(tokens * width, 3),
                             b = random.normals(tokens * width);
    const std::vector<float> gate = random.normals(tokens);
    Gpu<float> ga(a), gb(b), ggate(gate), y(a.size());
    std::vector<float> glu, sum, scaled;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const double p = a[t * width + i], q = b[t * width + i];
        glu.push_back(static_cast<float>(p / (1 + std::exp(-p)) * q));
        sum.push_back(static_cast<float>(p + q));
        scaled.push_back(static_cast<float>(p / (1 + std::exp(-double{gate[t]}))));
      }
    }
    RowsArgs args;
    args.in[0] = {ga.data(), width};
    args.in[1] = {gb.data(), width};
    args.y = y.data();
    args.y_stride = args.width = width;
    args.token_end = tokens;
    args.attrs = GluAttrs{};
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::Glu)(args, nullptr)));
    expect_close(y.read(), glu, 2e-6f);
    args.attrs = NoAttrs{};
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::Add)(args, nullptr)));
    EXPECT_TRUE(same_bits(y.read(), sum));
    args.in[1] = {ggate.data(), 1};
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::SigmoidScale)(args, nullptr)));
    expect_close(y.read(), scaled, 2e-6f);
    std::vector<float> multiplied;
    for (float value : a) multiplied.push_back(value * 0.22f);
    args.attrs = ScaleAttrs{0.22f};
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::Scale)(args, nullptr)));
    EXPECT_TRUE(same_bits(y.read(), multiplied));
    const std::vector<int32_t> at = {99, 250, -1};
    Gpu<int32_t> position(at);
    std::vector<float> grown = a;
    for (int64_t i = 0; i < width; ++i) {
      grown[static_cast<size_t>(width + i)] *= 1 + 0.1f * std::log(3.0f);
    }
    args.position = position.data();
    args.attrs = PositionScaleAttrs{0.1f, 100};
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::PositionScale)(args, nullptr)));
    expect_close(y.read(), grown, 2e-6f);
    Gpu<int32_t> rows(std::vector<int32_t>{2, -1, 0});
    RowsArgs gather;
    gather.in[0] = {ga.data(), width};
    gather.from = rows.data();
    gather.token_end = 3;
    gather.y = y.data();
    gather.y_stride = gather.width = width;
    ASSERT_TRUE(ran(find_cuda_rows(StepOp::GatherRows)(gather, nullptr)));
    EXPECT_EQ(find_cuda_rows(StepOp::Rope), nullptr);
    std::vector<float> want(a.begin() + 2 * width, a.end());
    want.resize(static_cast<size_t>(2 * width));
    want.insert(want.end(), a.begin(), a.begin() + width);
    EXPECT_TRUE(same_bits(y.read(), want));
  }
}

}  // namespace
}  // namespace ktx::kernels
