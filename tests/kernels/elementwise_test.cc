// Norm, rope, activations, embedding and quantisation against double, with every instruction
// set and widths around vector sizes; and that a result does not depend on the position of its
// element.
#include <cmath>

#include "kernels/embed/embed.h"
#include "kernels/matmul/panel16.h"
#include "kernels/norm/norm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope.h"
#include "kernels/rows/rows.h"
#include "lib/formats/act_bf16.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kWidths[] = {1, 7, 15, 16, 17, 31, 32, 33, 100, 256, 1000};

class ElementwiseTest : public ::testing::TestWithParam<Isa> {
 protected:
  Isa isa = GetParam();
};

// |a - b| within `ulps` units in the last place of b, or both not finite alike.
void expect_close(float a, double b, double ulps) {
  if (std::isnan(b)) {
    EXPECT_TRUE(std::isnan(a));
  } else if (std::isinf(static_cast<float>(b))) {
    EXPECT_EQ(a, static_cast<float>(b));
  } else {
    EXPECT_NEAR(a, b, ulps * kEps * std::fabs(b) + 1e-36);
  }
}

double glu_in_double(const GluAttrs& attrs, double g, double u) {
  if (attrs.activation == static_cast<int32_t>(Activation::Situ)) {
    const auto bent = [](double x, double limit) {
      return limit == 0 ? x : limit * std::tanh(x / limit);
    };
    return bent(g, attrs.limit) / (1 + std::exp(-g)) * bent(u, attrs.up_limit);
  }
  if (attrs.activation == static_cast<int32_t>(Activation::SiluUpTo)) g /= 1 + std::exp(-g);
  if (attrs.limit > 0) {
    g = std::isnan(g) ? g : std::min<double>(g, attrs.limit);
    u = std::clamp<double>(u, -attrs.limit, attrs.limit);
  }
  switch (static_cast<Activation>(attrs.activation)) {
    case Activation::Silu:
      return g / (1 + std::exp(-g)) * u;
    case Activation::GeluTanh:
      return 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * u;
    case Activation::GptOss:
      return g / (1 + std::exp(-1.702 * g)) * (u + 1);
    case Activation::Sigmoid:
      return u / (1 + std::exp(-g));
    case Activation::Product:
    case Activation::SiluUpTo:
      return g * u;
    case Activation::Relu:
      return (g < 0 ? 0 : g) * u;
    case Activation::Situ:
      break;
  }
  return NAN;
}

// Next to the double, in units of the gate's size: near zeros of the units bits are lost.
TEST_P(ElementwiseTest, EveryGatedUnitIsRight) {
  Random random(25);
  std::vector<float> gate;
  for (float g = -12; g < 12; g += 0.0131f) gate.push_back(g);
  gate.push_back(NAN);
  const std::vector<float> up = random.normals(static_cast<int64_t>(gate.size()), 3);
  for (int32_t activation = 0; activation < kActivations; ++activation) {
    for (float limit : {0.0f, 2.5f}) {
      std::vector<float> y(gate.size());
      RowsArgs a;
      // (A limit of up of its own, or none.)
      const bool soft = activation == static_cast<int32_t>(Activation::Situ) && limit > 0;
      const GluAttrs attrs{activation, limit, soft ? 1.5f : 0.0f};
      a.attrs = attrs;
      a.in[0].data = gate.data();
      a.in[1].data = up.data();
      a.y = y.data();
      a.width = static_cast<int64_t>(gate.size());
      a.token_end = 1;
      (*find_rows("glu", isa))(a);
      for (size_t i = 0; i < gate.size(); ++i) {
        const double want = glu_in_double(attrs, gate[i], up[i]);
        if (std::isnan(gate[i])) {
          EXPECT_TRUE(std::isnan(y[i]));
          continue;
        }
        ASSERT_NEAR(y[i], want, 3e-6 * (1e-2 + std::fabs(want)) + 2e-7 * std::fabs(gate[i]))
            << activation << " " << limit << " gate " << gate[i] << " up " << up[i];
      }
    }
  }
}

