// Every product, dtype and instruction set against an oracle in double; then the numerics
// contract: the same bits in any batch.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <set>

#include "kernels/kernel_id.h"
#include "kernels/matmul/code_range.h"
#include "kernels/matmul/matmul_bf16_dots.h"
#include "kernels/matmul/matmul_panel_emulated.h"
#include "kernels/matmul/panel16.h"
#include "kernels/quantize/quantize.h"
#include "lib/formats/act_bf16.h"
#include "lib/formats/act_q8.h"
#include "lib/formats/int8_form.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

Arithmetic arithmetic(std::string_view family) {
  return find_kernel_family(family)->arithmetic;
}
bool is_q8(std::string_view family) {
  return arithmetic(family) == Arithmetic::Int8;
}
// BF16 weights and activations; with `tile` any weights, rounded to BF16.
bool is_tile(std::string_view family) {
  return arithmetic(family) == Arithmetic::TileBf16;
}
bool is_bf16(std::string_view family) {
  return arithmetic(family) == Arithmetic::Bf16;
}
Layout layout_of(std::string_view family) {
  return *find_kernel_family(family)->layout;
}
// Whether plans may name the family for products of such weights.
bool takes(const KernelFamily& family, DType dtype) {
  return has(family.weights[0], dtype) || has(family.weights[1], dtype);
}
bool is_product(const KernelFamily& family) {
  return family.device == FamilyDevice::Cpu && family.arithmetic != Arithmetic::TransposedF32 &&
         std::ranges::find(family.ops, StepOp::MatmulHeads) != family.ops.end();
}
bool can_have(Layout layout, DType dtype) {
  return matrix_bytes(layout, dtype, kPanelRows, info(dtype).block_elems).has_value();
}

struct Case {
  std::string_view family;
  DType dtype;
  Isa isa;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const KernelFamily& family : all_kernel_families()) {
    if (!is_product(family)) continue;
    for (DType dtype : weight_dtypes()) {
      if (!takes(family, dtype) || !can_have(*family.layout, dtype)) continue;
      for (Isa isa : usable_isas()) cases.push_back({family.name, dtype, isa});
    }
  }
  return cases;
}

// Activations as floats, and as int8 and BF16 rows; what a family reads, in double.
struct Activations {
  int64_t tokens, cols, stride;
  std::vector<float> x;
  AlignedBytes xq, bf16;

  Activations(Random& random, int64_t tokens, int64_t cols)
      : tokens(tokens),
        cols(cols),
        stride(cols + 3),
        x(random.normals(tokens * stride)),
        xq(std::max<int64_t>(64, tokens * act_q8_row_bytes(cols))),
        bf16(std::max<int64_t>(64, tokens * act_bf16_row_bytes(cols))) {
    if (cols % 32 == 0) quantize();
  }
  void quantize() {
    QuantizeArgs a = quantize_args(x, stride, cols, tokens, xq, act_q8_row_bytes(cols));
    (*find_quantize("quantize_q8", Isa::Scalar))(a);
    a.xq = bf16.data();
    a.xq_stride = act_bf16_row_bytes(cols);
    (*find_quantize("quantize_bf16", Isa::Scalar))(a);
  }
  double value(std::string_view family, int64_t t, int64_t k) {
    if (!is_q8(family)) {
      const float v = x[static_cast<size_t>(t * stride + k)];
      const bool rounded = is_bf16(family) || is_tile(family);
      return rounded ? bfloat16_to_float(float_to_bfloat16(v)) : v;
    }
    const std::byte* row = xq.data() + t * act_q8_row_bytes(cols);
    const float* scale = reinterpret_cast<const float*>(row + act_q8_scale_offset(cols));
    return double{scale[k / 32]} * reinterpret_cast<const int8_t*>(row)[k];
  }
};

struct Product {
  const Case& c;
  const Weights& w;
  Activations& act;
  std::vector<float> y;
  AlignedBytes scratch;
  std::vector<std::byte> panels;  // at an address with no alignment
  MatmulArgs args;
  MatmulKernel run;

