// The ops of delta nets: against their formulas in double, cut into passes anywhere, and with
// columns shared out in any way.
#include "kernels/delta_net/delta_net.h"

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

struct Shape {
  int32_t key_heads, value_heads, dim, tiled;
  bool joined;  // b and a in one operand
  int32_t by_channel = 0;
  int64_t decays() const { return int64_t{value_heads} * (by_channel ? dim : 1); }
};
constexpr Shape kShapes[] = {{2, 4, 64, 0, true},     {2, 4, 64, 1, false}, {1, 3, 20, 0, false},
                             {3, 3, 128, 1, true},    {2, 2, 1, 0, true},   {2, 2, 40, 0, false, 1},
                             {3, 3, 128, 0, false, 1}};

// A text of delta-rule inputs, and what the formulas in double make of it.
struct DeltaText {
  DeltaText(const Shape& s, int64_t tokens, uint64_t seed) : shape(s), tokens(tokens) {
    Random random(seed);
    width = (2 * s.key_heads + s.value_heads) * s.dim;
    x = random.normals(tokens * width);
    b = random.normals(tokens * s.value_heads);
    a = random.normals(tokens * s.decays(), 2);
    const int64_t repeats = s.value_heads / s.key_heads;
    for (int64_t t = 0; s.joined && t < tokens; ++t) {
      for (int64_t g = 0; g < s.key_heads; ++g) {
        for (const std::vector<float>* from : {&b, &a}) {
          for (int64_t r = 0; r < repeats; ++r) {
            ba.push_back((*from)[t * s.value_heads + g * repeats + r]);
          }
        }
      }
    }
    for (int32_t h = 0; h < s.value_heads; ++h) decay.push_back(-0.1f - 0.3f * h);
    dt_bias = random.normals(s.decays());
  }

  std::vector<double> expected() const {
    const int64_t dim = shape.dim, heads = shape.value_heads;
    std::vector<double> y(static_cast<size_t>(tokens * heads * dim));
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t key = shape.tiled ? h % shape.key_heads : h / (heads / shape.key_heads);
      std::vector<double> m(static_cast<size_t>(dim * dim));
      for (int64_t t = 0; t < tokens; ++t) {
        const auto head = [&](int64_t index) { return &x[t * width + index * dim]; };
        const auto length = [&](const float* v) {
          double sum = 1e-6;
          for (int64_t i = 0; i < dim; ++i) sum += double{v[i]} * v[i];
          return std::sqrt(sum);
        };
        const float *q = head(key), *k = head(shape.key_heads + key);
        const float* v = head(2 * shape.key_heads + h);
        const double q_scale = 1 / length(q) / std::sqrt(double(dim)), k_scale = 1 / length(k);
        std::vector<double> kept(static_cast<size_t>(dim));  // of each row
        for (int64_t r = 0; r < dim; ++r) {
          const int64_t at = shape.by_channel ? h * dim + r : h;
          const double rate = double{a[t * shape.decays() + at]} + dt_bias[at];
          kept[r] = std::exp(decay[h] * std::log1p(std::exp(rate)));
        }
        const double strength = 1 / (1 + std::exp(-double{b[t * heads + h]}));
        for (int64_t c = 0; c < dim; ++c) {
          double known = 0, read = 0;
          for (int64_t r = 0; r < dim; ++r) known += k_scale * k[r] * (m[r * dim + c] *= kept[r]);
          const double change = strength * (v[c] - known);
          for (int64_t r = 0; r < dim; ++r) {
            read += q_scale * q[r] * (m[r * dim + c] += k_scale * k[r] * change);
          }
          y[(t * heads + h) * dim + c] = read;
        }
      }
    }
    return y;
  }

  // In passes of `pass` tokens, each head in ranges of `columns`.
  std::vector<float> run(Isa isa, int64_t pass, int64_t columns) const {
    const DeltaRuleFn fn = *find_delta_rule("delta_rule", isa);
    const int64_t y_width = int64_t{shape.value_heads} * shape.dim;
    std::vector<float> y(static_cast<size_t>(tokens * y_width), NAN);
    const auto floats = static_cast<size_t>(y_width * shape.dim);
    std::vector<float> now, next;
    for (int64_t at = 0; at < tokens; at += pass) {
      next.assign(floats, NAN);  // what a failed pass left
      DeltaRuleArgs args;
      args.attrs = {0,         shape.key_heads, shape.value_heads,
                    shape.dim, shape.tiled,     shape.by_channel};
      args.x = &x[at * width], args.x_stride = width;
      args.y = &y[at * y_width], args.y_stride = y_width;
      args.b = shape.joined ? &ba[at * 2 * shape.value_heads] : &b[at * shape.value_heads];
      args.b_stride = shape.value_heads * (shape.joined ? 2 : 1);
      if (!shape.joined) args.a = &a[at * shape.decays()];
      args.a_stride = shape.decays();
      args.decay = decay.data(), args.dt_bias = dt_bias.data();
      args.state_in = now.empty() ? nullptr : now.data();
      args.state_out = next.data();
      args.tokens = std::min(pass, tokens - at);
      for (args.head = 0; args.head < shape.value_heads; ++args.head) {
        for (int64_t c = 0; c < shape.dim; c += columns) {
          args.column_begin = c;
          args.column_end = std::min<int64_t>(shape.dim, c + columns);
          fn(args);
        }
      }
      now.swap(next);
    }
    return y;
  }

  Shape shape;
  int64_t tokens, width;
  std::vector<float> x, b, a, ba, decay, dt_bias;
};

