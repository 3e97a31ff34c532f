// Row ops of the GPU against the scalar CPU ops.
#include "kernels/cuda/rows/cuda_rows.h"

#include "kernels/embed/embed_grid.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_grid.h"
#include "kernels/rows/pool_rows.h"
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
      args.position[0] = gpu_position.data();
      args.tokens = tokens;
      args.attrs = host.attrs;
      (*find_rope("rope", Isa::Scalar))(host);
      ASSERT_TRUE(ran(launch_rope(args, nullptr)));
      expect_close(gpu_y.read(), want, 1e-6f);
    }
  }
}

// Each pair by one of three positions.
TEST_F(CudaRows, RopeGridAgreesWithTheScalarOp) {
  Random random(85);
  constexpr int32_t kHeads = 5, kDim = 72;
  const int64_t tokens = 37, width = kHeads * kDim;
  for (const RopeGridAttrs& attrs : {RopeGridAttrs{kHeads, kDim, 0, 72, 18, 18, 0, 1},
                                     {kHeads, kDim, 1, 40, 6, 7, 0, 1.25f},
                                     {kHeads, kDim, 0, 64, 10, 9, 1, 1}}) {
    std::vector<float> want = random.normals(tokens * width), inv_freq, scratch(kDim);
    for (int i = 0; i < attrs.rotary_dim / 2; ++i) {
      inv_freq.push_back(std::pow(1000.0f, -static_cast<float>(i) / 36));
    }
    std::vector<std::vector<int32_t>> position(kTokenAxes);
    for (int32_t t = 0; t < tokens; ++t) {
      position[0].push_back(1000 + t), position[1].push_back(1000 + t / 6);
      position[2].push_back(1000 + t % 6);
    }
    Gpu<float> y(want), gpu_freq(inv_freq);
    Gpu<int32_t> time(position[0]), line(position[1]), column(position[2]);
    CudaRopeArgs args;
    args.x = args.y = y.data();
    args.x_stride = args.y_stride = width;
    args.inv_freq = gpu_freq.data();
    args.position[0] = time.data(), args.position[1] = line.data();
    args.position[2] = column.data();
    for (int i = 0; i < attrs.rotary_dim / 2; ++i) {
      args.axis[i] = static_cast<uint8_t>(attrs.axis_of(i));
    }
    args.tokens = tokens;
    args.attrs.heads = kHeads;
    args.attrs.head_dim = args.attrs.y_head_dim = kDim;
    args.attrs.rotary_dim = attrs.rotary_dim;
    args.attrs.interleaved = attrs.interleaved;
    args.attrs.mscale = attrs.mscale;
    ASSERT_TRUE(ran(launch_rope(args, nullptr)));
    RopeGridArgs host;
    host.y = want.data();
    host.y_stride = width;
    host.inv_freq = inv_freq.data();
    for (size_t axis = 0; axis < position.size(); ++axis)
      host.position[axis] = position[axis].data();
    host.attrs = attrs;
    host.token_end = tokens;
    host.scratch = scratch.data();
    (*find_rope_grid("rope_grid", Isa::Scalar))(host);
    expect_close(y.read(), want, 1e-5f);
  }
}

// Rows that come with some of the tokens: put in place, or added.
TEST_F(CudaRows, GivenRowsAreThoseOfTheirTokens) {
  Random random(86);
  constexpr int64_t kWidth = 300, kStride = 650;
  const std::vector<float> rows = random.normals(4 * kStride), before = random.normals(5 * kWidth);
  const std::vector<int32_t> row = {-1, 3, 0, -1, 2};
  Gpu<float> gpu_rows(rows);
  Gpu<int32_t> gpu_row(row);
  for (const bool adds : {false, true}) {
    for (const bool all : {false, true}) {
      Gpu<float> y(before);
      CudaGivenRowsArgs args;
      args.rows = gpu_rows.data() + 50;
      args.row_stride = kStride;
      args.row = all ? nullptr : gpu_row.data();
      args.y = y.data();
      args.y_stride = args.width = kWidth;
      args.tokens = all ? 4 : 5;
      args.adds = adds;
      ASSERT_TRUE(ran(launch_given_rows(args, nullptr)));
      std::vector<float> want = before;
      for (int64_t t = 0; t < args.tokens; ++t) {
        const int64_t from = all ? t : row[static_cast<size_t>(t)];
        for (int64_t i = 0; from >= 0 && i < kWidth; ++i) {
          float& at = want[static_cast<size_t>(t * kWidth + i)];
          at = (adds ? at : 0) + rows[static_cast<size_t>(from * kStride + 50 + i)];
        }
      }
      EXPECT_TRUE(same_bits(y.read(), want)) << adds << all;
    }
  }
}