  Product(const Case& c, const Weights& w, Activations& act)
      : c(c),
        w(w),
        act(act),
        y(static_cast<size_t>(act.tokens * w.rows()), -7.5f),
        scratch(matmul_scratch_bytes(w.cols())),
        run(*find_matmul(c.family, c.dtype, c.isa)) {
    args.w = {w.data(), w.dtype(), layout_of(c.family), w.rows(), w.cols(), w.row_bytes()};
    pack();
    args.x = act.x.data();
    args.x_stride = act.stride;
    args.xq = is_tile(c.family) ? act.bf16.data() : act.xq.data();
    args.xq_stride = is_tile(c.family) ? act_bf16_row_bytes(w.cols()) : act_q8_row_bytes(w.cols());
    args.tokens = act.tokens;
    args.y = y.data();
    args.y_stride = w.rows();
    args.row_end = w.rows();
    args.scratch = scratch.data();
  }
  // Again after the weights have changed.
  void pack() {
    const Layout layout = layout_of(c.family);
    if (!in_panels(layout)) return;
    panels.resize(static_cast<size_t>(1 + *matrix_bytes(layout, w.dtype(), w.rows(), w.cols())));
    const std::span<const std::byte> slice(w.data(), static_cast<size_t>(w.rows() * w.row_bytes()));
    pack_panel16_range({w.dtype(), w.rows(), w.cols(), 1, layout}, {&slice, 1}, 0,
                       std::span(panels).subspan(1));
    args.w.data = panels.data() + 1;
  }
};

class MatmulTest : public ::testing::TestWithParam<Case> {};

// Shapes around the edges of blocks and register tiles.
std::vector<std::array<int64_t, 3>> shapes(DType dtype) {
  const int64_t block = info(dtype).block_elems;
  std::vector<std::array<int64_t, 3>> out;
  std::vector<int64_t> cols = {block, 2 * block, 3 * block, 5 * block};
  if (block == 256) cols.push_back(6 * 256);  // more than a chunk of panels
  if (block == 32) cols.insert(cols.end(), {224, 256, 288, 512, 544, 1056});
  if (block == 1) cols.insert(cols.end(), {7, 15, 16, 17, 31, 33, 64, 100, 511});
  for (int64_t k : cols) {
    for (int64_t rows : {1, 2, 3, 5, 17, 35}) {
      for (int64_t tokens : {0, 1, 2, 3, 5, 9}) out.push_back({tokens, rows, k});
    }
  }
  return out;
}

TEST_P(MatmulTest, AgreesWithDoubleWithinRounding) {
  const Case& c = GetParam();
  Random random(1);
  for (const auto& [tokens, rows, cols] : shapes(c.dtype)) {
    const Weights w(random, c.dtype, rows, cols);
    Activations act(random, tokens, cols);
    Product p(c, w, act);
    p.run(p.args);
    std::vector<double> x(static_cast<size_t>(tokens * cols));
    for (int64_t i = 0; i < tokens * cols; ++i) {
      x[static_cast<size_t>(i)] = act.value(c.family, i / cols, i % cols);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = w.row(r);
      for (int64_t t = 0; t < tokens; ++t) {
        const double* values = x.data() + t * cols;
        double sum = 0, size = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double term = values[k] * row[static_cast<size_t>(k)];
          sum += term;
          size += std::fabs(term);
        }
        // int8: a minimum or an offset is taken off in one piece, so that terms are
        // larger than those of the sum by up to the range of the codes.
        const double slack = is_q8(c.family) ? 16 : 2;
        const double bound =
            // A weight cut to BF16 is off by up to 0.5 %, kBf16Up more or less.
            is_tile(c.family) ? 0.0055 * size
                              : slack * kEps *
                                    (4 + static_cast<double>(cols) /
                                             (layout_of(c.family) == Layout::Rows ? 16 : 8)) *
                                    size;
        ASSERT_NEAR(p.y[static_cast<size_t>(t * rows + r)], sum, bound)
            << "token " << t << " row " << r << " of " << tokens << "x" << rows << "x" << cols;
      }
    }
  }
}

