// MLA in expanded form against the absorbed form of the scalar CPU ops, on the same cache.
#include "kernels/cuda/mla/cuda_latent.h"

#include "lib/formats/layout.h"
#include "tests/kernels/cuda_caches.h"

namespace ktx::kernels {
namespace {

class CudaLatent : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !latent_expanded_runs()) {
      GTEST_SKIP() << "the expanded form needs Hopper (sm_90), in the GPU and in the build";
    }
  }
};

struct Heads {
  int32_t count, dim, latent, rope;
};
constexpr Heads kSmall = {3, 64, 256, 32}, kDeepSeek = {2, 128, 512, 64};

// Weights of all heads: keys and values in matrices of their own (k_b turned), or in one.
class LatentWeights {
 public:
  LatentWeights(Random& random, const Heads& heads, DType key, DType value, bool split)
      : heads_(heads),
        split_(split),
        first_(random, key, split ? heads.latent : 2 * heads.dim, split ? heads.dim : heads.latent,
               heads.count),
        second_(random, value, heads.dim, heads.latent, split ? heads.count : 1) {}

  void give(CudaLatentArgs& args) const {
    args.key = first_.gpu();
    args.key_heads = {heads_.count, !split_, 0, split_ ? heads_.latent : heads_.dim, 0, 0};
    args.value = split_ ? second_.gpu() : first_.gpu();
    args.value_heads = {heads_.count,  0,         split_ ? 0 : heads_.dim, heads_.dim,
                        heads_.latent, heads_.dim};
  }
  // The head's key weights, [dim][latent].
  std::vector<std::vector<float>> keys(int64_t head) const {
    std::vector<std::vector<float>> out(static_cast<size_t>(heads_.dim));
    for (int32_t d = 0; !split_ && d < heads_.dim; ++d)
      out[static_cast<size_t>(d)] = first_.row(head, d);
    for (int32_t c = 0; split_ && c < heads_.latent; ++c) {
      const std::vector<float> row = first_.row(head, c);
      for (size_t d = 0; d < row.size(); ++d) out[d].push_back(row[d]);
    }
    return out;
  }
  std::vector<float> value_row(int64_t head, int32_t d) const {
    return split_ ? second_.row(head, d) : first_.row(head, heads_.dim + d);
  }
  // With latents of this size keys are of size 1.
  float latent_scale() const {
    double sum = 0;
    for (const auto& row : keys(0)) {
      for (float w : row) sum += double{w} * w;
    }
    return static_cast<float>(1 / std::sqrt(sum / heads_.dim));
  }

 private:
  Heads heads_;
  bool split_;
  GpuWeights first_, second_;
};

// What the scalar ops make of it for these heads: [tokens][some heads * dim].
std::vector<float> absorbed(const Heads& heads, const LatentWeights& weights, const CacheStep& step,
                            const std::vector<float>& q, const std::vector<float>& q_rope,
                            float scale, const std::vector<int32_t>& some) {
  const int64_t key_dim = heads.latent + heads.rope, count = std::ssize(some),
                tokens = step.tokens();
  std::vector<float> q_latent(static_cast<size_t>(tokens * count * key_dim));
  std::vector<float> sums(static_cast<size_t>(tokens * count * heads.latent));
  std::vector<float> out(static_cast<size_t>(tokens * count * heads.dim));
  for (int64_t i = 0; i < count; ++i) {
    const auto keys = weights.keys(some[static_cast<size_t>(i)]);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t head = t * heads.count + some[static_cast<size_t>(i)];
      float* to = q_latent.data() + (t * count + i) * key_dim;
      std::vector<double> sum(static_cast<size_t>(heads.latent));
      for (int32_t d = 0; d < heads.dim; ++d) {
        const double x = q[static_cast<size_t>(head * heads.dim + d)];
        for (size_t c = 0; c < sum.size(); ++c) sum[c] += x * keys[static_cast<size_t>(d)][c];
      }
      for (size_t c = 0; c < sum.size(); ++c) to[c] = static_cast<float>(sum[c]);
      std::copy_n(q_rope.data() + head * heads.rope, heads.rope, to + heads.latent);
    }
  }
  AttentionArgs args;
  args.q = q_latent.data();
  args.q_stride = count * key_dim;
  args.y = sums.data();
  args.y_stride = count * heads.latent;
  args.attrs = {
      0, static_cast<int32_t>(count), 1, static_cast<int32_t>(key_dim), heads.latent, 1, scale};
  args.kv = step.view();
  args.token_end = tokens;
  args.head_end = static_cast<int32_t>(count);
  AlignedBytes scratch(attention_scratch_bytes(args.attrs));
  args.scratch = scratch.data();
  (*find_attention("attention", Isa::Scalar))(args);
  for (int64_t i = 0; i < count; ++i) {
    for (int32_t d = 0; d < heads.dim; ++d) {
      const std::vector<float> row = weights.value_row(some[static_cast<size_t>(i)], d);
      for (int64_t t = 0; t < tokens; ++t) {
        out[static_cast<size_t>((t * count + i) * heads.dim + d)] =
            static_cast<float>(dot(row, sums.data() + (t * count + i) * heads.latent));
      }
    }
  }
  return out;
}

