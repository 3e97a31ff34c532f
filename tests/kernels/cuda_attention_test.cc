// KV store and attention of the GPU against the scalar CPU ops on the same cache.
#include "kernels/cuda/attention/cuda_attention.h"

#include <algorithm>

#include "kernels/cuda/rows/cuda_rows.h"
#include "tests/kernels/cuda_caches.h"

namespace ktx::kernels {
namespace {

using CudaAttention = CudaTest;

struct Case {
  const char* what;
  int32_t heads, kv_heads, key_dim, value_dim;
  bool value_in_key;
  int32_t window = 0, chunked = 0;
  float softcap = 0;
  bool sinks = false;
};

const Case kCases[] = {
    {"small GQA", 4, 2, 64, 64, false},
    {"GQA of four", 32, 8, 128, 128, false},
    {"seven heads a group", 14, 2, 64, 64, false},
    {"one group of 20", 20, 1, 128, 128, false},
    {"no groups", 4, 4, 96, 64, false},
    {"absorbed MLA", 4, 1, 288, 256, true},
    {"DeepSeek's MLA", 32, 1, 576, 512, true},
    {"MLA of 16 heads", 16, 1, 576, 512, true},
    {"MLA of 40 heads in two", 80, 2, 288, 256, true},
    {"widths of no tile", 6, 2, 40, 24, false},
    {"window", 8, 2, 64, 64, false, 70},
    {"window of no tile", 6, 2, 40, 24, false, 33},
    {"window, sinks", 16, 2, 64, 64, false, 16, 0, 0, true},
    {"chunks", 4, 4, 128, 128, false, 48, 1},
    {"window of shared keys, sinks", 64, 1, 512, 512, true, 128, 0, 0, true},
    {"window of few shared keys", 4, 1, 256, 256, true, 33},
    {"softcap", 8, 4, 256, 256, false, 0, 0, 2},
    {"sinks of no tile", 6, 2, 40, 24, false, 0, 0, 0, true},
    {"all of them", 12, 2, 128, 128, false, 100, 0, 5, true},
};

KvLayout layout_of(const Case& c, KvType type) {
  return {type, 64, c.kv_heads, c.key_dim, c.value_in_key ? 0 : c.value_dim};
}

// The last position that each token sees where two of three runs of seven tokens are images, which
// see all of themselves.
std::vector<int32_t> ends_of_images(const CacheStep& step) {
  constexpr size_t kRun = 7;
  std::vector<int32_t> ends = step.position;
  for (size_t t = 0; t < ends.size(); ++t) {
    if (t / kRun % 3 == 2) continue;
    for (size_t next = t + 1; next % kRun != 0 && next < ends.size(); ++next) {
      if (step.sequence[next] == step.sequence[t]) ends[t] = step.position[next];
    }
  }
  return ends;
}

void check(Random& random, const Case& c, KvType type, const std::vector<int32_t>& lengths,
           const std::vector<int32_t>& news, int64_t max_positions, bool images = false) {
  SCOPED_TRACE(testing::Message() << c.what << " " << type_name(type) << " sequences "
                                  << lengths.size() << " tokens of the first " << news[0]
                                  << " longest " << max_positions << " seed " << random.seed());
  const CacheStep step(random, layout_of(c, type), lengths, news);
  AttentionAttrs attrs;
  attrs.heads = c.heads;
  attrs.kv_heads = c.kv_heads;
  attrs.key_dim = c.key_dim;
  attrs.value_dim = c.value_dim;
  attrs.value_in_key = c.value_in_key;
  attrs.scale = 1 / std::sqrt(static_cast<float>(c.key_dim));
  attrs.window = c.window;
  attrs.chunked = c.chunked;
  attrs.softcap = c.softcap;
  std::vector<float> sinks;
  for (int32_t h = 0; h < c.heads; ++h) sinks.push_back(static_cast<float>(h % 7) - 3);
  const std::vector<float> q = random.normals(step.tokens() * c.heads * c.key_dim);
  std::vector<float> want(static_cast<size_t>(step.tokens() * c.heads * c.value_dim));
  AttentionArgs host;
  host.q = q.data();
  host.q_stride = c.heads * c.key_dim;
  host.y = want.data();
  host.y_stride = c.heads * c.value_dim;
  host.attrs = attrs;
  if (c.sinks) host.sinks = sinks.data();
  const std::vector<int32_t> ends = ends_of_images(step);
  if (images) host.text_end = ends.data();
  host.kv = step.view();
  host.token_end = step.tokens();
  host.head_end = c.heads;
  AlignedBytes scratch(attention_scratch_bytes(attrs));
  host.scratch = scratch.data();
  (*find_attention("attention", Isa::Scalar))(host);

  GpuCache gpu(step);
  Gpu<float> gpu_q(q), y(want.size()), gpu_sinks(sinks);
  CudaAttentionArgs args;
  args.q = gpu_q.data();
  args.q_stride = host.q_stride;
  args.y = y.data();
  args.y_stride = host.y_stride;
  args.tokens = step.tokens();
  args.attrs = attrs;
  if (c.sinks) args.sinks = gpu_sinks.data();
  args.kv = gpu.view;
  args.max_positions = max_positions;
  Gpu<int32_t> gpu_ends(ends);
  if (images) (c.window > 0 ? args.text_end : args.kv.position) = gpu_ends.data();
  for (bool hint : {false, true}) {
    if (hint && std::ranges::max(news) != 1) continue;
    args.one_token_per_sequence = hint;
    GpuWorkspace workspace(args, cuda_attention_workspace(args));
    ASSERT_TRUE(ran(launch_attention(args, nullptr)));
    EXPECT_LT(relative_error(y.read(), want), type == KvType::F32 ? 3e-6 : 1e-3);
  }
}

void check(Random& random, const Case& c, KvType type, const std::vector<int32_t>& lengths,
           int32_t news, int64_t max_positions) {
  check(random, c, type, lengths, std::vector<int32_t>(lengths.size(), news), max_positions);
}

TEST_F(CudaAttention, AgreesWithTheScalarOpInDecode) {
  Random random(91);
  for (const Case& c : kCases) {
    for (KvType type : kKvTypes) {
      check(random, c, type, {1}, 1, 64);
      check(random, c, type, {200}, 1, 4096);
      check(random, c, type, {65, 1, 130}, 1, 256);
    }
  }
}

TEST_F(CudaAttention, AgreesWithTheScalarOpInChunks) {
  Random random(92);
  for (const Case& c : kCases) {
    for (KvType type : kKvTypes) {
      check(random, c, type, {23}, 23, 64);
      check(random, c, type, {150}, 7, 150);
      check(random, c, type, {300, 9, 200}, 3, 512);
      check(random, c, type, {70, 40}, 5, 8192);
    }
  }
}

// Tokens enough for the kernels of many rows: whole prompts, behind a past that splits cut, and
// sequences of all lengths beside each other.
const Case kPromptCases[] = {
    {"heads of 64", 8, 2, 64, 64, false},
    {"heads of 72", 8, 8, 72, 72, false},
    {"heads of 80", 8, 8, 80, 80, false},
    {"heads of 96", 6, 2, 96, 96, false},
    {"heads of 128", 8, 2, 128, 128, false},
    {"heads of 256", 4, 1, 256, 256, false},
    {"seven heads a group", 14, 2, 64, 64, false},
    {"one group of 20", 20, 1, 64, 64, false},
    {"keys wider than values", 4, 2, 192, 128, false},
    {"window", 4, 1, 128, 128, false, 70},
    {"window of less than a piece, sinks", 8, 1, 64, 64, false, 33, 0, 0, true},
    {"chunks", 4, 4, 128, 128, false, 100, 1},
    {"softcap", 4, 2, 256, 256, false, 0, 0, 2},
    {"all of them", 12, 2, 128, 128, false, 200, 0, 5, true},
};

TEST_F(CudaAttention, AgreesWithTheScalarOpInPrompts) {
  Random random(97);
  for (const Case& c : kPromptCases) {
    for (KvType type : {KvType::F16, KvType::Q8_0}) {
      check(random, c, type, {140}, 140, 256);
      check(random, c, type, {700}, 34, 4096);
      check(random, c, type, {200, 9, 130, 1, 64, 129}, {60, 3, 40, 1, 20, 33}, 512);
    }
  }
}

// Gemma 3's images, and text attention: tokens see some that stand behind them.
TEST_F(CudaAttention, AgreesWithTheScalarOpWhereTokensSeeAhead) {
  Random random(98);
  const auto images = [&](const Case& c, const std::vector<int32_t>& lengths,
                          const std::vector<int32_t>& news, int64_t most) {
    for (KvType type : kKvTypes) check(random, c, type, lengths, news, most, true);
  };
  for (const Case& c : {Case{"heads of 72", 4, 4, 72, 72, false},
                        {"heads of 64", 8, 2, 64, 64, false},
                        {"heads of 256", 4, 1, 256, 256, false},
                        {"window", 4, 2, 256, 256, false, 40},
                        {"window of heads of 128", 8, 2, 128, 128, false, 17},
                        {"softcap", 4, 2, 256, 256, false, 0, 0, 2}}) {
    images(c, {23}, {23}, 64);
    images(c, {150}, {7}, 1024);
    images(c, {400, 9, 200}, {390, 9, 140}, 512);
  }
}

TEST_F(CudaAttention, PaddingIsNeitherStoredNorRead) {
  Random random(93);
  const Case& c = kCases[0];
  const CacheStep step(random, layout_of(c, KvType::F16), {10}, 2);
  GpuCache gpu(step);
  Gpu<int32_t> position(std::vector<int32_t>{9, -1});
  gpu.view.position = position.data();
  Gpu<float> key(random.normals(2 * 2 * 64)), value(random.normals(2 * 2 * 64));
  CudaKvStoreArgs store;
  store.key = key.data();
  store.key_stride = 128;
  store.value = value.data();
  store.value_stride = 128;
  store.tokens = 1;
  store.kv = gpu.view;
  store.kv.position = position.data() + 1;
  ASSERT_TRUE(ran(launch_kv_store(store, nullptr)));
  EXPECT_EQ(gpu.pool.read(), step.pool);
  Gpu<float> q(random.normals(2 * 4 * 64)), y(2 * 4 * 64);
  CudaAttentionArgs args;
  args.q = q.data();
  args.q_stride = args.y_stride = 256;
  args.y = y.data();
  args.tokens = 2;
  args.attrs.heads = 4;
  args.attrs.kv_heads = 2;
  args.attrs.key_dim = args.attrs.value_dim = 64;
  args.kv = gpu.view;
  args.max_positions = 64;
  GpuWorkspace workspace(args, cuda_attention_workspace(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  for (float v : y.read()) ASSERT_TRUE(std::isfinite(v));
}

TEST_F(CudaAttention, StoredBytesAreThoseOfTheScalarOp) {
  Random random(94);
  for (const Case& c : kCases) {
    for (KvType type : kKvTypes) {
      CacheStep step(random, layout_of(c, type), {70, 3}, 3);
      GpuCache gpu(step);
      const int64_t key_width = c.kv_heads * c.key_dim, value_width = c.kv_heads * c.value_dim;
      std::vector<float> key = random.normals(step.tokens() * key_width);
      const std::vector<float> value = random.normals(step.tokens() * value_width);
      std::fill_n(key.begin(), 32, 0.0f);
      KvStoreArgs host;
      host.key = key.data();
      host.key_stride = key_width;
      host.value = c.value_in_key ? nullptr : value.data();
      host.value_stride = value_width;
      host.kv = step.view();
      host.token_end = step.tokens();
      (*find_kv_store("kv_store", Isa::Scalar))(host);
      Gpu<float> gpu_key(key), gpu_value(value);
      CudaKvStoreArgs args;
      args.key = gpu_key.data();
      args.key_stride = key_width;
      args.value = c.value_in_key ? nullptr : gpu_value.data();
      args.value_stride = value_width;
      args.tokens = step.tokens();
      args.kv = gpu.view;
      ASSERT_TRUE(ran(launch_kv_store(args, nullptr)));
      EXPECT_EQ(gpu.pool.read(), step.pool) << c.what << " " << type_name(type);
    }
  }
}

// With `prepare` attention is the composition of head norms, rope, store and attention.
void check_prepared(Random& random, const Case& c, KvType type, const std::vector<int32_t>& lengths,
                    bool norms, bool interleaved, bool behind_images = false) {
  SCOPED_TRACE(testing::Message() << c.what << " " << type_name(type) << " norms " << norms
                                  << " interleaved " << interleaved << " behind images "
                                  << behind_images << " seed " << random.seed());
  const CacheStep step(random, layout_of(c, type), lengths, 1);
  // Positions to rotate by that are not those of the cache.
  std::vector<int32_t> times = step.position;
  for (int32_t& time : times) time = behind_images ? time / 2 + 3 : time;
  Gpu<int32_t> time(times);
  GpuCache apart(step), together(step);
  const int64_t tokens = step.tokens(), q_width = c.heads * c.key_dim;
  const int64_t k_width = c.kv_heads * c.key_dim, v_width = c.kv_heads * c.value_dim;
  const std::vector<float> q = random.normals(tokens * q_width),
                           k = random.normals(tokens * k_width);
  Gpu<float> q_apart(q), k_apart(k), q_together(q), k_together(k),
      v(random.normals(tokens * v_width));
  Gpu<float> q_norm(random.normals(c.key_dim)), k_norm(random.normals(c.key_dim));
  RopeAttrs rope;
  rope.head_dim = rope.y_head_dim = c.key_dim;
  rope.rotary_dim = c.key_dim / 2;
  rope.rotary_begin = rope.y_begin = c.key_dim / 4;
  rope.interleaved = interleaved;
  rope.mscale = 1.25f;
  Gpu<float> inv_freq(random.normals(rope.rotary_dim / 2));
  struct Side {
    Gpu<float>& x;
    int64_t width;
    int32_t heads;
    Gpu<float>& norm;
  };
  for (const Side& side :
       {Side{q_apart, q_width, c.heads, q_norm}, {k_apart, k_width, c.kv_heads, k_norm}}) {
    if (norms) {
      CudaRmsNormArgs norm;
      norm.x = norm.y = side.x.data();
      norm.x_stride = norm.y_stride = norm.width = side.width;
      norm.weight = side.norm.data();
      norm.tokens = tokens;
      norm.attrs = {1e-6f, side.heads};
      ASSERT_TRUE(ran(launch_rms_norm(norm, nullptr)));
    }
    CudaRopeArgs args;
    args.x = args.y = side.x.data();
    args.x_stride = args.y_stride = side.width;
    args.inv_freq = inv_freq.data();
    args.position[0] = time.data();
    args.tokens = tokens;
    args.attrs = rope;
    args.attrs.heads = side.heads;
    ASSERT_TRUE(ran(launch_rope(args, nullptr)));
  }
  CudaKvStoreArgs store;
  store.key = k_apart.data();
  store.key_stride = k_width;
  store.value = v.data();
  store.value_stride = v_width;
  store.tokens = tokens;
  store.kv = apart.view;
  ASSERT_TRUE(ran(launch_kv_store(store, nullptr)));
  CudaAttentionArgs args;
  args.q = q_apart.data();
  args.q_stride = q_width;
  Gpu<float> want(static_cast<size_t>(tokens * c.heads * c.value_dim)), y(want.read().size());
  args.y = want.data();
  args.y_stride = c.heads * c.value_dim;
  args.tokens = tokens;
  args.attrs = {0,
                c.heads,
                c.kv_heads,
                c.key_dim,
                c.value_dim,
                0,
                1 / std::sqrt(static_cast<float>(c.key_dim))};
  args.kv = apart.view;
  args.max_positions = 4096;
  args.one_token_per_sequence = true;
  GpuWorkspace workspace(args, cuda_attention_workspace(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  args.q = q_together.data();
  args.y = y.data();
  args.kv = together.view;
  args.prepare = {k_together.data(),
                  k_width,
                  v.data(),
                  v_width,
                  norms ? q_norm.data() : nullptr,
                  norms ? k_norm.data() : nullptr,
                  1e-6f,
                  1e-6f,
                  inv_freq.data(),
                  rope};
  if (behind_images) args.prepare.time = time.data();
  ASSERT_TRUE(attention_prepares(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  EXPECT_LT(relative_error(y.read(), want.read()), 1e-3);
  // Norms are summed in another order; sines of other positions may round otherwise.
  if (norms || behind_images) return;
  EXPECT_EQ(together.pool.read(), apart.pool.read());
}

TEST_F(CudaAttention, PreparesItsHeadsAsTheStepsBeforeIt) {
  Random random(95), images(96);
  for (int i : {0, 1, 2, 3}) {
    for (KvType type : {KvType::F16, KvType::Q8_0}) {
      for (bool norms : {false, true}) {
        check_prepared(random, kCases[i], type, {1}, norms, false);
        check_prepared(random, kCases[i], type, {64, 700, 65}, norms, true);
        check_prepared(images, kCases[i], type, {64, 700, 65}, norms, false, true);
      }
    }
  }
}

TEST_F(CudaAttention, CachesThatNoTileTakesAreNotPrepared) {
  CudaAttentionArgs args;
  args.attrs = {0, 4, 4, 64, 64, 0, 1};
  args.kv.layout = {KvType::F16, 64, 4, 64, 64};
  EXPECT_TRUE(attention_prepares(args));
  args.kv.layout.type = KvType::F32;
  EXPECT_FALSE(attention_prepares(args));
}

}  // namespace
}  // namespace ktx::kernels