// Numbers of tokens where one function's range ends and another's begins, and some between.
std::set<int64_t> batches_of(const Case& c) {
  std::set<int64_t> batches = {1, 2, 3, 7, 16, 17, 64};
  const MatmulKernel kernel = *find_matmul(c.family, c.dtype, c.isa);
  for (const MatmulKernel::Range& range : kernel.ranges()) {
    batches.insert(range.least);
    if (range.most != kAnyTokens) batches.insert(range.most);
  }
  return batches;
}

TEST_P(MatmulTest, GivesTheSameBitsInAnyBatchAndRange) {
  const Case& c = GetParam();
  Random random(2);
  const std::set<int64_t> batches = batches_of(c);
  const int64_t rows = 37, tokens = *batches.rbegin();
  for (int64_t blocks : {1, 3}) {
    const int64_t cols =
        info(c.dtype).block_elems == 1 ? 300 * blocks : info(c.dtype).block_elems * 3 * blocks;
    const Weights w(random, c.dtype, rows, cols);
    Activations act(random, tokens, cols);
    Product whole(c, w, act);
    whole.run(whole.args);
    for (int64_t batch : batches) {
      Product parts(c, w, act);
      for (int64_t first = 0; first < tokens; first += batch) {
        const int64_t count = std::min(batch, tokens - first);
        int64_t row = 0;
        while (row < rows) {
          MatmulArgs a = parts.args;
          a.row_begin = row;
          a.row_end = row = std::min(rows, row + 1 + random.below(20));
          a.tokens = count;
          a.x += first * a.x_stride;
          a.xq += first * a.xq_stride;
          a.y += first * a.y_stride;
          parts.run(a);
        }
      }
      ASSERT_TRUE(same_bits(whole.y, parts.y)) << "batches of " << batch << ", K " << cols;
    }
  }
}

TEST_P(MatmulTest, GathersScattersAndAccumulates) {
  const Case& c = GetParam();
  Random random(3);
  const int64_t tokens = 12, rows = 19, cols = info(c.dtype).block_elems == 1 ? 96 : 512;
  const Weights w(random, c.dtype, rows, cols);
  Activations act(random, tokens, cols);
  Product plain(c, w, act);
  plain.run(plain.args);

  const std::vector<float> bias = random.normals(rows), scale = random.normals(tokens * 2);
  const std::vector<int32_t> pairs = {1, 5, 4, 22, 23, 9, 14};
  Product p(c, w, act);
  std::vector<float> expected(p.y);
  for (int32_t pair : pairs) {
    for (int64_t n = 0; n < rows; ++n) {
      float v = plain.y[static_cast<size_t>(pair / 2 * rows + n)] + bias[static_cast<size_t>(n)];
      v *= scale[static_cast<size_t>(pair)];
      float& y = expected[static_cast<size_t>(pair / 3 * rows + n)];
      y = y + v;
    }
  }
  p.args.index = pairs.data();
  p.args.tokens = static_cast<int64_t>(pairs.size());
  p.args.x_div = 2;
  p.args.y_div = 3;
  p.args.bias = bias.data();
  p.args.token_scale = scale.data();
  p.args.accumulate = true;
  p.run(p.args);
  EXPECT_TRUE(same_bits(p.y, expected));

  Product compact(c, w, act);
  compact.args.compact_y = true;
  compact.args.row_begin = 4;
  compact.args.y_stride = rows - 4;
  compact.run(compact.args);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 4; n < rows; ++n) {
      ASSERT_EQ(compact.y[static_cast<size_t>(t * (rows - 4) + n - 4)],
                plain.y[static_cast<size_t>(t * rows + n)]);
    }
  }
}

