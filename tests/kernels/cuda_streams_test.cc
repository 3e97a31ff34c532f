// Residual streams and statistics of rows on the GPU against the scalar CPU ops.
#include "kernels/cuda/streams/cuda_streams.h"

#include "kernels/cuda/rows/cuda_rows.h"

#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaStreams = CudaTest;

constexpr int64_t kTokens = 35;  // of several blocks
constexpr int32_t kCounts[] = {1, 2, 4, 7, 16};

// By the scalar op and on the GPU, in place of the mixes.
TEST_F(CudaStreams, WeightsAgreeWithTheScalarOp) {
  Random random(121);
  for (const int32_t n : kCounts) {
    for (const int32_t iterations : {0, 1, 20}) {
      SCOPED_TRACE(::testing::Message() << n << " streams, seed " << random.seed());
      StreamWeightsArgs host;
      host.attrs = {n, iterations, 1e-6f};
      host.width = host.attrs.width();
      host.mixes_stride = host.y_stride = host.width + 3;
      const std::vector<float> mixes = random.normals(kTokens * host.y_stride, 2);
      const std::vector<float> scale = {0.5f, 2, 1}, base = random.normals(host.width);
      std::vector<float> want = mixes;
      host.mixes = host.y = want.data();
      host.scale = scale.data();
      host.base = base.data();
      host.token_end = kTokens;
      (*find_stream_weights("stream_weights", Isa::Scalar))(host);
      Gpu<float> y(mixes), gpu_scale(scale), gpu_base(base);
      StreamWeightsArgs args = host;
      args.mixes = args.y = y.data();
      args.scale = gpu_scale.data();
      args.base = gpu_base.data();
      ASSERT_TRUE(ran(launch_stream_weights(args, nullptr)));
      const std::vector<float> found = y.read();
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], 5e-6f) << i;
    }
  }
}

TEST_F(CudaStreams, AltUpWeightsAgreeWithTheScalarOp) {
  Random random(122);
  for (const int32_t n : kCounts) {
    for (const int32_t corrects : {0, 1}) {
      AltUpWeightsArgs host;
      host.attrs = {n, n / 2, corrects};
      host.width = host.y_stride = host.attrs.width();
      host.coefs_stride = host.attrs.coefs();
      const std::vector<float> coefs = random.normals(kTokens * host.coefs_stride);
      std::vector<float> want(static_cast<size_t>(kTokens * host.width));
      host.coefs = coefs.data();
      host.y = want.data();
      host.token_end = kTokens;
      (*find_altup_weights("altup_weights", Isa::Scalar))(host);
      Gpu<float> gpu_coefs(coefs), y(want.size());
      AltUpWeightsArgs args = host;
      args.coefs = gpu_coefs.data();
      args.y = y.data();
      ASSERT_TRUE(ran(launch_altup_weights(args, nullptr)));
      EXPECT_EQ(y.read(), want) << n << " streams";
    }
  }
}

// Sums to a row of their own, mixes in place of the streams.
TEST_F(CudaStreams, SumsAndMixesAgreeWithTheScalarOps) {
  Random random(123);
  for (const int32_t n : kCounts) {
    for (const int64_t width : {5, 8, 1100}) {
      SCOPED_TRACE(::testing::Message() << n << " streams of " << width);
      const int64_t all = n * width, weights_each = n * (n + 1) + 1;
      const std::vector<float> x = random.normals(kTokens * all);
      const std::vector<float> part = random.normals(kTokens * width);
      const std::vector<float> weights = random.normals(kTokens * weights_each);
      std::vector<float> sums(static_cast<size_t>(kTokens * width)), mixed = x;
      CollapseStreamsArgs sum;
      sum.x = x.data(), sum.x_stride = all;
      sum.weights = weights.data(), sum.weights_stride = weights_each;
      sum.y = sums.data(), sum.y_stride = width;
      sum.width = width, sum.streams = n;
      sum.token_end = kTokens;
      (*find_collapse_streams("collapse_streams", Isa::Scalar))(sum);
      MixStreamsArgs mix;
      mix.x = mix.y = mixed.data(), mix.x_stride = mix.y_stride = all;
      mix.part = part.data(), mix.part_stride = width;
      mix.weights = weights.data(), mix.weights_stride = weights_each;
      mix.width = all, mix.streams = n;
      mix.token_end = kTokens;
      (*find_mix_streams("mix_streams", Isa::Scalar))(mix);

      Gpu<float> gpu_x(x), gpu_part(part), gpu_weights(weights), y(sums.size());
      sum.x = gpu_x.data(), sum.weights = gpu_weights.data(), sum.y = y.data();
      ASSERT_TRUE(ran(launch_collapse_streams(sum, nullptr)));
      EXPECT_LT(relative_error(y.read(), sums), 1e-6);
      mix.x = mix.y = gpu_x.data(), mix.part = gpu_part.data(), mix.weights = gpu_weights.data();
      ASSERT_TRUE(ran(launch_mix_streams(mix, nullptr)));
      EXPECT_LT(relative_error(gpu_x.read(), mixed), 1e-6);
    }
  }
}

// In place; a row of zeros stays one.
TEST_F(CudaStreams, StatisticsOfRowsAgreeWithTheScalarOps) {
  Random random(124);
  for (const int64_t width : {7, 300, 2048}) {
    SCOPED_TRACE(width);
    const int64_t stride = width + 5, like_width = 2 * width;
    std::vector<float> x = random.normals(kTokens * stride, 3);
    std::fill_n(x.begin(), width, 0.0f);
    const std::vector<float> like = random.normals(kTokens * like_width);
    std::vector<float> matched = x, cut = x;
    MatchRmsArgs match;
    match.x = match.y = matched.data(), match.x_stride = match.y_stride = stride;
    match.like = like.data(), match.like_stride = match.like_width = like_width;
    match.width = width, match.attrs = {1e-5f};
    match.token_end = kTokens;
    (*find_match_rms("match_rms", Isa::Scalar))(match);
    GaussianTopKArgs top;
    top.x = top.y = cut.data(), top.x_stride = top.y_stride = stride;
    top.width = width, top.attrs = {0.7f};
    top.token_end = kTokens;
    (*find_gaussian_topk("gaussian_topk", Isa::Scalar))(top);

    Gpu<float> gpu_like(like), gpu_matched(x), gpu_cut(x);
    match.x = match.y = gpu_matched.data(), match.like = gpu_like.data();
    ASSERT_TRUE(ran(launch_match_rms(match, nullptr)));
    EXPECT_LT(relative_error(gpu_matched.read(), matched), 1e-6);
    top.x = top.y = gpu_cut.data();
    ASSERT_TRUE(ran(launch_gaussian_topk(top, nullptr)));
    EXPECT_LT(relative_error(gpu_cut.read(), cut), 3e-6);
  }
}

}  // namespace
}  // namespace ktx::kernels