double unit_in_double(const ActivateAttrs& a, double x) {
  switch (static_cast<UnitFunction>(a.function)) {
    case UnitFunction::Silu:
      return x / (1 + std::exp(-x));
    case UnitFunction::GeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case UnitFunction::GeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case UnitFunction::Relu:
      return std::max(x, 0.0);
    case UnitFunction::ReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case UnitFunction::Tanh:
      return std::tanh(x);
    case UnitFunction::Xielu:
      if (x > 0) return a.rise * x * x + a.slope * x;
      return a.fall * (std::expm1(std::min<double>(x, a.limit)) - x) + a.slope * x;
    case UnitFunction::Clamp:
      return std::clamp<double>(x, -a.limit, a.limit);
    case UnitFunction::SignedRoot:
      return x == 0 ? 0 : std::copysign(std::sqrt(std::max(std::abs(x), 1e-6)), x);
  }
  return NAN;
}

TEST_P(ElementwiseTest, EveryUnitWithoutAGateIsRight) {
  std::vector<float> x = {-1e30f, -300, -50, 0, 50, 300, 1e15f};
  for (float v = -12; v < 12; v += 0.0131f) x.push_back(v);
  x.push_back(NAN);
  for (int32_t function = 0; function < kUnitFunctions; ++function) {
    std::vector<float> y(x.size());
    RowsArgs a;
    const bool clamps = function == static_cast<int32_t>(UnitFunction::Clamp);
    const ActivateAttrs attrs{function, clamps ? 7.5f : -1e-6f, 1.25f, 0.75f, 0.5f};
    a.attrs = attrs;
    a.in[0].data = x.data();
    a.y = y.data();
    a.width = static_cast<int64_t>(x.size());
    a.token_end = 1;
    (*find_rows("activate", isa))(a);
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      const double want = unit_in_double(attrs, x[i]);
      ASSERT_NEAR(y[i], want, 3e-6 * std::fabs(want) + 2e-7 * std::min(std::fabs(x[i]), 12.0f))
          << function << " of " << x[i];
    }
    EXPECT_TRUE(std::isnan(y.back())) << function;
  }
}

TEST_P(ElementwiseTest, SoftcapBendsByTanh) {
  std::vector<float> x;
  for (float v = -90; v < 90; v += 0.31f) x.push_back(v);
  std::vector<float> y(x.size());
  RowsArgs a;
  a.attrs = SoftcapAttrs{30};
  a.in[0].data = x.data();
  a.y = y.data();
  a.width = static_cast<int64_t>(x.size());
  a.token_end = 1;
  (*find_rows("softcap", isa))(a);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], 30 * std::tanh(double{x[i]} / 30), 1e-5);
  }
}

TEST_P(ElementwiseTest, GluIsRightToAFewUnitsInTheLastPlace) {
  std::vector<float> gate = {0.0f,  -0.0f,  1e-30f,  -1e-30f, 87.0f,    -87.0f,
                             88.8f, -88.8f, -104.0f, 1e30f,   INFINITY, NAN};
  for (float g = -30; g < 30; g += 0.0371f) gate.push_back(g);
  Random random(21);
  const int64_t n = static_cast<int64_t>(gate.size());
  const std::vector<float> up = random.normals(n);
  std::vector<float> y(gate.size());
  RowsArgs a;
  a.attrs = GluAttrs{};
  a.in[0].data = gate.data();
  a.in[1].data = up.data();
  a.y = y.data();
  a.width = n;
  a.token_end = 1;
  const RowsFn run = *find_rows("glu", isa);
  run(a);
  for (size_t i = 0; i < gate.size(); ++i) {
    SCOPED_TRACE(gate[i]);
    const double g = gate[i];
    expect_close(y[i], g / (1 + std::exp(-g)) * up[i], 8);
  }
  // One element at a time, each at another place of a vector.
  for (int64_t width = 1; width < 40; ++width) {
    std::vector<float> part(static_cast<size_t>(width + 1), 3);
    a.in[0].data = gate.data() + 13;
    a.in[1].data = up.data() + 13;
    a.y = part.data();
    a.width = width;
    run(a);
    EXPECT_EQ(part.back(), 3);
    part.pop_back();
    EXPECT_TRUE(same_bits(part, {y.begin() + 13, y.begin() + 13 + width}));
  }
}