TEST_P(MatmulTest, TakesAnyBytesAndNaNWithoutHarm) {
  const Case& c = GetParam();
  Random random(4);
  const int64_t cols = 512, rows = 9, tokens = 5;
  Weights w(random, c.dtype, rows, cols);
  for (int64_t i = 0; i < rows * w.row_bytes(); ++i) w.data()[i] = std::byte{random.byte()};
  Activations act(random, tokens, cols);
  act.x[3] = NAN;
  act.x[static_cast<size_t>(act.stride + 40)] = INFINITY;
  act.quantize();
  Product p(c, w, act);
  p.run(p.args);
  EXPECT_TRUE(std::isnan(p.y[0]) || std::isinf(p.y[0])) << p.y[0];
}

INSTANTIATE_TEST_SUITE_P(Table, MatmulTest, ::testing::ValuesIn(all_cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.family) + "_" +
                                  std::string(name(info.param.dtype)) + "_" +
                                  std::string(name(info.param.isa));
                         });

TEST(MatmulTable, VectorVariantsGiveTheSameBits) {
  std::vector<Isa> isas = usable_isas();
  isas.erase(isas.begin());
  if (isas.size() < 2) GTEST_SKIP() << "this machine has fewer than two vector sets";
  for (const Case& c : all_cases()) {
    if (c.isa != isas[0]) continue;
    Random random(5);
    const int64_t cols = info(c.dtype).block_elems == 1 ? 333 : info(c.dtype).block_elems * 9;
    const Weights w(random, c.dtype, 21, cols);
    Activations act(random, 39, cols);
    Product first(c, w, act);
    first.run(first.args);
    for (Isa isa : isas) {
      const Case other_case{c.family, c.dtype, isa};
      Product other(other_case, w, act);
      other.run(other.args);
      EXPECT_TRUE(same_bits(first.y, other.y))
          << c.family << " " << name(c.dtype) << " " << name(isa);
    }
  }
}

// The order of a panel's words changes no sum: not for one token, nor for a few or many.
TEST(MatmulTable, BothOrdersOfPanelsGiveTheSameBits) {
  for (DType dtype : weight_dtypes()) {
    if (!panel16_stream_takes(dtype)) continue;
    Random random(10);
    for (Isa isa : usable_isas()) {
      const Case words{"matmul_panel16_q8", dtype, isa}, stream{"matmul_panel16s_q8", dtype, isa};
      for (int64_t blocks : {1, 3, 6}) {
        const Weights w(random, dtype, 53, blocks * info(dtype).block_elems);
        for (int64_t tokens : {1, 2, 3, 16, 29}) {
          Activations act(random, tokens, w.cols());
          Product first(words, w, act), second(stream, w, act);
          first.run(first.args);
          second.run(second.args);
          EXPECT_TRUE(same_bits(first.y, second.y)) << name(dtype) << " " << tokens;
        }
      }
    }
  }
}

// Panels, chunks of columns and tiles of tokens that are not full; products that begin inside a
// panel.
TEST(MatmulTable, PanelsOfAllVectorSetsGiveTheSameBits) {
  if (usable_isas().size() <= 2) GTEST_SKIP() << "this machine has one vector variant at most";
  for (DType dtype : weight_dtypes()) {
    if (!panel16_form(dtype)) continue;
    const Case best{"matmul_panel16_q8", dtype, detect_isa()};
    const Case avx2{"matmul_panel16_q8", dtype, Isa::Avx2};
    Random random(9);
    const bool small = info(dtype).block_elems == 32;
    for (int64_t blocks : {1, 5, small ? 35 : 6}) {
      const int64_t cols = blocks * info(dtype).block_elems;
      const Weights w(random, dtype, 53, cols);
      for (int64_t tokens : {5, 8, 9, 13, 16, 17, 29, 200}) {
        if (tokens == 200 && blocks != 5) continue;
        Activations act(random, tokens, cols);
        Product wide(best, w, act), narrow(avx2, w, act);
        for (Product* p : {&wide, &narrow}) {
          p->args.row_begin = tokens % 3 * 2;
          p->run(p->args);
        }
        EXPECT_TRUE(same_bits(wide.y, narrow.y)) << name(dtype) << " " << tokens;
      }
    }
  }
}

