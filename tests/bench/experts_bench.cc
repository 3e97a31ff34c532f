// Speed of the products of a mixture of experts in a prompt, one thread: 512 tokens over
// 128 experts of Qwen3-30B-A3B's shape, 8 of them a token, evenly.
//
//   tools/dev/build release bench_experts
//   build-release/tests/bench_experts
//
// TOPS: two operations for each weight and pair of token and expert; `peak` beside it is the
// rate of dot products from registers (kernels/probe). Time is CPU time.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/matmul/experts.h"
#include "kernels/probe/int8_peak.h"
#include "lib/formats/layout.h"
#include "tests/bench/bench_inputs.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kTokens = 512, kHidden = 2048, kFf = 768;
constexpr int32_t kExperts = 128, kTopK = 8;
constexpr int64_t kPairs = kTokens * kTopK;

struct Layer {
  std::mt19937 random{1};
  static constexpr int64_t kMatrix = kExperts * kHidden * kFf;  // bytes, more than are used
  AlignedBytes weights = random_weights(random, 2 * kMatrix);   // gate's, or down's; then up's
  AlignedBytes xq = quantised(random_floats(random, kTokens* kHidden), kHidden);
  AlignedBytes hq = quantised(random_floats(random, kPairs* kFf), kFf);
  AlignedBytes scratch = AlignedBytes(experts_scratch_bytes(kHidden));
  std::vector<float> h, y, route;
  std::vector<int32_t> order, offsets;

  Layer()
      : h(static_cast<size_t>(kPairs * kFf)),
        y(static_cast<size_t>(kTokens * kHidden)),
        route(static_cast<size_t>(kPairs), 0.125f),
        offsets(kExperts + 1) {
    std::vector<std::vector<int32_t>> of(kExperts);
    std::vector<int32_t> all(kExperts);
    for (int32_t e = 0; e < kExperts; ++e) all[static_cast<size_t>(e)] = e;
    for (int32_t t = 0; t < kTokens; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      for (int32_t k = 0; k < kTopK; ++k) {
        of[static_cast<size_t>(all[static_cast<size_t>(k)])].push_back(t * kTopK + k);
      }
    }
    for (size_t e = 0; e < of.size(); ++e) {
      order.insert(order.end(), of[e].begin(), of[e].end());
      offsets[e + 1] = static_cast<int32_t>(order.size());
    }
  }
  ExpertsArgs experts() {
    return {kTokens, kTopK, kExperts, order.data(), offsets.data(), scratch.data()};
  }
};

Layer& layer() {
  static Layer all;
  return all;
}

WeightMatrix matrix(DType dtype, int64_t rows, int64_t cols) {
  return {layer().weights.data(), dtype, Layout::Panel16, rows, cols, *row_bytes(dtype, cols)};
}

void count(benchmark::State& state) {
  state.counters["TOPS"] =
      benchmark::Counter(2e-12 * kHidden * kFf * kPairs * static_cast<double>(state.range(1)),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void gate_up(benchmark::State& state, DType dtype) {
  const Isa isa = detect_isa();
  Layer& l = layer();
  ExpertsGateUpArgs a;
  a.experts = l.experts();
  const WeightMatrix first = matrix(dtype, kFf, kHidden);
  a.gate = a.up = {first, kFf * first.row_bytes};
  a.up.first.data += Layer::kMatrix;
  const MatmulKernel kernel = *find_matmul("matmul_panel16_q8", dtype, isa);
  a.gate_kernel = a.up_kernel = &kernel;
  a.glu_fn = *find_rows("glu", isa);
  a.xq = l.xq.data();
  a.xq_stride = act_q8_row_bytes(kHidden);
  a.h = l.h.data();
  a.h_stride = kFf;
  const int64_t rows = state.range(0);
  for (auto _ : state) {
    for (int32_t e = 0; e < kExperts; ++e) {
      for (int64_t n = 0; n < kFf; n += rows) {
        a.next =
            first.data + std::min((e * kFf + n + rows), kExperts * kFf - rows) * first.row_bytes;
        experts_gate_up(a, e, n, std::min(kFf, n + rows));
      }
    }
    benchmark::ClobberMemory();
  }
  count(state);
}

void down(benchmark::State& state, DType dtype) {
  Layer& l = layer();
  ExpertsDownArgs a;
  a.experts = l.experts();
  const WeightMatrix first = matrix(dtype, kHidden, kFf);
  a.down = {first, kHidden * first.row_bytes};
  const MatmulKernel kernel = *find_matmul("matmul_panel16_q8", dtype, detect_isa());
  a.down_kernel = &kernel;
  a.hq = l.hq.data();
  a.hq_stride = act_q8_row_bytes(kFf);
  a.weights = l.route.data();
  a.y = l.y.data();
  a.y_stride = kHidden;
  const int64_t rows = state.range(0);
  for (auto _ : state) {
    for (int64_t n = 0; n < kHidden; n += rows) experts_down(a, n, n + rows);
    benchmark::ClobberMemory();
  }
  count(state);
}

void peak(benchmark::State& state) {
  const Int8PeakFn run = find_int8_peak(detect_isa());
  int32_t sink = 0;
  int64_t operations = 0;
  for (auto _ : state) operations += run(100000, &sink);
  benchmark::DoNotOptimize(sink);
  state.counters["TOPS"] =
      benchmark::Counter(1e-12 * static_cast<double>(operations), benchmark::Counter::kIsRate);
}

void add_all() {
  benchmark::RegisterBenchmark("peak", peak);
  for (DType dtype : {DType::Q4_K, DType::Q6_K}) {
    const std::string_view type = info(dtype).name;
    benchmark::RegisterBenchmark(fmt::format("gate_up/{}", type).c_str(), gate_up, dtype)
        ->Args({128, 2});
    auto* bench = benchmark::RegisterBenchmark(fmt::format("down/{}", type).c_str(), down, dtype);
    for (int64_t rows : {64, 128}) bench->Args({rows, 1});
  }
}

}  // namespace
}  // namespace ktx::kernels

int main(int argc, char** argv) {
  ktx::kernels::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
