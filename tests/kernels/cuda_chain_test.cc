// Kernels may start while the one before them drains (programmatic dependent launch): a
// chain of them in a CUDA graph gives the bits of the same launches one by one.
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/gemv/cuda_fused_gemv.h"
#include "kernels/cuda/matmul/cuda_matmul.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "tests/kernels/cuda_cases.h"

namespace ktx::kernels {
namespace {

using CudaChain = CudaTest;

// How the experts are launched: step by step; of one token, choice with gate and up, then down
// with its sum, the second after the first (Apart) or reading the choice ahead (Together).
enum class Experts { Steps, Apart, Together };

// A block of a model without attention: norm, product, product with residual, and experts.
class Layers {
 public:
  Layers(Random& random, int64_t tokens)
      : tokens_(tokens),
        up_(random, DType::Q4_K, kWidth, kHidden),
        down_(random, DType::Q6_K, kHidden, kWidth),
        router_(random, DType::F32, kExperts, kHidden),
        gate_(random, DType::Q4_K, kFew, kHidden, kExperts),
        out_(random, DType::Q4_K, kHidden, kFew, kExperts),
        start_(random.normals(tokens * kHidden)),
        norm_weight_(random.normals(kHidden, 0.02f)),
        x_(start_),
        y_(start_.size()),
        wide_(static_cast<size_t>(tokens * kWidth)),
        logits_(static_cast<size_t>(tokens * kExperts)),
        weights_(static_cast<size_t>(tokens * kTop)),
        h_(static_cast<size_t>(tokens * kTop * kFew)),
        ids_(static_cast<size_t>(tokens * kTop)),
        order_(static_cast<size_t>(tokens * kTop)),
        offsets_(kExperts + 1),
        workspace_(int64_t{64} << 20) {}

  // Launches `rounds` layers; after_each may synchronise.
  template <class AfterEach>
  void run(int rounds, cudaStream_t stream, Experts experts, AfterEach after_each) {
    const auto go = [&](const Status& status) {
      ASSERT_TRUE(status.ok()) << status.error().message;
      after_each();
    };
    cudaMemcpyAsync(x_.data(), start_device().data(), x_.bytes(), cudaMemcpyDeviceToDevice, stream);
    for (int i = 0; i < rounds; ++i) {
      CudaRmsNormArgs norm;
      norm.x = x_.data();
      norm.weight = norm_weight_.data();
      norm.y = y_.data();
      norm.x_stride = norm.y_stride = norm.width = kHidden;
      norm.tokens = tokens_;
      norm.attrs.eps = 1e-6f;
      go(launch_rms_norm(norm, stream));
      go(launch_matmul(product(up_, y_.data(), wide_.data(), false), stream));
      go(launch_matmul(product(down_, wide_.data(), x_.data(), true), stream));
      CudaRouterArgs router;
      router.logits = logits_.data();
      router.logits_stride = kExperts;
      router.attrs.experts = kExperts;
      router.attrs.top_k = kTop;
      router.attrs.normalize = 1;
      router.tokens = tokens_;
      router.ids = ids_.data();
      router.weights = weights_.data();
      if (experts != Experts::Steps) {
        CudaOneRouterArgs choice;
        choice.x = {x_.data(), norm_weight_.data(), 1e-6f};
        choice.x_stride = choice.normed_stride = kHidden;
        choice.tokens = tokens_;
        choice.w = router_.gpu();
        choice.logits = logits_.data();
        choice.logits_stride = kExperts;
        choice.normed = y_.data();
        go(launch_one_router(choice, stream));
        CudaOneChoicesArgs choices;
        choices.router = router;
        choices.gate = choices.up = gate_.gpu();
        choices.x = y_.data();
        choices.x_stride = kHidden;
        choices.h = h_.data();
        choices.h_stride = kFew;
        CudaOneSumArgs sum;
        sum.down = out_.gpu();
        sum.attrs = {kExperts, kTop, 1};
        sum.tokens = tokens_;
        sum.ids = ids_.data();
        sum.weights = weights_.data();
        sum.h = h_.data();
        sum.h_stride = kFew;
        sum.y = x_.data();
        sum.y_stride = kHidden;
        if (experts == Experts::Together) {
          go(launch_one_experts(choices, sum, nullptr, stream));
        } else {
          go(launch_one_choices(choices, stream));
          go(launch_one_sum(sum, stream));
        }
        continue;
      }
      go(launch_rms_norm(norm, stream));
      go(launch_matmul(product(router_, y_.data(), logits_.data(), false), stream));
      go(launch_router(router, stream));
      CudaGroupExpertsArgs group;
      group.ids = ids_.data();
      group.tokens = tokens_;
      group.attrs.experts = kExperts;
      group.attrs.top_k = kTop;
      group.order = order_.data();
      group.offsets = offsets_.data();
      go(launch_group_experts(group, stream));
      CudaExpertsGateUpArgs gate_up;
      gate_up.gate = gate_up.up = gate_.gpu();
      gate_up.attrs.experts = kExperts;
      gate_up.attrs.top_k = kTop;
      gate_up.order = order_.data();
      gate_up.offsets = offsets_.data();
      gate_up.x = y_.data();
      gate_up.x_stride = kHidden;
      gate_up.tokens = tokens_;
      gate_up.h = h_.data();
      gate_up.h_stride = kFew;
      workspace_.give(gate_up);
      go(launch_experts_gate_up(gate_up, stream));
      CudaExpertsDownArgs down;
      down.down = out_.gpu();
      down.attrs = gate_up.attrs;
      down.attrs.accumulate = 1;
      down.order = order_.data();
      down.offsets = offsets_.data();
      down.weights = weights_.data();
      down.h = h_.data();
      down.h_stride = kFew;
      down.tokens = tokens_;
      down.y = x_.data();
      down.y_stride = kHidden;
      workspace_.give(down);
      go(launch_experts_down(down, stream));
    }
  }
  std::vector<float> result() const { return x_.read(); }