// The same of one token, which vectors take without tiles.
TEST(MatmulTable, OneTokenOfBf16UsesActivationsThatWereKept) {
  Random random(24);
  const Weights gate(random, DType::Q6_K, 32, 512), up(random, DType::Q6_K, 32, 512);
  Activations act(random, 1, 512);
  const Case scalar{"matmul_panel16_tile_bf16", DType::Q6_K, Isa::Scalar};
  Product reference(scalar, up, act);
  reference.run(reference.args);
  for (Isa isa : usable_isas()) {
    const Case c{"matmul_panel16_tile_bf16", DType::Q6_K, isa};
    Product first(c, gate, act), second(c, up, act);
    second.args.scratch = first.args.scratch;
    second.args.x_kept = true;
    first.run(first.args);
    second.run(second.args);
    EXPECT_TRUE(same_bits(second.y, reference.y)) << name(isa);
  }
}

// MXFP4's weights are BF16 numbers and stay what they are: sums of plain code over the
// decoded row, even columns, odd ones and both to the rest, every 32 columns.
TEST(MatmulTable, TilesOfBf16AddUpInTheOrderThatTheyPromise) {
  Random random(22);
  const int64_t cols = 640, rows = 16, tokens = 3;
  const Weights w(random, DType::MXFP4, rows, cols);
  Activations act(random, tokens, cols);
  const Case c{"matmul_panel16_tile_bf16", DType::MXFP4, detect_isa()};
  Product p(c, w, act);
  p.run(p.args);
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> row = w.row(r);
    for (int64_t t = 0; t < tokens; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < cols; k += 32) {
        float even = 0, odd = 0;
        for (int64_t j = k; j < k + 32; j += 2) {
          const auto x = [&](int64_t at) {
            return static_cast<float>(act.value(p.c.family, t, at));
          };
          even = std::fma(row[static_cast<size_t>(j)], x(j), even);
          odd = std::fma(row[static_cast<size_t>(j + 1)], x(j + 1), odd);
        }
        sum += even + odd;
      }
      ASSERT_EQ(p.y[static_cast<size_t>(t * rows + r)], sum) << "token " << t << " row " << r;
    }
  }
}

TEST(MatmulTable, NoCodeIsOutsideTheRangeThatSumsCountOn) {
  Random random(7);
  for (DType dtype : weight_dtypes()) {
    const std::optional<Int8Form> form = int8_form(dtype);
    if (!form) continue;
    const int64_t cols = 256 * 256;
    Weights w(random, dtype, 1, cols);
    std::vector<int8_t> codes(static_cast<size_t>(cols));
    std::vector<float> scales(codes.size()), mins(codes.size());
    decode_int8_row(dtype, w.data(), cols, codes.data(), scales.data(), mins.data());
    const CodeRange range = code_range(dtype);
    for (int8_t code : codes) {
      ASSERT_GE(code, range.low) << name(dtype);
      ASSERT_LE(code, range.high) << name(dtype);
    }
  }
}

// Codes and activations at their extremes: no 16-bit sum may wrap or saturate.
TEST(MatmulTable, ExtremeCodesGiveExactSums) {
  for (const Case& c : all_cases()) {
    if (!is_q8(c.family)) continue;
    Random random(8);
    const int64_t cols = 512, tokens = 5, rows = 4;
    for (uint8_t fill : {0x00, 0xFF, 0x7F, 0x80}) {
      Weights w(random, c.dtype, rows, cols);
      // All codes alike; the scales of the random blocks stay where a block has them.
      Activations act(random, tokens, cols);
      for (size_t i = 0; i < act.x.size(); ++i) act.x[i] = i % 3 == 0 && fill == 0x7F ? -1 : 1;
      act.quantize();
      Product p(c, w, act);
      std::memset(w.data(), fill, static_cast<size_t>(rows * w.row_bytes()));
      p.pack();
      p.run(p.args);
      const std::vector<float> row = w.row(0);
      double sum = 0, size = 0;
      for (int64_t k = 0; k < cols; ++k) {
        const double term = act.value(c.family, 0, k) * row[static_cast<size_t>(k)];
        sum += term;
        size += std::fabs(term);
      }
      if (!std::isfinite(size)) continue;
      ASSERT_NEAR(p.y[0], sum, 64 * kEps * size + 1e-30) << name(c.dtype) << " " << name(c.isa);
    }
  }
}

