// Benchmarks of the gated delta rule: 16 key heads and 32 value heads of 128 (Qwen3.5-35B-A3B,
// Qwen3-Next-80B).
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/delta_net/cuda_delta_net.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {

using namespace kernels;

namespace {

template <class T>
void upload(const Memory& to, const std::vector<T>& from) {
  check(cudaMemcpy(to.as<void>(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
        "copy");
}

// A pass of `tokens` tokens of `texts` texts of equal length, from position `start` on.
void pass(int32_t tokens, int32_t texts, int32_t start, bool chunks) {
  const DeltaRuleAttrs attrs{0, 16, 32, 128, 0, 0};
  const int64_t width = (2 * attrs.key_heads + attrs.value_heads) * attrs.head_dim;
  const int64_t y_width = attrs.value_heads * attrs.head_dim;
  const Memory x(tokens * width * 4), y(tokens * y_width * 4), gates(2 * tokens * 32 * 4);
  const Memory decay(32 * 4), dt_bias(32 * 4), states(2 * texts * attrs.state_floats() * 4);
  const Memory begin((texts + 1) * 4), segments(texts * 16), position(tokens * 4);
  const Memory workspace(cuda_delta_rule_workspace(attrs, tokens));
  check(cudaMemset(decay.as<void>(), 0xBD, 32 * 4), "memset");  // -0.09
  std::vector<int32_t> begins(texts + 1), positions(tokens);
  std::iota(begins.begin(), begins.end(), 0);
  std::vector<StateSegment> parts;
  std::vector<TextRows> rows;
  const int32_t each = tokens / texts;
  for (int32_t i = 0; i < texts; ++i) {
    parts.push_back({i * each, each, 2 * i, 2 * i + 1});
    rows.push_back({i * each, each, start});
    std::iota(positions.begin() + i * each, positions.begin() + (i + 1) * each, start);
  }
  upload(begin, begins);
  upload(segments, parts);
  upload(position, positions);
  CudaDeltaRuleArgs args;
  args.x = x.as<float>();
  args.x_stride = width;
  args.b = gates.as<float>();
  args.a = args.b + 32;
  args.b_stride = args.a_stride = 64;
  args.y = y.as<float>();
  args.y_stride = y_width;
  args.decay = decay.as<float>();
  args.dt_bias = dt_bias.as<float>();
  args.texts = {begin.as<int32_t>(), segments.as<StateSegment>(), texts, each, each == 1};
  args.states = {states.as<float>(), attrs.state_floats()};
  args.attrs = attrs;
  args.position = position.as<int32_t>();
  args.workspace = workspace.as<std::byte>();
  args.workspace_bytes = cuda_delta_rule_workspace(attrs, tokens);
  if (chunks) args.rows = rows;
  report("delta_rule tokens " + std::to_string(tokens) + " texts " + std::to_string(texts) +
             " from " + std::to_string(start) + (chunks ? " by chunks" : " one by one"),
         seconds_of(10, [&](int, cudaStream_t s) { check(launch_delta_rule(args, s)); }),
         4.0 * tokens * (width + y_width));
}

}  // namespace

void bench_delta() {
  for (const int32_t texts : {1, 8}) pass(texts, texts, 0, false);
  for (const int32_t tokens : {512, 2048, 8192}) {
    for (const int32_t texts : {1, 4}) {
      for (const bool chunks : {false, true}) pass(tokens, texts, 0, chunks);
    }
  }
  // Within one slab the time of a chunk from the matrix to the matrix, and what is left.
  for (const int32_t tokens : {64, 256, 1024}) pass(tokens, 1, 0, true);
  pass(512, 1, 33, true);  // 31 tokens before chunks, 33 behind them
}

}  // namespace ktx::bench
