// The selective scan: against its formula in double, cut into passes anywhere, and with channels
// shared out in any way.
#include "kernels/state_space/selective_scan.h"

#include <algorithm>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr SelectiveScanAttrs kShapes[] = {{0, 64, 16}, {0, 33, 16}, {0, 5, 7}, {0, 130, 1}};

// A text of inputs, and what the formula in double makes of it.
struct ScanText {
  ScanText(const SelectiveScanAttrs& a, int64_t count, uint64_t seed) : attrs(a), tokens(count) {
    Random random(seed);
    x = random.normals(tokens * attrs.channels);
    dt = random.normals(tokens * attrs.channels, 2);
    in_out = random.normals(tokens * 2 * attrs.state_dim);
    skip = random.normals(attrs.channels);
    for (int64_t i = 0; i < attrs.state_floats(); ++i) {
      decay.push_back(-0.1f - 0.3f * static_cast<float>(i % 23));
    }
  }

  std::vector<double> expected() const {
    const int64_t channels = attrs.channels, rows = attrs.state_dim;
    std::vector<double> y(static_cast<size_t>(tokens * channels));
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> m(static_cast<size_t>(rows));
      for (int64_t t = 0; t < tokens; ++t) {
        const float* const in = &in_out[t * 2 * rows];
        const double step = std::log1p(std::exp(double{dt[t * channels + c]}));
        const double value = x[t * channels + c];
        double read = skip[c] * value;
        for (int64_t i = 0; i < rows; ++i) {
          m[i] = m[i] * std::exp(decay[i * channels + c] * step) + in[i] * step * value;
          read += in[rows + i] * m[i];
        }
        y[t * channels + c] = read;
      }
    }
    return y;
  }

  // In passes of `pass` tokens, in ranges of `columns` channels.
  std::vector<float> run(Isa isa, int64_t pass, int64_t columns) const {
    const SelectiveScanFn fn = *find_selective_scan("selective_scan", isa);
    const int64_t channels = attrs.channels;
    std::vector<float> y(static_cast<size_t>(tokens * channels), NAN), now, next;
    for (int64_t at = 0; at < tokens; at += pass) {
      next.assign(static_cast<size_t>(attrs.state_floats()), NAN);  // what a failed pass left
      SelectiveScanArgs args;
      args.attrs = attrs;
      args.x = &x[at * channels], args.x_stride = channels;
      args.dt = &dt[at * channels], args.dt_stride = channels;
      args.in_out = &in_out[at * 2 * attrs.state_dim], args.in_out_stride = 2 * attrs.state_dim;
      args.y = &y[at * channels], args.y_stride = channels;
      args.decay = decay.data(), args.skip = skip.data();
      args.state_in = now.empty() ? nullptr : now.data();
      args.state_out = next.data();
      args.tokens = std::min(pass, tokens - at);
      for (int64_t c = 0; c < channels; c += columns) {
        args.channel_begin = c;
        args.channel_end = std::min(channels, c + columns);
        fn(args);
      }
      now.swap(next);
    }
    return y;
  }

  SelectiveScanAttrs attrs;
  int64_t tokens;
  std::vector<float> x, dt, in_out, skip, decay;
};

TEST(SelectiveScan, IsItsFormula) {
  for (const SelectiveScanAttrs& attrs : kShapes) {
    const ScanText text(attrs, 75, 3);
    const std::vector<double> expected = text.expected();
    for (Isa isa : usable_isas()) {
      const std::vector<float> found = text.run(isa, 75, 64);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_FALSE(std::isnan(found[i]));
        worst = std::max(worst, std::abs(found[i] - expected[i]) / (10 + std::abs(expected[i])));
      }
      EXPECT_LT(worst, 2e-5) << name(isa) << " " << attrs.channels << " channels";
    }
  }
}

TEST(SelectiveScan, DoesNotDependOnPassesAndChannels) {
  for (const SelectiveScanAttrs& attrs : kShapes) {
    const ScanText text(attrs, 40, 4);
    for (Isa isa : usable_isas()) {
      const std::vector<float> whole = text.run(isa, 40, attrs.channels);
      for (int64_t pass : {1, 7, 39}) {
        for (int64_t columns : {16, 64, 80}) {
          EXPECT_EQ(text.run(isa, pass, columns), whole) << name(isa) << " " << pass;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