TEST_F(CudaRows, EmbedGridAgreesWithTheScalarOp) {
  Random random(87);
  constexpr int64_t kSide = 7, kCols = 512;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0}) {
    const GpuWeights table(random, dtype, kSide * kSide, kCols, 1, false);
    for (const auto& [lines, columns] : {std::pair{7, 7}, {1, 1}, {1, 9}, {12, 2}, {30, 13}}) {
      const int64_t tokens = int64_t{lines} * columns;
      std::vector<int32_t> line, column;
      for (int t = 0; t < tokens; ++t) line.push_back(t / columns), column.push_back(t % columns);
      std::vector<float> want(static_cast<size_t>(tokens * kCols)), scratch(kCols);
      EmbedGridArgs host;
      host.table.dtype = dtype;
      host.table.data = table.host().data();
      host.table.rows = kSide * kSide, host.table.cols = kCols;
      host.table.row_bytes = table.host().row_bytes();
      host.side = kSide;
      host.line = line.data(), host.column = column.data();
      host.lines = lines, host.columns = columns;
      host.y = want.data(), host.y_stride = kCols;
      host.token_end = tokens, host.scratch = scratch.data();
      (*find_embed_grid("embed_grid", Isa::Scalar))(host);
      Gpu<int32_t> gpu_line(line), gpu_column(column);
      Gpu<int32_t> grid(std::vector<int32_t>{columns, lines});
      Gpu<float> y(want.size());
      CudaEmbedGridArgs args;
      args.table = table.gpu();
      args.side = kSide;
      args.line = gpu_line.data(), args.column = gpu_column.data(), args.grid = grid.data();
      args.tokens = tokens;
      args.y = y.data(), args.y_stride = kCols;
      ASSERT_TRUE(ran(launch_embed_grid(args, nullptr)));
      expect_close(y.read(), want, 1e-6f);
    }
  }
}

TEST_F(CudaRows, PoolRowsAgreeWithTheScalarOp) {
  Random random(88);
  constexpr int64_t kLines = 6, kColumns = 12, kWidth = 130;
  const std::vector<float> x = random.normals(kLines * kColumns * kWidth);
  Gpu<float> gpu_x(x);
  for (const int32_t side : {1, 2, 3}) {
    std::vector<int32_t> first;
    for (int64_t line = 0; line < kLines; line += side) {
      for (int64_t column = 0; column < kColumns; column += side) {
        first.push_back(static_cast<int32_t>(line * kColumns + column));
      }
    }
    const auto rows = std::ssize(first);
    first.push_back(-1);  // padding
    Gpu<int32_t> gpu_first(first), grid(std::vector<int32_t>{kColumns, kLines});
    for (const int32_t unfold : {0, 1, 2}) {
      const int64_t width = kWidth * (unfold ? side * side : 1);
      std::vector<float> want(static_cast<size_t>((rows + 1) * width), -7);
      Gpu<float> y(want);
      PoolRowsArgs host;
      host.x = x.data(), host.x_stride = host.width = kWidth;
      host.y = want.data(), host.y_stride = width;
      host.first = first.data(), host.columns = kColumns;
      host.attrs = {side, unfold};
      host.token_end = rows;
      (*find_pool_rows("pool_rows", Isa::Scalar))(host);
      CudaPoolRowsArgs args;
      args.x = gpu_x.data(), args.x_stride = args.width = kWidth;
      args.y = y.data(), args.y_stride = width;
      args.first = gpu_first.data(), args.grid = grid.data();
      args.tokens = rows + 1;
      args.attrs = host.attrs;
      ASSERT_TRUE(ran(launch_pool_rows(args, nullptr)));
      EXPECT_TRUE(same_bits(y.read(), want)) << side << ", " << unfold;
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