TEST(DeltaRule, IsItsFormula) {
  for (const Shape& shape : kShapes) {
    const DeltaText text(shape, 75, 3);
    const std::vector<double> expected = text.expected();
    for (Isa isa : usable_isas()) {
      const std::vector<float> found = text.run(isa, 75, 64);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_FALSE(std::isnan(found[i]));
        worst = std::max(worst, std::abs(found[i] - expected[i]));
      }
      EXPECT_LT(worst, 2e-5) << name(isa) << " heads of " << shape.dim;
    }
  }
}

TEST(DeltaRule, DoesNotDependOnPassesAndColumns) {
  for (const Shape& shape : kShapes) {
    const DeltaText text(shape, 40, 4);
    for (Isa isa : usable_isas()) {
      const std::vector<float> whole = text.run(isa, 40, shape.dim);
      for (int64_t pass : {1, 7, 39}) {
        for (int64_t columns : {16, 64, 80}) {
          EXPECT_EQ(text.run(isa, pass, columns), whole) << name(isa) << " " << pass;
        }
      }
    }
  }
}

TEST(CausalConv, IsItsFormulaInPassesOfAnySize) {
  constexpr int64_t kChannels = 83, kTokens = 30;
  for (const auto& [taps, step] : {std::pair{2, 1}, {4, 1}, {5, 1}, {4, 3}, {2, 9}}) {
    const CausalConvAttrs conv{0, kChannels, taps, 0, step};
    const auto floats = static_cast<size_t>(conv.state_floats());
    Random random(7);
    const std::vector<float> x = random.normals(kTokens * kChannels);
    const std::vector<float> weight = random.normals(taps * kChannels);
    for (Isa isa : usable_isas()) {
      const CausalConvFn fn = *find_causal_conv("causal_conv", isa);
      std::vector<float> first;
      for (int64_t pass : {30, 1, 2, 7}) {
        std::vector<float> y(x.size(), NAN), now, next;
        for (int64_t at = 0; at < kTokens; at += pass) {
          next.assign(floats, NAN);
          CausalConvArgs args;
          args.attrs = conv;
          args.x = &x[at * kChannels], args.y = &y[at * kChannels];
          args.x_stride = args.y_stride = kChannels;
          args.weight = weight.data();
          args.state_in = now.empty() ? nullptr : now.data();
          args.state_out = next.data();
          args.tokens = std::min(pass, kTokens - at);
          for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 48}, {48, kChannels}}) {
            args.channel_begin = begin, args.channel_end = end;
            fn(args);
          }
          now.swap(next);
        }
        if (first.empty()) first = y;
        EXPECT_EQ(y, first) << name(isa) << " " << taps << " taps, passes of " << pass;
      }
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t c = 0; c < kChannels; ++c) {
          double sum = 0;
          for (int64_t j = taps - 1, at = t; j >= 0 && at >= 0; --j, at -= step) {
            sum += double{weight[j * kChannels + c]} * x[at * kChannels + c];
          }
          ASSERT_NEAR(first[t * kChannels + c], sum / (1 + std::exp(-sum)), 2e-6) << name(isa);
        }
      }
      // The same with a bias and without silu.
      const std::vector<float> bias = Random(8).normals(kChannels);
      std::vector<float> y(x.size(), NAN), state(floats);
      CausalConvArgs args;
      args.attrs = conv;
      args.attrs.plain = 1;
      args.x = x.data(), args.y = y.data();
      args.x_stride = args.y_stride = kChannels;
      args.weight = weight.data(), args.bias = bias.data();
      args.state_out = state.data();
      args.tokens = kTokens;
      args.channel_end = kChannels;
      fn(args);
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t c = 0; c < kChannels; ++c) {
          double sum = bias[c];
          for (int64_t j = taps - 1, at = t; j >= 0 && at >= 0; --j, at -= step) {
            sum += double{weight[j * kChannels + c]} * x[at * kChannels + c];
          }
          ASSERT_NEAR(y[t * kChannels + c], sum, 5e-6) << name(isa);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
