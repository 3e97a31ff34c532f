// The persistent kernel against the launches of its phases one by one.
#include "kernels/cuda/cuda_persistent.h"

#include "kernels/cuda/cuda_matmul.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

class CudaPersistentKernel : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !CudaPersistent::runs())
      GTEST_SKIP() << "older than compute capability 9.0";
  }
};

constexpr float kEps = 1e-5f;

struct Shape {
  const char* what;
  int64_t hidden, width;  // of the feed-forward, or of an expert
  int32_t heads, kv_heads, dim;
  DType type, other;  // other: v and down
  bool head_norms = false;
  int32_t experts = 0, top_k = 0, groups = 1;
};

// Keys and values of one sequence, in blocks of falling number.
struct Cache {
  Cache(Random& random, const Shape& s, KvType type, int32_t position, int layers)
      : layout{type, 64, s.kv_heads, s.dim, s.dim},
        blocks(position / 64 + 1),
        block_bytes(layers * layout.slot_bytes()),
        start(filled(random)),
        pool(start),
        table(reversed()),
        sequence(std::vector<int32_t>{0}),
        position(std::vector<int32_t>{position}) {}
  // Small halves everywhere; as Q8_0 they are codes and scales all the same, so smaller.
  std::vector<std::byte> filled(Random& random) const {
    std::vector<std::byte> bytes(static_cast<size_t>(blocks * block_bytes));
    const std::vector<float> values = random.normals(4096);
    const float scale = layout.type == KvType::Q8_0 ? 0.002f : 0.5f;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const uint16_t half = float_to_half(values[i / 2 % values.size()] * scale);
      std::memcpy(bytes.data() + i, &half, 2);
    }
    return bytes;
  }
  std::vector<int32_t> reversed() const {
    std::vector<int32_t> table;
    for (int32_t b = 0; b < blocks; ++b) table.push_back(blocks - 1 - b);
    return table;
  }
  CudaKvView view(int layer) {
    CudaKvView view;
    view.layout = layout;
    view.pool = pool.data();
    view.block_bytes = block_bytes;
    view.slot_offset = layer * layout.slot_bytes();
    view.table = table.data();
    view.table_stride = blocks;
    view.sequence = sequence.data();
    view.position = position.data();
    return view;
  }
  void reset() { cudaMemcpy(pool.data(), start.data(), start.size(), cudaMemcpyHostToDevice); }

  KvLayout layout;
  int32_t blocks;
  int64_t block_bytes;
  std::vector<std::byte> start;
  Gpu<std::byte> pool;
  Gpu<int32_t> table, sequence, position;
};

// Layers of a model, all with the same weights, on one residual stream.
class Layers {
 public:
  Layers(Random& random, const Shape& s, KvType type, int32_t position, int layers)
      : s_(s),
        layers_(layers),
        cache_(random, s, type, position, layers),
        q_(random, s.type, s.heads * s.dim, s.hidden),
        k_(random, s.type, s.kv_heads * s.dim, s.hidden),
        v_(random, s.other, s.kv_heads * s.dim, s.hidden),
        o_(random, s.type, s.hidden, s.heads * s.dim),
        gate_(random, s.type, s.width, s.hidden, std::max(1, s.experts)),
        up_(random, s.type, s.width, s.hidden, std::max(1, s.experts)),
        down_(random, s.other, s.hidden, s.width, std::max(1, s.experts)),
        router_(random, DType::F32, std::max(1, s.experts), s.hidden),
        start_(random.normals(s.hidden)),
        norm_(random.normals(s.hidden, 0.05f)),
        head_norm_(random.normals(s.dim, 0.3f)),
        frequencies_(inverse(s.dim)),
        x_(start_),
        q_out_(size_t(s.heads * s.dim)),
        k_out_(size_t(s.kv_heads * s.dim)),
        v_out_(size_t(s.kv_heads * s.dim)),
        y_(size_t(s.heads * s.dim)),
        h_(size_t(s.width * std::max(1, s.top_k))),
        normed_(size_t(s.hidden)),
        logits_(size_t(std::max(1, s.experts))),
        ids_(size_t(32)),
        weights_(size_t(32)) {}