TEST_P(ElementwiseTest, AddAndSigmoidScaleAndGatherAreExact) {
  Random random(22);
  for (int64_t width : kWidths) {
    const int64_t tokens = 3, stride = width + 2;
    const std::vector<float> x = random.normals(tokens * stride),
                             b = random.normals(tokens * stride);
    std::vector<float> y(x.size(), 9);
    RowsArgs add;
    add.in[0] = {x.data(), stride};
    add.in[1] = {b.data(), stride};
    add.y = y.data();
    add.y_stride = stride;
    add.width = width;
    add.token_begin = 1;
    add.token_end = 3;
    (*find_rows("add", isa))(add);
    EXPECT_EQ(y[0], 9);
    EXPECT_EQ(y[static_cast<size_t>(stride + width)], 9);
    for (int64_t t = 1; t < 3; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(t * stride + i);
        ASSERT_EQ(y[at], x[at] + b[at]);
      }
    }
    RowsArgs scale;
    scale.in[0] = {y.data(), stride};
    scale.in[1] = {b.data(), stride};
    scale.y = y.data();
    scale.y_stride = stride;
    scale.width = width;
    scale.token_end = 1;
    (*find_rows("sigmoid_scale", isa))(scale);
    expect_close(y[0], 9 / (1 + std::exp(-double{b[0]})), 2);

    const std::vector<int32_t> from = {2, -1, 0};
    RowsArgs gather;
    gather.in[0] = {x.data(), stride};
    gather.from = from.data();
    gather.y = y.data();
    gather.y_stride = width;
    gather.width = width;
    gather.token_end = 3;
    (*find_rows("gather_rows", isa))(gather);
    for (int64_t i = 0; i < width; ++i) {
      EXPECT_EQ(y[static_cast<size_t>(i)], x[static_cast<size_t>(2 * stride + i)]);
      EXPECT_EQ(y[static_cast<size_t>(width + i)], 0);
      EXPECT_EQ(y[static_cast<size_t>(2 * width + i)], x[static_cast<size_t>(i)]);
    }
  }
}