struct Pass {
  KvType type = KvType::F16;
  DType key = DType::Q8_0, value = DType::Q4_K;
  bool split = true;
  std::vector<int32_t> lengths;  // of each sequence, the last `news` of which are in the pass
  int32_t news = 0;
  std::vector<int32_t> some = {};  // heads that are compared; none: all
};

// A launch for each sequence, as the step makes them.
void check(Random& random, const Heads& heads, const Pass& run) {
  SCOPED_TRACE(testing::Message() << "heads " << heads.count << " of " << heads.dim << " "
                                  << type_name(run.type) << " " << name(run.key) << " "
                                  << name(run.value) << " split " << run.split << " length "
                                  << run.lengths[0] << " tokens " << run.news << " seed "
                                  << random.seed());
  const LatentWeights weights(random, heads, run.key, run.value, run.split);
  const float size = weights.latent_scale();
  const CacheStep step(random, {run.type, 64, 1, heads.latent + heads.rope, 0}, run.lengths,
                       run.news, size);
  const int64_t tokens = step.tokens(), q_width = int64_t{heads.count} * (heads.dim + 8);
  const float scale = 1 / std::sqrt(static_cast<float>(heads.dim + heads.rope));
  const std::vector<float> q = random.normals(tokens * heads.count * heads.dim);
  const std::vector<float> q_rope = random.normals(tokens * heads.count * heads.rope, 1 / size);
  std::vector<float> spread(static_cast<size_t>(tokens * q_width), NAN);  // heads 8 floats apart
  for (int64_t i = 0; i < tokens * heads.count; ++i) {
    std::copy_n(q.data() + i * heads.dim, heads.dim, spread.data() + i * (heads.dim + 8));
  }
  std::vector<int32_t> some = run.some;
  for (int32_t h = 0; run.some.empty() && h < heads.count; ++h) some.push_back(h);
  const std::vector<float> want = absorbed(heads, weights, step, q, q_rope, scale, some);

  GpuCache cache(step);
  // The results go where the rotary parts were.
  std::vector<float> rope_and_y = q_rope;
  rope_and_y.resize(static_cast<size_t>(tokens * heads.count * std::max(heads.dim, heads.rope)),
                    NAN);
  Gpu<float> gpu_q(spread), y(rope_and_y);
  Gpu<uint16_t> queries(static_cast<size_t>(tokens * heads.count * latent_query_halves(heads.dim)));
  CudaLatentArgs args;
  weights.give(args);
  args.y_stride = int64_t{heads.count} * heads.dim;
  args.heads = heads.count;
  args.head_dim = heads.dim;
  args.latent_dim = heads.latent;
  args.rope_dim = heads.rope;
  args.kv = cache.view;
  ASSERT_TRUE(latent_expanded_takes(args));
  const CudaLatentQueriesArgs taken = {
      gpu_q.data(), q_width,       heads.dim + 8, y.data(),  int64_t{heads.count} * heads.rope,
      heads.rope,   tokens,        heads.count,   heads.dim, heads.rope,
      scale,        queries.data()};
  ASSERT_TRUE(ran(launch_latent_queries(taken, nullptr)));
  for (size_t s = 0; s < run.lengths.size(); ++s) {
    const int64_t first = static_cast<int64_t>(s) * run.news;
    args.queries = queries.data() + first * heads.count * latent_query_halves(heads.dim);
    args.y = y.data() + first * args.y_stride;
    args.tokens = run.news;
    args.positions = run.lengths[s];
    args.kv.sequence = cache.view.sequence + first;
    args.kv.position = cache.view.position + first;
    GpuWorkspace workspace(args, latent_expanded_workspace(args));
    ASSERT_TRUE(ran(launch_latent_expanded(args, nullptr)));
  }
  const std::vector<float> all = y.read();
  std::vector<float> got;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int32_t h : some) {
      const float* from = all.data() + (t * heads.count + h) * heads.dim;
      got.insert(got.end(), from, from + heads.dim);
    }
  }
  // Keys, values, queries and weights of the softmax are rounded, and weights of the products.
  EXPECT_LT(relative_error(got, want), 2 * kHalfProducts);
}

