// State-space layers: against their formula in double, cut into passes anywhere, and with columns
// shared out in any way.
#include "kernels/state_space/state_space.h"

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr StateSpaceAttrs kShapes[] = {{0, 4, 64, 1, 128}, {0, 6, 24, 2, 20}, {0, 8, 80, 8, 16},
                                       {0, 3, 1, 1, 3},    {0, 2, 40, 1, 33}, {0, 2, 128, 2, 64}};

// A text of inputs, and what the formula in double makes of it.
struct SpaceText {
  SpaceText(const StateSpaceAttrs& a, int64_t count, uint64_t seed) : attrs(a), tokens(count) {
    Random random(seed);
    x = random.normals(tokens * attrs.channels());
    dt = random.normals(tokens * attrs.heads, 2);
    dt_bias = random.normals(attrs.heads);
    skip = random.normals(attrs.heads);
    for (int32_t h = 0; h < attrs.heads; ++h) decay.push_back(-0.1f - 0.7f * h);
  }

  std::vector<double> expected() const {
    const int64_t dim = attrs.head_dim, rows = attrs.state_dim;
    std::vector<double> y(static_cast<size_t>(tokens * attrs.width()));
    for (int64_t h = 0; h < attrs.heads; ++h) {
      const int64_t group = h / (attrs.heads / attrs.groups);
      std::vector<double> m(static_cast<size_t>(rows * dim));
      for (int64_t t = 0; t < tokens; ++t) {
        const float* const row = &x[t * attrs.channels()];
        const float* const in = row + attrs.width() + group * rows;
        const float* const out = in + int64_t{attrs.groups} * rows;
        double step = std::log1p(std::exp(double{dt[t * attrs.heads + h]} + dt_bias[h]));
        step = std::max<double>(step, attrs.step_min);
        if (attrs.step_max > 0) step = std::min<double>(step, attrs.step_max);
        for (int64_t c = 0; c < dim; ++c) {
          const double value = row[h * dim + c];
          double read = skip[h] * value;
          for (int64_t r = 0; r < rows; ++r) {
            m[r * dim + c] = m[r * dim + c] * std::exp(decay[h] * step) + step * in[r] * value;
            read += out[r] * m[r * dim + c];
          }
          y[t * attrs.width() + h * dim + c] = read;
        }
      }
    }
    return y;
  }

  // In passes of `pass` tokens, each head in ranges of `columns`.
  std::vector<float> run(Isa isa, int64_t pass, int64_t columns) const {
    const StateSpaceFn fn = *find_state_space("state_space", isa);
    std::vector<float> y(static_cast<size_t>(tokens * attrs.width()), NAN), now, next;
    for (int64_t at = 0; at < tokens; at += pass) {
      next.assign(static_cast<size_t>(attrs.state_floats()), NAN);  // what a failed pass left
      StateSpaceArgs args;
      args.attrs = attrs;
      args.x = &x[at * attrs.channels()], args.x_stride = attrs.channels();
      args.dt = &dt[at * attrs.heads], args.dt_stride = attrs.heads;
      args.y = &y[at * attrs.width()], args.y_stride = attrs.width();
      args.decay = decay.data(), args.skip = skip.data(), args.dt_bias = dt_bias.data();
      args.state_in = now.empty() ? nullptr : now.data();
      args.state_out = next.data();
      args.tokens = std::min(pass, tokens - at);
      for (args.head = 0; args.head < attrs.heads; ++args.head) {
        for (int64_t c = 0; c < attrs.head_dim; c += columns) {
          args.column_begin = c;
          args.column_end = std::min<int64_t>(attrs.head_dim, c + columns);
          fn(args);
        }
      }
      now.swap(next);
    }
    return y;
  }

  StateSpaceAttrs attrs;
  int64_t tokens;
  std::vector<float> x, dt, dt_bias, skip, decay;
};

TEST(StateSpace, IsItsFormula) {
  for (const StateSpaceAttrs& attrs : kShapes) {
    const SpaceText text(attrs, 75, 3);
    const std::vector<double> expected = text.expected();
    for (Isa isa : usable_isas()) {
      const std::vector<float> found = text.run(isa, 75, 64);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_FALSE(std::isnan(found[i]));
        worst = std::max(worst, std::abs(found[i] - expected[i]) / (10 + std::abs(expected[i])));
      }
      EXPECT_LT(worst, 2e-5) << name(isa) << " heads of " << attrs.head_dim;
    }
  }
}

TEST(StateSpace, DoesNotDependOnPassesAndColumns) {
  for (const StateSpaceAttrs& attrs : kShapes) {
    const SpaceText text(attrs, 40, 4);
    for (Isa isa : usable_isas()) {
      const std::vector<float> whole = text.run(isa, 40, attrs.head_dim);
      for (int64_t pass : {1, 7, 39}) {
        for (int64_t columns : {16, 64, 80}) {
          EXPECT_EQ(text.run(isa, pass, columns), whole) << name(isa) << " " << pass;
        }
      }
    }
  }
}

TEST(StateSpace, StepsStayWithinTheirLimits) {
  StateSpaceAttrs attrs = kShapes[1];
  attrs.step_min = 0.5f, attrs.step_max = 0.75f;
  const SpaceText text(attrs, 30, 5);
  const std::vector<double> expected = text.expected();
  SpaceText without = text;
  without.attrs.step_min = without.attrs.step_max = 0;
  for (Isa isa : usable_isas()) {
    const std::vector<float> found = text.run(isa, 7, 16);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 2e-4 * (1 + std::abs(expected[i]))) << name(isa);
    }
    EXPECT_NE(found, without.run(isa, 7, 16));
  }
}

}  // namespace
}  // namespace ktx::kernels
