// Hyper-connections: weights whose matrix has rows and columns of nearly one sum, and sums of
// streams against double.
#include "kernels/streams/residual_streams.h"

#include <fmt/format.h>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

std::vector<float> weights_of(const StreamWeightsAttrs& attrs, const std::vector<float>& mixes,
                              const std::vector<float>& scale, const std::vector<float>& base) {
  std::vector<float> out(mixes.size());
  StreamWeightsArgs a;
  a.mixes = mixes.data();
  a.scale = scale.data();
  a.base = base.data();
  a.y = out.data();
  a.mixes_stride = a.y_stride = a.width = attrs.width();
  a.attrs = attrs;
  a.token_end = std::ssize(mixes) / attrs.width();
  (*find_stream_weights("stream_weights", Isa::Scalar))(a);
  return out;
}

TEST(StreamWeights, AreSigmoidsAndAMatrixWhoseRowsAndColumnsSumToOne) {
  Random random(98);
  for (const int32_t n : {1, 2, 4, 7, 16}) {
    const StreamWeightsAttrs attrs{n, 20, 1e-6f};
    const std::vector<float> mixes = random.normals(3 * attrs.width(), 2);
    const std::vector<float> scale = {0.5f, 2, 1}, base = random.normals(attrs.width());
    const std::vector<float> w = weights_of(attrs, mixes, scale, base);
    for (int64_t t = 0; t < 3; ++t) {
      const float* own = &w[static_cast<size_t>(t * attrs.width())];
      const float* in = &mixes[static_cast<size_t>(t * attrs.width())];
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(own[i], 1 / (1 + std::exp(-(in[i] * 0.5 + base[i]))) + 1e-6, 1e-6);
        EXPECT_NEAR(own[n + i], 2 / (1 + std::exp(-(in[n + i] * 2.0 + base[n + i]))), 1e-6);
        double row = 0, column = 0;
        for (int64_t j = 0; j < n; ++j) {
          EXPECT_GE(own[2 * n + i * n + j], 0);
          row += own[2 * n + i * n + j], column += own[2 * n + j * n + i];
        }
        EXPECT_NEAR(column, 1, 1e-4) << n << " streams: columns come last";
        EXPECT_NEAR(row, 1, 0.05) << n;
      }
    }
  }
}

// Two streams and one turn, by hand: softmax of rows, then columns.
TEST(StreamWeights, OneTurnIsASoftmaxOfRowsDividedByColumns) {
  const StreamWeightsAttrs attrs{2, 1, 0.125f};
  const std::vector<float> mixes = {0, 0, 0, 0, 0, std::log(3.0f), 0, 0};
  const std::vector<float> w = weights_of(attrs, mixes, {1, 1, 1}, std::vector<float>(8));
  // Rows (1/4, 3/4) and (1/2, 1/2), each + 1/8; columns sum to 1 and 3/2, + 1/8.
  const float want[] = {0.625f,          0.625f,         1, 1, 0.375f / 1.125f, 0.875f / 1.625f,
                        0.625f / 1.125f, 0.625f / 1.625f};
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(w[static_cast<size_t>(i)], want[i], 1e-6) << i;
}

TEST(StreamWeights, OfTheHeadAreSigmoidsAlone) {
  const StreamWeightsAttrs attrs{3, 0, 0.5f};
  EXPECT_EQ(attrs.width(), 3);
  const std::vector<float> w = weights_of(attrs, {0, 1, -1}, {2}, {0, 0, 2});
  EXPECT_NEAR(w[0], 1, 1e-6);
  EXPECT_NEAR(w[1], 1 / (1 + std::exp(-2.0)) + 0.5, 1e-6);
  EXPECT_NEAR(w[2], 1, 1e-6);
}