  // Calls go(args) for every launch of every layer.
  template <class Go>
  void each(Go go) {
    for (int layer = 0; layer < layers_; ++layer) {
      CudaOneProductsArgs qkv;
      qkv.x = {x_.data(), norm_.data(), kEps};
      qkv.count = 3;
      qkv.outputs[0] = {q_.gpu(), q_out_.data(), nullptr, false};
      qkv.outputs[1] = {k_.gpu(), k_out_.data(), nullptr, false};
      qkv.outputs[2] = {v_.gpu(), v_out_.data(), nullptr, false};
      go(qkv);
      go(attention(layer));
      CudaOneProductsArgs o;
      o.x.x = y_.data();
      o.count = 1;
      o.outputs[0] = {o_.gpu(), x_.data(), nullptr, true};
      go(o);
      if (s_.experts > 0) {
        CudaOneRouterArgs router{
            {x_.data(), norm_.data(), kEps}, router_.gpu(), logits_.data(), normed_.data()};
        go(router);
        experts(go);
        continue;
      }
      CudaOneGateUpArgs gate_up{{x_.data(), norm_.data(), kEps}, gate_.gpu(), up_.gpu(), h_.data()};
      go(gate_up);
      CudaOneProductsArgs down;
      down.x.x = h_.data();
      down.count = 1;
      down.outputs[0] = {down_.gpu(), x_.data(), nullptr, true};
      go(down);
    }
  }
  void one_by_one() {
    reset();
    each([&](const auto& args) { ASSERT_TRUE(ran(launch(args))); });
  }
  CudaPersistent persistent() {
    CudaPersistent kernel;
    each([&](const auto& args) { EXPECT_TRUE(add(kernel, args)); });
    return kernel;
  }
  void reset() {
    cudaMemcpy(x_.data(), start_.data(), start_.size() * 4, cudaMemcpyHostToDevice);
    cache_.reset();
  }
  std::vector<float> x() const { return x_.read(); }
  std::vector<float> start() const { return start_; }
  // As halves.
  std::vector<float> cache() const {
    const std::vector<std::byte> bytes = cache_.pool.read();
    std::vector<float> values;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + i, 2);
      values.push_back(half_to_float(half));
    }
    return values;
  }

 private:
  struct Experts {
    CudaOneChoicesArgs choices;
    CudaOneSumArgs sum;
  };
  template <class Go>
  void experts(Go go) {
    Experts e;
    CudaRouterArgs& router = e.choices.router;
    router.logits = logits_.data();
    router.logits_stride = s_.experts;
    router.position = cache_.position.data();
    router.attrs.experts = s_.experts;
    router.attrs.top_k = s_.top_k;
    router.attrs.normalize = 1;
    router.attrs.groups = s_.groups;
    router.attrs.groups_used = (s_.groups + 1) / 2;
    router.tokens = 1;
    router.ids = ids_.data();
    router.weights = weights_.data();
    e.choices.gate = gate_.gpu();
    e.choices.up = up_.gpu();
    e.choices.x = normed_.data();
    e.choices.h = h_.data();
    e.choices.h_stride = s_.width;
    e.sum = {
        down_.gpu(), {s_.experts, s_.top_k, 1}, ids_.data(), weights_.data(), h_.data(), s_.width,
        x_.data()};
    go(e);
  }
  CudaAttentionArgs attention(int layer) {
    CudaAttentionArgs a;
    a.q = q_out_.data();
    a.q_stride = s_.heads * s_.dim;
    a.y = y_.data();
    a.y_stride = s_.heads * s_.dim;
    a.tokens = 1;
    a.attrs.heads = s_.heads;
    a.attrs.kv_heads = s_.kv_heads;
    a.attrs.key_dim = a.attrs.value_dim = s_.dim;
    a.attrs.scale = 1 / std::sqrt(static_cast<float>(s_.dim));
    a.kv = cache_.view(layer);
    a.max_positions = cache_.blocks * 64;
    a.one_token_per_sequence = true;
    a.prepare.key = k_out_.data();
    a.prepare.key_stride = a.prepare.value_stride = s_.kv_heads * s_.dim;
    a.prepare.value = v_out_.data();
    if (s_.head_norms) a.prepare.q_norm = a.prepare.k_norm = head_norm_.data();
    a.prepare.q_eps = a.prepare.k_eps = kEps;
    a.prepare.inv_freq = frequencies_.data();
    a.prepare.rope.head_dim = a.prepare.rope.rotary_dim = s_.dim;
    return a;
  }
  static std::vector<float> inverse(int dim) {
    std::vector<float> f;
    for (int i = 0; i < dim / 2; ++i) {
      f.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(dim)));
    }
    return f;
  }

  Status launch(const CudaOneProductsArgs& a) { return launch_one_products(a, nullptr); }
  Status launch(const CudaOneGateUpArgs& a) { return launch_one_gate_up(a, nullptr); }
  Status launch(const CudaOneRouterArgs& a) { return launch_one_router(a, nullptr); }
  Status launch(const Experts& e) {
    const Status first = launch_one_choices(e.choices, nullptr);
    return first.ok() ? launch_one_sum(e.sum, nullptr) : first;
  }
  Status launch(CudaAttentionArgs a) {
    GpuWorkspace workspace(a, cuda_attention_workspace(a));
    const Status status = launch_attention(a, nullptr);
    cudaDeviceSynchronize();
    return status;
  }
  static bool add(CudaPersistent& kernel, const Experts& e) { return kernel.add(e.choices, e.sum); }
  template <class Args>
  static bool add(CudaPersistent& kernel, const Args& args) {
    return kernel.add(args);
  }

  const Shape s_;
  const int layers_;
  Cache cache_;
  GpuWeights q_, k_, v_, o_, gate_, up_, down_, router_;
  std::vector<float> start_;
  Gpu<float> norm_, head_norm_, frequencies_;
  Gpu<float> x_, q_out_, k_out_, v_out_, y_, h_, normed_, logits_;
  Gpu<int32_t> ids_;
  Gpu<float> weights_;
};