// More columns than a stretch, rows than the panels that meet together and tokens than go
// with them.
TEST(MatmulTable, FloatPanelsAreRightAndTheSameAcrossTheirBlocks) {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (std::string_view family : {"matmul_panel16_f32", "matmul_panel16_bf16"}) {
      if (is_bf16(family) && dtype != DType::BF16) continue;
      Random random(16);
      const int64_t rows = 16 * 18 + 5, cols = 2 * 1024 + 37, tokens = 131;
      const Weights w(random, dtype, rows, cols);
      Activations act(random, tokens, cols);
      Product scalar({family, dtype, Isa::Scalar}, w, act);
      scalar.args.tokens = 1;
      scalar.run(scalar.args);
      for (Isa isa : usable_isas()) {
        if (isa == Isa::Scalar) continue;
        Product all({family, dtype, isa}, w, act), one({family, dtype, isa}, w, act);
        all.run(all.args);
        for (int64_t t : {0, 64, 130}) {
          one.args.tokens = 1;
          one.args.x = all.args.x + t * act.stride;
          one.run(one.args);
          for (int64_t r = 0; r < rows; ++r) {
            const float y = all.y[static_cast<size_t>(t * rows + r)];
            ASSERT_EQ(y, one.y[static_cast<size_t>(r)]) << name(dtype) << " row " << r;
            if (t == 0) {
              ASSERT_NEAR(y, scalar.y[static_cast<size_t>(r)], 0.02) << name(dtype) << " row " << r;
            }
          }
        }
      }
    }
  }
}

TEST(MatmulTable, RefusesUnknownFamiliesAndDtypesByName) {
  EXPECT_NE(find_matmul("matmul_of_tomorrow", DType::F32, Isa::Scalar)
                .error()
                .message.find("matmul_of_tomorrow"),
            std::string::npos);
  EXPECT_NE(find_matmul("matmul_rows_q8", DType::F16, Isa::Amx).error().message.find("F16"),
            std::string::npos);
}

class TransposedTest : public ::testing::TestWithParam<Isa> {};