// Three streams, the second one active: the weights are right where mixing with them gives
// what AltUp's own formulas say.
TEST(AltUpWeights, PredictAndCorrectByTheirFormulas) {
  constexpr int64_t kStreams = 3, kActive = 1, kTokens = 2, kWidth = 5;
  Random random(100);
  const std::vector<float> x = random.normals(kTokens * kStreams * kWidth);
  const std::vector<float> part = random.normals(kTokens * kWidth);
  for (const bool corrects : {false, true}) {
    AltUpWeightsArgs a;
    a.attrs = {kStreams, kActive, corrects};
    const std::vector<float> coefs = random.normals(kTokens * a.attrs.coefs());
    std::vector<float> weights(static_cast<size_t>(kTokens * a.attrs.width()));
    a.coefs = coefs.data(), a.coefs_stride = a.attrs.coefs();
    a.y = weights.data(), a.y_stride = a.width = a.attrs.width();
    a.token_end = kTokens;
    (*find_altup_weights("altup_weights", Isa::Scalar))(a);
    std::vector<float> mixed(x.size());
    MixStreamsArgs m;
    m.x = x.data(), m.x_stride = kStreams * kWidth;
    m.part = part.data(), m.part_stride = kWidth;
    m.weights = weights.data(), m.weights_stride = a.attrs.width();
    m.y = mixed.data(), m.y_stride = m.width = kStreams * kWidth;
    m.streams = kStreams;
    m.token_end = kTokens;
    (*find_mix_streams("mix_streams", Isa::Scalar))(m);
    for (int64_t t = 0; t < kTokens; ++t) {
      const float* own = &coefs[static_cast<size_t>(t * a.attrs.coefs())];
      for (int64_t d = 0; d < kStreams; ++d) {
        for (int64_t h = 0; h < kWidth; ++h) {
          const auto stream = [&](int64_t s) {
            return double{x[static_cast<size_t>((t * kStreams + s) * kWidth + h)]};
          };
          double expected = stream(d);
          if (corrects) {
            const double change = part[static_cast<size_t>(t * kWidth + h)] - stream(kActive);
            expected += (1 + double{own[d]}) * change;
          } else {
            for (int64_t s = 0; s < kStreams; ++s) expected += own[d * kStreams + s] * stream(s);
          }
          const size_t at = static_cast<size_t>((t * kStreams + d) * kWidth + h);
          EXPECT_NEAR(mixed[at], expected, 1e-5) << corrects << " " << d;
        }
      }
    }
  }
}

class Streams : public ::testing::TestWithParam<Isa> {};

TEST_P(Streams, KeepWhatTheyHaveWithoutWeightsForIt) {
  constexpr int64_t kTokens = 3, n = 3, width = 37;
  Random random(17);
  const std::vector<float> x = random.normals(kTokens * n * width);
  const std::vector<float> part = random.normals(kTokens * width);
  const std::vector<float> weights = random.normals(kTokens * n);
  std::vector<float> y(x.size() + 1, -7);
  MixStreamsArgs m;
  m.x = x.data(), m.x_stride = n * width;
  m.part = part.data(), m.part_stride = width;
  m.weights = weights.data(), m.weights_stride = n;
  m.keeps = true;
  m.y = y.data(), m.y_stride = m.width = n * width;
  m.streams = n;
  m.token_end = kTokens;
  (*find_mix_streams("mix_streams", GetParam()))(m);
  EXPECT_EQ(y.back(), -7);
  for (int64_t i = 0; i < kTokens * n * width; ++i) {
    const int64_t t = i / (n * width), s = i / width % n;
    const double given = double{weights[t * n + s]} * part[t * width + i % width];
    ASSERT_NEAR(y[i], x[i] + given, 1e-6) << i;
  }
}

TEST_P(Streams, AreMultipliedEachByItself) {
  Random random(18);
  for (const int64_t width : {1, 16, 100}) {
    constexpr int64_t kTokens = 2, n = 3;
    const std::vector<float> a = random.normals(kTokens * n * width);
    const std::vector<float> b = random.normals(kTokens * n * width);
    std::vector<float> y(kTokens * n + 1, -7);
    DotStreamsArgs d;
    d.a = a.data(), d.b = b.data();
    d.a_stride = d.b_stride = n * width;
    d.y = y.data(), d.y_stride = d.width = n;
    d.row_width = width, d.factor = 0.25f;
    d.token_end = kTokens;
    (*find_dot_streams("dot_streams", GetParam()))(d);
    EXPECT_EQ(y.back(), -7);
    for (int64_t i = 0; i < kTokens * n; ++i) {
      double sum = 0;
      for (int64_t h = 0; h < width; ++h) sum += double{a[i * width + h]} * b[i * width + h];
      EXPECT_NEAR(y[i], sum / 4, 1e-5) << width;
    }
  }
}