 private:
  static constexpr int64_t kHidden = 1024, kWidth = 2048, kFew = 512;
  static constexpr int32_t kExperts = 16, kTop = 4;

  Gpu<float>& start_device() {
    if (!start_copy_) start_copy_ = std::make_unique<Gpu<float>>(start_);
    return *start_copy_;
  }
  CudaMatmulArgs product(const GpuWeights& w, const float* x, float* y, bool accumulate) {
    CudaMatmulArgs args;
    args.w = w.gpu();
    args.x = x;
    args.x_stride = w.gpu().cols;
    args.tokens = tokens_;
    args.y = y;
    args.y_stride = w.gpu().rows;
    args.accumulate = accumulate;
    workspace_.give(args);
    return args;
  }
  int64_t tokens_;
  GpuWeights up_, down_, router_, gate_, out_;
  std::vector<float> start_;
  std::unique_ptr<Gpu<float>> start_copy_;
  Gpu<float> norm_weight_, x_, y_, wide_, logits_, weights_, h_;
  Gpu<int32_t> ids_, order_, offsets_;
  GpuWorkspace workspace_;
};

// Captures launch(stream) and replays it; the results are right after each replay.
template <class Launch, class Right>
void expect_bits_of_graph(Launch launch, Right right) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  launch(stream);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_TRUE(right()) << "round " << round;
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

void check_graphs(Layers& layers, Experts one_by_one, Experts in_graph) {
  layers.run(3, nullptr, one_by_one, [] { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess); });
  const std::vector<float> want = layers.result();
  for (float v : want) ASSERT_TRUE(std::isfinite(v));
  expect_bits_of_graph([&](cudaStream_t stream) { layers.run(3, stream, in_graph, [] {}); },
                       [&] { return same_bits(layers.result(), want); });
}

TEST_F(CudaChain, GraphsGiveTheBitsOfLaunchesOneByOne) {
  Random random(101);
  for (int64_t tokens : {1, 2, 16, 100}) {
    SCOPED_TRACE(testing::Message() << "tokens " << tokens);
    Layers layers(random, tokens);
    check_graphs(layers, Experts::Steps, Experts::Steps);
  }
}

TEST_F(CudaChain, ASumThatReadsTheChoiceAheadGivesTheBitsOfOneThatWaits) {
  Random random(102);
  Layers layers(random, 1);
  check_graphs(layers, Experts::Apart, Experts::Together);
}

// Layers of one token: blocks of a strip each (q, k, v; o), and of several (gate and up; down).
TEST_F(CudaChain, DenseLayersOfOneTokenGiveTheBitsOfLaunchesOneByOne) {
  constexpr int64_t kHidden = 4096, kHeads = 1024, kFew = 256, kWidth = 13056;
  Random random(103);
  const GpuWeights query(random, DType::Q4_K, kHeads, kHidden),
      key(random, DType::Q4_K, kFew, kHidden), value(random, DType::Q6_K, kFew, kHidden),
      out(random, DType::Q4_K, kHidden, kHeads), gate(random, DType::Q4_K, kWidth, kHidden),
      down(random, DType::Q6_K, kHidden, kWidth);
  const std::vector<float> start = random.normals(kHidden);
  Gpu<float> start_device(start), norm(random.normals(kHidden, 0.02f)), x(start);
  Gpu<float> q(size_t{kHeads}), k(size_t{kFew}), v(size_t{kFew}), h(size_t{kWidth});
  const auto run = [&](cudaStream_t stream, bool one_by_one) {
    const auto go = [&](const Status& status) {
      ASSERT_TRUE(status.ok()) << status.error().message;
      if (one_by_one) {
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      }
    };
    cudaMemcpyAsync(x.data(), start_device.data(), x.bytes(), cudaMemcpyDeviceToDevice, stream);
    for (int i = 0; i < 3; ++i) {
      CudaOneProductsArgs qkv;
      qkv.x = {x.data(), norm.data(), 1e-6f};
      qkv.count = 3;
      qkv.outputs[0] = {query.gpu(), q.data(), nullptr, false};
      qkv.outputs[1] = {key.gpu(), k.data(), nullptr, false};
      qkv.outputs[2] = {value.gpu(), v.data(), nullptr, false};
      go(launch_one_products(qkv, stream));
      const auto add = [&](const GpuWeights& w, const float* from) {
        CudaOneProductsArgs args;
        args.x.x = from;
        args.count = 1;
        args.outputs[0] = {w.gpu(), x.data(), nullptr, true};
        go(launch_one_products(args, stream));
      };
      add(out, q.data());
      go(launch_one_gate_up({{x.data(), norm.data(), 1e-6f}, gate.gpu(), gate.gpu(), h.data(), {}},
                            stream));
      add(down, h.data());
    }
  };
  run(nullptr, true);
  const std::vector<float> want = x.read(), want_v = v.read();
  for (float f : want) ASSERT_TRUE(std::isfinite(f));
  expect_bits_of_graph([&](cudaStream_t stream) { run(stream, false); },
                       [&] { return same_bits(x.read(), want) && same_bits(v.read(), want_v); });
}

}  // namespace
}  // namespace ktx::kernels