TEST_P(TransposedTest, AgreesWithDoubleAndGivesTheSameBitsInAnyRange) {
  Random random(6);
  for (DType dtype : weight_dtypes()) {
    const int64_t rows = 19, cols = info(dtype).block_elems == 1 ? 300 : 512, tokens = 5;
    const int64_t begin = 3, count = 13, y_stride = cols + 1;
    const Weights w(random, dtype, rows, cols);
    const std::vector<float> x = random.normals(tokens * 40);
    AlignedBytes scratch(matmul_scratch_bytes(cols));
    const MatmulTransposedFn run =
        *find_matmul_transposed("matmul_transposed_f32", dtype, GetParam());
    MatmulTransposedArgs a;
    a.w = {w.data(), dtype, Layout::Rows, rows, cols, w.row_bytes()};
    a.row_begin = begin;
    a.row_count = count;
    a.x = x.data();
    a.x_stride = 40;
    a.tokens = tokens;
    std::vector<float> y(static_cast<size_t>(tokens * y_stride)), parts(y);
    a.y = y.data();
    a.y_stride = y_stride;
    a.col_end = cols;
    a.scratch = scratch.data();
    run(a);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> sum(static_cast<size_t>(cols)), size(sum);
      for (int64_t k = 0; k < count; ++k) {
        const std::vector<float> row = w.row(begin + k);
        for (size_t n = 0; n < row.size(); ++n) {
          const double term = double{x[static_cast<size_t>(t * 40 + k)]} * row[n];
          sum[n] += term;
          size[n] += std::fabs(term);
        }
      }
      for (int64_t n = 0; n < cols; ++n) {
        ASSERT_NEAR(y[static_cast<size_t>(t * y_stride + n)], sum[static_cast<size_t>(n)],
                    kEps * (count + 1) * size[static_cast<size_t>(n)])
            << name(dtype);
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t col = 0; col < cols; col += kTransposedCols) {
        MatmulTransposedArgs part = a;
        part.x += t * a.x_stride;
        part.tokens = 1;
        part.y = parts.data() + t * y_stride;
        part.col_begin = col;
        part.col_end = std::min(cols, col + kTransposedCols);
        run(part);
      }
    }
    ASSERT_TRUE(same_bits(y, parts)) << name(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, TransposedTest, ::testing::ValuesIn(usable_isas()),
                         [](const ::testing::TestParamInfo<Isa>& info) {
                           return std::string(name(info.param));
                         });

#if defined(__x86_64__)
// Two functions as the rows of a table would give them.
MatmulKernel two_ranges(int64_t most, MatmulFn skinny, MatmulFn many) {
  const MatmulKernel::Range ranges[] = {{1, most, skinny, "skinny"},
                                        {most + 1, kAnyTokens, many, "many"}};
  return MatmulKernel(ranges);
}
MatmulKernel emulated_tiles(DType dtype) {
  return two_ranges(64, matmul_panel16_tile_bf16_skinny_emulated(dtype),
                    matmul_panel16_tile_bf16_gemm_emulated(dtype));
}

// What vdpbf16ps does with subnormals, infinities and roundings, the variants without it
// do too: any bits as weights and activations.
TEST(MatmulTable, Bf16DotsAndProductsOfFloatsGiveTheSameBits) {
  if (!has_bf16_dots()) GTEST_SKIP() << "this machine has no dot products of BF16";
  Random random(10);
  for (int64_t cols : {32, 45, 2080}) {
    for (int64_t tokens : {1, 4, 11}) {
      Weights w(random, DType::BF16, 21, cols);
      for (int64_t i = 0; i < 21 * w.row_bytes(); ++i) w.data()[i] = std::byte{random.byte()};
      Activations act(random, tokens, cols);
      for (float& x : act.x) {
        uint32_t bits = 0;
        for (int byte = 0; byte < 4; ++byte) bits = bits << 8 | random.byte();
        // Subnormal, just above, or of any size that is no infinity.
        if (bits % 3 == 0) bits &= 0x80FFFFFF;
        x = std::bit_cast<float>(bits & 0xBFFFFFFF);
      }
      const Case c{"matmul_rows_bf16", DType::BF16, Isa::Avx512};
      Product dots(c, w, act), floats(c, w, act), avx2({c.family, c.dtype, Isa::Avx2}, w, act);
      dots.run = two_ranges(4, matmul_bf16_dots_skinny, matmul_bf16_dots_gemm);
      floats.run = two_ranges(4, matmul_bf16_floats_skinny, matmul_bf16_floats_gemm);
      const Case lanes{"matmul_panel16_bf16", DType::BF16, Isa::Avx512};
      Product lane_dots(lanes, w, act), lane_floats(lanes, w, act),
          lane_avx2({lanes.family, lanes.dtype, Isa::Avx2}, w, act);
      lane_dots.run = two_ranges(1, matmul_panel16_bf16_dots_gemv, matmul_panel16_bf16_dots_gemm);
      lane_floats.run =
          two_ranges(1, matmul_panel16_bf16_floats_gemv, matmul_panel16_bf16_floats_gemm);
      for (Product* p : {&dots, &floats, &avx2, &lane_dots, &lane_floats, &lane_avx2}) {
        p->run(p->args);
        for (float& y : p->y) y = std::isnan(y) ? -1 : y;
      }
      EXPECT_TRUE(same_bits(dots.y, floats.y)) << tokens << " x " << cols;
      EXPECT_TRUE(same_bits(dots.y, avx2.y)) << tokens << " x " << cols;
      EXPECT_TRUE(same_bits(lane_dots.y, lane_floats.y)) << tokens << " x " << cols;
      EXPECT_TRUE(same_bits(lane_dots.y, lane_avx2.y)) << tokens << " x " << cols;
    }
  }
}

// Scalar code one product after the other, vectors, tiles in plain code, and tiles where the
// machine has them: tokens that fill no tile, more than go at once, rows that fill no panel.
TEST(MatmulTable, TilesOfBf16GiveTheBitsOfTheReference) {
  if (detect_isa() < Isa::Avx512) GTEST_SKIP() << "this machine lacks AVX-512";
  for (DType dtype : weight_dtypes()) {
    if (!panel16_form(dtype)) continue;
    Random random(21);
    const bool small = info(dtype).block_elems == 32;
    for (int64_t blocks : {1, small ? 19 : 3}) {
      const int64_t cols = blocks * info(dtype).block_elems;
      const Weights w(random, dtype, 37, cols);
      for (int64_t tokens : {1, 15, 17, 49, 64, 65, 117, 289}) {
        if (tokens > 17 && blocks == 1) continue;
        if (tokens > 117 && dtype != DType::Q4_K) continue;
        Activations act(random, tokens, cols);
        const Case scalar{"matmul_panel16_tile_bf16", dtype, Isa::Scalar};
        Product reference(scalar, w, act);
        reference.args.row_begin = tokens % 3 * 2;
        reference.run(reference.args);
        for (Isa isa : usable_isas()) {
          if (isa == Isa::Scalar) continue;
          const Case other{"matmul_panel16_tile_bf16", dtype, isa};
          Product p(other, w, act);
          p.args.row_begin = reference.args.row_begin;
          p.run(p.args);
          EXPECT_TRUE(same_bits(p.y, reference.y)) << name(dtype) << " " << tokens << name(isa);
        }
        Product tiles(scalar, w, act);
        tiles.run = emulated_tiles(dtype);
        tiles.args.row_begin = reference.args.row_begin;
        tiles.run(tiles.args);
        EXPECT_TRUE(same_bits(tiles.y, reference.y)) << name(dtype) << " " << tokens;
      }
    }
  }
}

// More panels than have their sums in memory at once, an odd number of them, two pieces of columns.
TEST(MatmulTable, TilesOfBf16GoThroughManyPanels) {
  if (detect_isa() < Isa::Avx512) GTEST_SKIP() << "this machine lacks AVX-512";
  Random random(22);
  const Weights w(random, DType::Q4_K, 294, 768);
  Activations act(random, 81, 768);
  const Case scalar{"matmul_panel16_tile_bf16", DType::Q4_K, Isa::Scalar};
  Product reference(scalar, w, act), tiles(scalar, w, act);
  reference.run(reference.args);
  tiles.run = emulated_tiles(DType::Q4_K);
  tiles.run(tiles.args);
  EXPECT_TRUE(same_bits(tiles.y, reference.y));
}

// Gate and up of an expert: the second product finds the activations of the first in scratch.
TEST(MatmulTable, TilesOfBf16UseActivationsThatWereKept) {
  if (detect_isa() < Isa::Avx512) GTEST_SKIP() << "this machine lacks AVX-512";
  Random random(23);
  const Weights gate(random, DType::Q4_K, 32, 512), up(random, DType::Q4_K, 32, 512);
  for (int64_t tokens : {20, 64, 81}) {
    Activations act(random, tokens, 512);
    std::vector<int32_t> index(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i) index[i] = static_cast<int32_t>(tokens - 1 - i);
    const Case scalar{"matmul_panel16_tile_bf16", DType::Q4_K, Isa::Scalar};
    Product first(scalar, gate, act), second(scalar, up, act), reference(scalar, up, act);
    for (Product* p : {&first, &second, &reference}) p->args.index = index.data();
    first.run = second.run = emulated_tiles(DType::Q4_K);
    second.args.scratch = first.args.scratch;
    second.args.x_kept = true;
    first.run(first.args);
    second.run(second.args);
    reference.run(reference.args);
    EXPECT_TRUE(same_bits(second.y, reference.y)) << tokens;
  }
}
#endif

}  // namespace
}  // namespace ktx::kernels