// What the layers add to x, beside what the launches add.
void check(Random& random, const Shape& s, KvType type, int32_t position) {
  SCOPED_TRACE(testing::Message() << s.what << " position " << position << " seed "
                                  << random.seed());
  constexpr int kLayers = 3;
  Layers layers(random, s, type, position, kLayers);
  layers.one_by_one();
  const std::vector<float> want = layers.x();
  const std::vector<float> cache = layers.cache();

  const CudaPersistent kernel = layers.persistent();
  ASSERT_EQ(kernel.phases(), kLayers * (s.experts > 0 ? 6 : 5));
  Gpu<std::byte> memory(static_cast<size_t>(kernel.device_bytes()));
  const std::vector<std::byte> image = kernel.image(memory.data());
  cudaMemcpy(memory.data(), image.data(), image.size(), cudaMemcpyHostToDevice);
  std::vector<float> first;
  for (int round = 0; round < 3; ++round) {
    layers.reset();
    ASSERT_TRUE(ran(kernel.launch(memory.data(), nullptr)));
    const std::vector<float> got = layers.x();
    EXPECT_LT(relative_error(got, want), 2e-3) << "round " << round;
    EXPECT_NE(got, layers.start());
    if (round == 0) first = got;
    EXPECT_TRUE(same_bits(got, first)) << "round " << round;
  }
  if (type == KvType::F16) {
    EXPECT_LT(relative_error(layers.cache(), cache), 2e-3);
  }
}

const Shape kDense = {"dense", 1024, 2816, 8, 2, 128, DType::Q4_K, DType::Q6_K};

TEST_F(CudaPersistentKernel, LayersAgreeWithTheirLaunchesAtEveryLengthOfThePast) {
  Random random(171);
  for (int32_t position : {0, 1, 63, 64, 255, 256, 700, 5000, 40000}) {
    check(random, kDense, KvType::F16, position);
  }
}

TEST_F(CudaPersistentKernel, OtherShapesFormatsAndCachesAgreeToo) {
  Random random(172);
  const Shape shapes[] = {
      {"heads of 64", 512, 768, 8, 8, 64, DType::Q4_K, DType::Q4_K},
      {"seven heads a group", 768, 512, 28, 4, 64, DType::Q5_K, DType::Q6_K, true},
      {"Llama-3.1-8B", 4096, 14336, 32, 8, 128, DType::Q4_K, DType::Q6_K},
      {"sixteen heads a group", 2048, 1024, 32, 2, 128, DType::Q6_K, DType::Q6_K, true},
  };
  for (const Shape& s : shapes) {
    check(random, s, KvType::F16, 333);
    check(random, s, KvType::Q8_0, 130);
  }
}

TEST_F(CudaPersistentKernel, ExpertsAgreeWithTheirLaunches) {
  Random random(173);
  const Shape shapes[] = {
      {"8 experts", 512, 256, 4, 2, 64, DType::Q4_K, DType::Q6_K, true, 8, 2},
      {"Qwen3-30B-A3B", 2048, 768, 32, 4, 128, DType::Q4_K, DType::Q6_K, true, 128, 8},
      {"160 experts", 1024, 512, 8, 2, 128, DType::Q5_K, DType::Q5_K, false, 160, 6},
      {"experts in groups", 512, 256, 4, 2, 64, DType::Q4_K, DType::Q6_K, false, 64, 4, 8},
  };
  for (const Shape& s : shapes) check(random, s, KvType::F16, 300);
}

// Small enough for compute-sanitizer's racecheck, too.
TEST_F(CudaPersistentKernel, LayersOfFewerStripsThanBlocksAgree) {
  Random random(175);
  check(random, {"dense", 256, 256, 4, 2, 64, DType::Q4_K, DType::Q6_K}, KvType::F16, 70);
  check(random, {"4 experts", 256, 256, 4, 2, 64, DType::Q4_K, DType::Q6_K, true, 4, 2},
        KvType::F16, 200);
}

TEST_F(CudaPersistentKernel, WhatItDoesNotTakeLeavesItAsItWas) {
  Random random(174);
  const GpuWeights odd(random, DType::Q4_0, 64, 320), other(random, DType::Q8_0, 64, 256);
  const GpuWeights fits(random, DType::Q4_K, 64, 256), many(random, DType::Q4_K, 128256, 256);
  Gpu<float> x(size_t{512}), y(size_t{128256});
  const auto one = [&](const GpuWeights& w) {
    CudaOneProductsArgs args;
    args.x.x = x.data();
    args.count = 1;
    args.outputs[0] = {w.gpu(), y.data(), nullptr, false};
    return args;
  };
  CudaPersistent kernel;
  EXPECT_FALSE(kernel.add(one(odd)));
  EXPECT_FALSE(kernel.add(one(other)));
  EXPECT_FALSE(kernel.add(one(many)));
  EXPECT_EQ(kernel.phases(), 0);
  EXPECT_TRUE(kernel.add(one(fits)));
  EXPECT_EQ(kernel.phases(), 1);
}

}  // namespace
}  // namespace ktx::kernels