TEST_P(Streams, AreSummedAndMixedByTheirWeights) {
  Random random(99);
  for (const int64_t n : {1, 2, 4, 5}) {
    for (const int64_t width : {1, 15, 16, 17, 100}) {
      constexpr int64_t kTokens = 3;
      std::vector<float> x = random.normals(kTokens * n * width);
      const std::vector<float> part = random.normals(kTokens * width);
      const std::vector<float> weights = random.normals(kTokens * n * (n + 2));
      const auto weight = [&](int64_t t, int64_t i) {
        return double{weights[static_cast<size_t>(t * n * (n + 2) + i)]};
      };
      const auto stream = [&](int64_t t, int64_t s, int64_t h) {
        return double{x[static_cast<size_t>((t * n + s) * width + h)]};
      };
      std::vector<float> y(static_cast<size_t>(kTokens * width + 1), -7);
      CollapseStreamsArgs c;
      c.x = x.data(), c.x_stride = n * width;
      c.weights = weights.data(), c.weights_stride = n * (n + 2);
      c.y = y.data(), c.y_stride = c.width = width;
      c.streams = static_cast<int32_t>(n);
      c.token_end = kTokens;
      (*find_collapse_streams("collapse_streams", GetParam()))(c);
      EXPECT_EQ(y.back(), -7);
      std::vector<float> mixed(x.size() + 1, -7);
      MixStreamsArgs m;
      m.x = x.data(), m.x_stride = n * width;
      m.part = part.data(), m.part_stride = width;
      m.weights = weights.data() + n, m.weights_stride = n * (n + 2);
      m.y = mixed.data(), m.y_stride = m.width = n * width;
      m.streams = static_cast<int32_t>(n);
      m.token_end = kTokens;
      const MixStreamsFn mix = *find_mix_streams("mix_streams", GetParam());
      mix(m);
      EXPECT_EQ(mixed.back(), -7);
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t h = 0; h < width; ++h) {
          double sum = 0;
          for (int64_t s = 0; s < n; ++s) sum += weight(t, s) * stream(t, s, h);
          ASSERT_NEAR(y[static_cast<size_t>(t * width + h)], sum, 1e-5) << n << "x" << width;
          for (int64_t d = 0; d < n; ++d) {
            double given = weight(t, n + d) * part[static_cast<size_t>(t * width + h)];
            for (int64_t s = 0; s < n; ++s) {
              given += weight(t, 2 * n + s * n + d) * stream(t, s, h);
            }
            ASSERT_NEAR(mixed[static_cast<size_t>((t * n + d) * width + h)], given, 1e-5);
          }
        }
      }
      // In place, the same bits.
      m.y = x.data();
      mix(m);
      mixed.pop_back();
      EXPECT_TRUE(same_bits(x, mixed)) << n << "x" << width;
    }
  }
}

// The first stream and others, each in a value of its own; one with a large part of the scores,
// and one that is zeros.
TEST_P(Streams, AreAttendedToByTheirProductsWithTheScore) {
  Random random(101);
  for (const int32_t n : {2, 3, 9, kMaxStreams}) {
    for (const int64_t width : {1, 15, 16, 17, 100}) {
      constexpr int64_t kTokens = 3;
      const std::vector<float> score = random.normals(width, 3);
      std::vector<std::vector<float>> x;
      AttendStreamsArgs a;
      for (int32_t s = 0; s < n; ++s) {
        x.push_back(s == 1 ? std::vector<float>(static_cast<size_t>(kTokens * width))
                           : random.normals(kTokens * width, 1 + static_cast<float>(s)));
        a.x[s] = x.back().data();
        a.x_stride[s] = width;
      }
      std::vector<float> y(static_cast<size_t>(kTokens * width + 1), -7);
      a.streams = n;
      a.score = score.data();
      a.y = y.data(), a.y_stride = a.width = width;
      a.attrs.eps = 1e-3f;
      a.token_end = kTokens;
      (*find_attend_streams("attend_streams", GetParam()))(a);
      EXPECT_EQ(y.back(), -7);
      for (int64_t t = 0; t < kTokens; ++t) {
        std::vector<double> shares;
        double all = 0;
        for (int32_t s = 0; s < n; ++s) {
          double squares = 0, product = 0;
          for (int64_t h = 0; h < width; ++h) {
            const double value = x[static_cast<size_t>(s)][static_cast<size_t>(t * width + h)];
            squares += value * value;
            product += value * score[static_cast<size_t>(h)];
          }
          shares.push_back(std::exp(product / std::sqrt(squares / double(width) + a.attrs.eps)));
          all += shares.back();
        }
        for (int64_t h = 0; h < width; ++h) {
          double sum = 0;
          for (int32_t s = 0; s < n; ++s) {
            sum += shares[static_cast<size_t>(s)] / all *
                   x[static_cast<size_t>(s)][static_cast<size_t>(t * width + h)];
          }
          ASSERT_NEAR(y[static_cast<size_t>(t * width + h)], sum, 3e-5 * n) << n << "x" << width;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Streams, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ktx::kernels