TEST_P(ElementwiseTest, HeadScaleMultipliesEachHeadByItsOwnGate) {
  Random random(31);
  const int64_t tokens = 3;
  for (const int32_t heads : {1, 3, 10}) {
    for (const int64_t dim : {1, 16, 37}) {
      const int64_t width = heads * dim;
      const std::vector<float> x = random.normals(tokens * width);
      std::vector<float> gate = random.normals(tokens * heads);
      gate.back() = 40;  // of which a softplus is the number itself
      for (const HeadGate function : {HeadGate::Sigmoid, HeadGate::Softplus}) {
        std::vector<float> y(x.size(), 9);
        RowsArgs a;
        a.in[0] = {x.data(), width};
        a.in[1] = {gate.data(), heads};
        a.y = y.data();
        a.y_stride = width;
        a.width = width;
        a.token_begin = 1;
        a.token_end = tokens;
        a.attrs = HeadScaleAttrs{heads, static_cast<int32_t>(function)};
        make_heads_rows(a, heads);
        (*find_rows("head_scale", isa))(a);
        for (int64_t at = 0; at < tokens * width; ++at) {
          const double g = gate[static_cast<size_t>(at / dim)];
          const double f =
              function == HeadGate::Sigmoid ? 1 / (1 + std::exp(-g)) : std::log1p(std::exp(g));
          const float in = x[static_cast<size_t>(at)];
          if (at < width) {
            ASSERT_EQ(y[static_cast<size_t>(at)], 9);
          } else {
            expect_close(y[static_cast<size_t>(at)], in * f, 4);
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, ScaleMultipliesEachElementOnce) {
  Random random(29);
  for (int64_t width : kWidths) {
    const int64_t tokens = 3, stride = width + 2;
    std::vector<float> y = random.normals(tokens * stride);
    const std::vector<float> x = y;
    RowsArgs a;
    a.in[0] = {y.data(), stride};  // in place
    a.y = y.data();
    a.y_stride = stride;
    a.width = width;
    a.token_begin = 1;
    a.token_end = 3;
    a.attrs = ScaleAttrs{0.22f};
    (*find_rows("scale", isa))(a);
    for (int64_t at = 0; at < tokens * stride; ++at) {
      const bool inside = at >= stride && at % stride < width;
      const float in = x[static_cast<size_t>(at)];
      ASSERT_EQ(y[static_cast<size_t>(at)], inside ? in * 0.22f : in);
    }
  }
}

TEST_P(ElementwiseTest, PositionScaleGrowsWithWholeContexts) {
  const std::vector<int32_t> position = {0, 99, 100, 250, 99999, -1};
  const int64_t width = 37, tokens = std::ssize(position);
  Random random(30);
  const std::vector<float> x = random.normals(tokens * width);
  std::vector<float> y(x.size());
  RowsArgs a;
  a.in[0] = {x.data(), width};
  a.position = position.data();
  a.y = y.data();
  a.y_stride = a.width = width;
  a.token_end = tokens;
  a.attrs = PositionScaleAttrs{0.1f, 100};
  (*find_rows("position_scale", isa))(a);
  const double contexts[] = {0, 0, 1, 2, 999, 0};
  for (int64_t at = 0; at < tokens * width; ++at) {
    const double factor = 1 + double{0.1f} * std::log(1 + contexts[at / width]);
    const double want = x[static_cast<size_t>(at)] * factor;
    ASSERT_NEAR(y[static_cast<size_t>(at)], want, 2e-7 * std::abs(want)) << at;
    if (factor == 1) {
      ASSERT_EQ(y[static_cast<size_t>(at)], x[static_cast<size_t>(at)]);
    }
  }
}

TEST_P(ElementwiseTest, RmsNormAgreesWithDoubleForAllGroups) {
  Random random(23);
  for (int64_t part : kWidths) {
    for (int32_t groups : {1, 3}) {
      const int64_t width = part * groups, tokens = 2;
      const std::vector<float> x = random.normals(tokens * width, 3), w = random.normals(part);
      std::vector<float> y(x.size());
      RmsNormArgs a;
      a.x = x.data();
      a.weight = w.data();
      a.y = y.data();
      a.x_stride = a.y_stride = a.width = width;
      a.attrs = {1e-6f, groups};
      a.token_end = tokens;
      (*find_rms_norm("rms_norm", isa))(a);
      for (int64_t g = 0; g < tokens * groups; ++g) {
        double squares = 0;
        for (int64_t j = 0; j < part; ++j) {
          const double v = x[static_cast<size_t>(g * part + j)];
          squares += v * v;
        }
        for (int64_t j = 0; j < part; ++j) {
          const auto at = static_cast<size_t>(g * part + j);
          expect_close(y[at],
                       x[at] / std::sqrt(squares / static_cast<double>(part) + double{1e-6f}) *
                           w[static_cast<size_t>(j)],
                       8);
        }
      }
      std::vector<float> in_place(x);
      a.x = a.y = in_place.data();
      (*find_rms_norm("rms_norm", isa))(a);
      EXPECT_TRUE(same_bits(in_place, y));
    }
  }
}

TEST_P(ElementwiseTest, LayerNormAgreesWithDoubleForAllGroups) {
  Random random(27);
  for (int64_t part : kWidths) {
    for (int32_t groups : {1, 3}) {
      const int64_t width = part * groups, tokens = 2;
      std::vector<float> x = random.normals(tokens * width, 3);
      for (float& v : x) v += 5;  // a mean that is not zero
      const std::vector<float> w = random.normals(part), b = random.normals(part);
      std::vector<float> y(x.size());
      LayerNormArgs a;
      a.x = x.data();
      a.weight = w.data();
      a.y = y.data();
      a.x_stride = a.y_stride = a.width = width;
      a.attrs = {1e-6f, groups};
      a.token_end = tokens;
      for (const float* bias : {b.data(), static_cast<const float*>(nullptr)}) {
        a.bias = bias;
        (*find_layer_norm("layer_norm", isa))(a);
        for (int64_t g = 0; g < tokens * groups; ++g) {
          const float* in = &x[static_cast<size_t>(g * part)];
          double mean = 0, squares = 0;
          for (int64_t j = 0; j < part; ++j) mean += in[j];
          mean /= static_cast<double>(part);
          for (int64_t j = 0; j < part; ++j) squares += (in[j] - mean) * (in[j] - mean);
          const double scale = 1 / std::sqrt(squares / static_cast<double>(part) + double{1e-6f});
          for (int64_t j = 0; j < part; ++j) {
            const double want =
                (in[j] - mean) * scale * w[static_cast<size_t>(j)] + (bias ? double{bias[j]} : 0);
            ASSERT_NEAR(y[static_cast<size_t>(g * part + j)], want, 2e-5) << part << " " << j;
          }
        }
      }
      std::vector<float> in_place(x);
      a.x = a.y = in_place.data();
      (*find_layer_norm("layer_norm", isa))(a);
      EXPECT_TRUE(same_bits(in_place, y));
      // Weights of each group's own: the other groups have twice those of the first.
      std::vector<float> own(w), twice(x);
      for (int64_t j = part; j < width; ++j) own.push_back(2 * w[static_cast<size_t>(j % part)]);
      a.x = a.y = twice.data();
      a.weight = own.data();
      a.weight_step = part;
      (*find_layer_norm("layer_norm", isa))(a);
      for (size_t i = 0; i < y.size(); ++i) {
        const bool first = static_cast<int64_t>(i) % width < part;
        ASSERT_EQ(twice[i], first ? y[i] : 2 * y[i]) << part << " " << i;
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeTurnsBothStylesAndLeavesTheRestAlone) {
  Random random(24);
  for (int32_t interleaved : {0, 1}) {
    for (int32_t rotary : {2, 6, 8, 14, 64, 128}) {
      RopeArgs a;
      a.attrs = {3, rotary + 5, 2, rotary + 9, 4, rotary, interleaved, 1.25f};
      const std::vector<int32_t> position = {0, 1, 4095, 163839};
      const auto tokens = static_cast<int64_t>(position.size());
      const int64_t x_width = a.attrs.heads * a.attrs.head_dim;
      const int64_t y_width = a.attrs.heads * a.attrs.y_head_dim;
      std::vector<float> inv_freq, scratch(static_cast<size_t>(rotary));
      for (int32_t i = 0; i < rotary / 2; ++i) {
        inv_freq.push_back(
            std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rotary)));
      }
      const std::vector<float> x = random.normals(tokens * x_width);
      std::vector<float> y(static_cast<size_t>(tokens * y_width), 77);
      a.x = x.data();
      a.x_stride = x_width;
      a.y = y.data();
      a.y_stride = y_width;
      a.inv_freq = inv_freq.data();
      a.position = position.data();
      a.token_end = tokens;
      a.scratch = scratch.data();
      (*find_rope("rope", isa))(a);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < a.attrs.heads; ++h) {
          const float* in = x.data() + t * x_width + h * a.attrs.head_dim + 2;
          const float* out = y.data() + t * y_width + h * a.attrs.y_head_dim;
          for (int64_t d : {0, 1, 2, 3, rotary + 4, rotary + 8}) ASSERT_EQ(out[d], 77);
          for (int64_t i = 0; i < rotary / 2; ++i) {
            const int64_t first = interleaved ? 2 * i : i;
            const int64_t second = interleaved ? 2 * i + 1 : i + rotary / 2;
            const double angle = static_cast<float>(position[static_cast<size_t>(t)]) *
                                 inv_freq[static_cast<size_t>(i)];
            const double c = 1.25 * std::cos(angle), s = 1.25 * std::sin(angle);
            ASSERT_NEAR(out[4 + first], in[first] * c - in[second] * s, 2e-6);
            ASSERT_NEAR(out[4 + second], in[first] * s + in[second] * c, 2e-6);
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeInPlaceGivesTheSameBits) {
  Random random(25);
  for (int32_t interleaved : {0, 1}) {
    RopeArgs a;
    a.attrs = {4, 64, 0, 64, 0, 64, interleaved, 1};
    const std::vector<float> x = random.normals(256), inv_freq(32, 0.3f);
    std::vector<float> y(x), in_place(x), scratch(64);
    const int32_t position = 17;
    a.x = x.data();
    a.y = y.data();
    a.inv_freq = inv_freq.data();
    a.position = &position;
    a.token_end = 1;
    a.scratch = scratch.data();
    (*find_rope("rope", isa))(a);
    a.x = a.y = in_place.data();
    (*find_rope("rope", isa))(a);
    EXPECT_TRUE(same_bits(y, in_place));
  }
}

TEST_P(ElementwiseTest, EmbedDecodesTheRowsOfItsTokens) {
  Random random(26);
  for (DType dtype : weight_dtypes()) {
    const int64_t cols = info(dtype).block_elems == 1 ? 77 : 512;
    const Weights table(random, dtype, 9, cols);
    const std::vector<int32_t> ids = {8, 0, 3};
    std::vector<float> y(static_cast<size_t>(3 * cols));
    EmbedArgs a;
    a.table = {table.data(), dtype, Layout::Rows, 9, cols, table.row_bytes()};
    a.ids = ids.data();
    a.y = y.data();
    a.y_stride = cols;
    a.token_end = 3;
    (*find_embed("embed_rows", isa))(a);
    for (int64_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(same_bits(table.row(ids[static_cast<size_t>(t)]),
                            {y.begin() + t * cols, y.begin() + (t + 1) * cols}))
          << name(dtype);
    }
  }
}

TEST_P(ElementwiseTest, EmbedReadsPanelsToo) {
  Random random(28);
  const auto read = [&](DType dtype, Layout layout, std::string_view family) {
    const int64_t cols = info(dtype).block_elems == 1 ? 77 : 512, rows = 19;
    const std::optional<int64_t> bytes = matrix_bytes(layout, dtype, rows, cols);
    if (!bytes) return;
    const Weights table(random, dtype, rows, cols);
    std::vector<std::byte> panels(static_cast<size_t>(*bytes));
    const std::span<const std::byte> slice(table.data(),
                                           static_cast<size_t>(rows * table.row_bytes()));
    pack_panel16_range({dtype, rows, cols, 1, layout}, {&slice, 1}, 0, panels);
    const std::vector<int32_t> ids = {18, 0, 3};
    std::vector<float> y(static_cast<size_t>(3 * cols));
    EmbedArgs a;
    a.table = {panels.data(), dtype, layout, rows, cols, table.row_bytes()};
    a.ids = ids.data();
    a.y = y.data();
    a.y_stride = cols;
    a.token_end = 3;
    (*find_embed(family, GetParam()))(a);
    for (int64_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(same_bits(table.row(ids[static_cast<size_t>(t)]),
                            {y.begin() + t * cols, y.begin() + (t + 1) * cols}))
          << name(dtype);
    }
  };
  for (DType dtype : weight_dtypes()) {
    read(dtype, Layout::Panel16, "embed_panel16");
    read(dtype, Layout::Panel16Stream, "embed_panel16s");
  }
}

TEST_P(ElementwiseTest, QuantizeRoundsToNearestAndSumsExactly) {
  Random random(27);
  for (int64_t k : {32, 64, 224, 256, 288, 1024}) {
    const int64_t tokens = 3, rows = 2, row_bytes = act_q8_row_bytes(k);
    std::vector<float> x = random.normals(tokens * rows * (k + 4), 5);
    for (int64_t i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = 0;
    x[static_cast<size_t>(k + 4)] = NAN;
    x[static_cast<size_t>(2 * (k + 4) + 5)] = -INFINITY;
    AlignedBytes xq(tokens * rows * row_bytes), scalar(tokens * rows * row_bytes);
    QuantizeArgs a = quantize_args(x, rows * (k + 4), k, tokens, xq, rows * row_bytes);
    a.attrs = {static_cast<int32_t>(rows), static_cast<int32_t>(k + 4)};
    (*find_quantize("quantize_q8", isa))(a);
    a.xq = scalar.data();
    (*find_quantize("quantize_q8", Isa::Scalar))(a);
    EXPECT_EQ(std::memcmp(xq.data(), scalar.data(), static_cast<size_t>(xq.size())), 0);
    for (int64_t r = 0; r < tokens * rows; ++r) {
      const std::byte* row = xq.data() + r * row_bytes;
      const auto* q = reinterpret_cast<const int8_t*>(row);
      const auto* scale = reinterpret_cast<const float*>(row + act_q8_scale_offset(k));
      const auto* sum = reinterpret_cast<const int16_t*>(row + act_q8_sum_offset(k));
      for (int64_t i = 0; i < k; ++i) {
        const float v = x[static_cast<size_t>(r * (k + 4) + i)];
        if (std::isnan(scale[i / 32])) continue;
        ASSERT_NEAR(q[i] * scale[i / 32], v, scale[i / 32] * 0.501);
      }
      for (int64_t s = 0; s < act_q8_padded(k) / 16; ++s) {
        int total = 0;
        for (int64_t i = 0; i < 16; ++i) total += q[16 * s + i];
        ASSERT_EQ(sum[s], total);
      }
      for (int64_t i = k; i < act_q8_padded(k); ++i) ASSERT_EQ(q[i], 0);
    }
    const auto scale_of = [&](int64_t r, int64_t g) {
      return reinterpret_cast<const float*>(xq.data() + r * row_bytes + act_q8_scale_offset(k))[g];
    };
    if (k == 32) {
      EXPECT_EQ(scale_of(0, 0), 0);
    }
    for (int64_t g = 0; g < 4; ++g) {
      EXPECT_TRUE(std::isnan(scale_of(1, g)));
      EXPECT_TRUE(std::isnan(scale_of(2, g)));
    }
  }
}

// Over all exponents, and groups next to each other that differ by any power.
TEST_P(ElementwiseTest, QuantizeSharesOneNumberAmongFourScales) {
  Random random(29);
  const QuantizeFn run = *find_quantize("quantize_q8", isa);
  const int64_t k = 128, rows = 4000;
  std::vector<float> x = random.normals(k * rows);
  for (int64_t r = 0; r < rows; ++r) {
    const int size = random.byte() % 254 - 127;
    for (int64_t g = 0; g < 4; ++g) {
      const int power = random.byte() % 3 == 0 ? -random.byte() : -(random.byte() % 6);
      const float factor = std::ldexp(1.0f, size > 0 ? size : 0);
      for (int64_t i = 0; i < 32; ++i) {
        float& v = x[static_cast<size_t>(r * k + 32 * g + i)];
        v = std::ldexp(v / 4, power) * factor * std::ldexp(1.0f, size < 0 ? size : 0);
      }
    }
  }
  AlignedBytes xq(rows * act_q8_row_bytes(k)), scalar(rows * act_q8_row_bytes(k));
  QuantizeArgs a = quantize_args(x, k, k, rows, xq, act_q8_row_bytes(k));
  run(a);
  a.xq = scalar.data();
  (*find_quantize("quantize_q8", Isa::Scalar))(a);
  EXPECT_EQ(std::memcmp(xq.data(), scalar.data(), static_cast<size_t>(xq.size())), 0);
  double shared_error = 0, own_error = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = xq.data() + r * act_q8_row_bytes(k);
    const auto* scale = reinterpret_cast<const float*>(row + act_q8_scale_offset(k));
    const float shared = *std::max_element(scale, scale + 4);
    float top = 0;
    for (int64_t g = 0; g < 4; ++g) {
      float largest = 0;
      for (int64_t i = 0; i < 32; ++i) {
        largest = std::max(largest, std::fabs(x[static_cast<size_t>(r * k + 32 * g + i)]));
      }
      top = std::max(top, largest);
      if (shared == 0) continue;
      int power = 0;
      EXPECT_EQ(std::frexp(shared / scale[g], &power), 0.5f);
      EXPECT_GE(power, 1);
      EXPECT_LE(power, 1 + kActQ8MostPower);
      EXPECT_GE(scale[g] * 127.001, largest);
      shared_error += std::pow(double{scale[g]} / shared, 2);
      own_error += std::pow(double{largest} / 127 / shared, 2);
    }
    if (shared == 0) {
      EXPECT_LT(top, std::ldexp(1.0f, -115));
    } else {
      EXPECT_LE(shared * 127, top * 2.001);
    }
  }
  EXPECT_LT(shared_error, 1.6 * own_error);
}

TEST_P(ElementwiseTest, QuantizeToBf16RoundsToNearestEven) {
  Random random(29);
  for (int64_t k : {32, 96, 1024}) {
    const int64_t tokens = 3, rows = 2, row_bytes = act_bf16_row_bytes(k);
    std::vector<float> x = random.normals(tokens * rows * (k + 4), 5);
    const float special[] = {NAN,  -INFINITY, 1.00390625f, 1.01171875f,
                             0.0f, -0.0f,     1e-40f,      3.4e38f};
    std::copy(std::begin(special), std::end(special), x.begin());
    AlignedBytes xq(tokens * rows * row_bytes);
    QuantizeArgs a = quantize_args(x, rows * (k + 4), k, tokens, xq, rows * row_bytes);
    a.attrs = {static_cast<int32_t>(rows), static_cast<int32_t>(k + 4)};
    const QuantizeFn run = *find_quantize("quantize_bf16", isa);
    for (int64_t end = k; end > 0; end -= 64) {
      a.elem_begin = std::max<int64_t>(0, end - 64);
      a.elem_end = end;
      run(a);
    }
    for (int64_t r = 0; r < tokens * rows; ++r) {
      const auto* row = reinterpret_cast<const uint16_t*>(xq.data() + r * row_bytes);
      for (int64_t i = 0; i < k; ++i) {
        ASSERT_EQ(row[i], float_to_bfloat16(x[static_cast<size_t>(r * (k + 4) + i)])) << i;
      }
    }
  }
}

TEST_P(ElementwiseTest, QuantizeInPartsGivesTheSameBytes) {
  Random random(28);
  for (int64_t k : {32, 96, 256, 288, 1024}) {
    const int64_t tokens = 3, row_bytes = act_q8_row_bytes(k);
    const std::vector<float> x = random.normals(tokens * k, 5);
    AlignedBytes whole(tokens * row_bytes), parts(tokens * row_bytes);
    QuantizeArgs a = quantize_args(x, k, k, tokens, whole, row_bytes);
    const QuantizeFn run = *find_quantize("quantize_q8", isa);
    run(a);
    a.xq = parts.data();
    std::memset(parts.data(), 0x55, static_cast<size_t>(parts.size()));
    for (int64_t begin = (k - 1) / kActQ8Shared * kActQ8Shared; begin >= 0; begin -= kActQ8Shared) {
      a.elem_begin = begin;
      a.elem_end = std::min(k, begin + kActQ8Shared);
      run(a);
    }
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), static_cast<size_t>(whole.size())), 0) << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ElementwiseTest, ::testing::ValuesIn(usable_isas()),
                         [](const ::testing::TestParamInfo<Isa>& info) {
                           return std::string(name(info.param));
                         });

}  // namespace
}  // namespace ktx::kernels