TEST_F(CudaLatent, ExpandedFormAgreesWithTheAbsorbedOneOfTheScalarOps) {
  Random random(171);
  for (KvType type : {KvType::F16, KvType::Q8_0}) {
    for (bool split : {true, false}) {
      for (const Heads& heads : {kSmall, kDeepSeek}) {
        Pass run;
        run.type = type;
        run.split = split;
        for (auto [length, news] :
             {std::pair{1, 1}, {7, 7}, {64, 64}, {65, 2}, {130, 129}, {300, 7}}) {
          run.lengths = {length};
          run.news = news;
          check(random, heads, run);
        }
      }
    }
  }
}

TEST_F(CudaLatent, LongPastsAndChunksOf512) {
  Random random(172);
  check(random, kSmall, {.lengths = {512}, .news = 512, .some = {2}});
  check(random, kSmall, {.split = false, .lengths = {900}, .news = 512, .some = {1}});
  check(random, kSmall, {.lengths = {3000}, .news = 64, .some = {0}});
  check(random, kDeepSeek, {.lengths = {1500}, .news = 20});
}

TEST_F(CudaLatent, EachSequenceOfAPassReadsItsOwnCache) {
  Random random(173);
  for (const Heads& heads : {kSmall, kDeepSeek}) {
    check(random, heads, {.lengths = {200, 40, 131}, .news = 40});
    check(random, heads, {.type = KvType::Q8_0, .lengths = {40, 300}, .news = 9});
  }
}

TEST_F(CudaLatent, WeightsOfEveryFormat) {
  Random random(174);
  for (DType dtype : kMarlinTypes) {
    check(random, kSmall,
          {.key = dtype, .value = dtype, .split = false, .lengths = {70}, .news = 20});
    // Rows of a head's 64 columns are no whole block of the formats with blocks of 256.
    const DType key = info(dtype).block_elems == 256 ? DType::Q5_0 : dtype;
    check(random, kSmall, {.key = key, .value = dtype, .lengths = {70}, .news = 20});
  }
}

TEST_F(CudaLatent, HeadsThatDoNotFitTheWorkspaceTogetherGoInGroups) {
  Random random(175);
  const Heads heads = {128, 128, 512, 64};
  check(random, heads, {.split = true, .lengths = {2600}, .news = 6, .some = {0, 63, 100, 127}});
}

TEST_F(CudaLatent, TheWorkspaceIsEnoughForAllThatIsSmaller) {
  CudaLatentArgs args;
  args.heads = 128;
  args.head_dim = 128;
  args.latent_dim = 512;
  int64_t before = 0;
  for (int64_t positions : {1, 64, 65, 500, 512, 2560, 2624, 8704, 8705, 65536}) {
    args.positions = positions;
    for (int64_t tokens : {1, 128, 129, 512, 4096}) {
      args.tokens = tokens;
      const int64_t bytes = latent_expanded_workspace(args);
      EXPECT_GE(bytes, before) << positions << " positions, " << tokens << " tokens";
      before = bytes;
    }
  }
  EXPECT_LT(before, int64_t{300} << 20);
}

TEST_F(CudaLatent, OtherHeadsWeightsAndCachesStayAbsorbed) {
  Random random(176);
  const LatentWeights weights(random, kSmall, DType::Q8_0, DType::Q4_K, true);
  CudaLatentArgs good;
  weights.give(good);
  good.heads = kSmall.count;
  good.head_dim = kSmall.dim;
  good.latent_dim = kSmall.latent;
  good.rope_dim = kSmall.rope;
  good.kv.layout = {KvType::F16, 64, 1, kSmall.latent + kSmall.rope, 0};
  ASSERT_TRUE(latent_expanded_takes(good));
  const auto changed = [&](auto change) {
    CudaLatentArgs args = good;
    change(args);
    return latent_expanded_takes(args);
  };
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.kv.layout.type = KvType::F32; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.kv.layout.key_dim = 512; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.head_dim = 96; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.key.layout = Layout::Rows; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.value.cols = 512; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.value_heads.row_begin = 8; }));
  EXPECT_FALSE(changed([](CudaLatentArgs& a) { a.key_heads.heads = 4; }));
}

}  // namespace
}  // namespace ktx::kernels
