// Benchmarks of layers with states: the gated delta rule with 16 key heads and 32 value heads of
// 128 (Qwen3.5-35B-A3B, Qwen3-Next-80B), a state space of 128 heads of 64 by 128 (Granite 4 H
// Small).
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/delta_net/cuda_delta_net.h"
#include "kernels/cuda/state_space/cuda_state_space.h"
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
         4.0 * tokens * (width + y_width) + 8.0 * texts * attrs.state_floats());
  if (each > 1) return;
  const CausalConvAttrs conv{0, static_cast<int32_t>(width), 4};
  const Memory conv_states(2 * texts * conv.state_floats() * 4), taps(width * 16), norm(128 * 4);
  CudaDeltaStepArgs step;
  step.conv.x = x.as<float>();
  step.conv.x_stride = width;
  step.conv.weight = taps.as<float>();
  step.conv.states = {conv_states.as<float>(), conv.state_floats()};
  step.conv.attrs = conv;
  step.rule = args;
  step.norm = norm.as<float>();
  step.gate = x.as<float>();
  step.gate_stride = width;
  report("delta_step texts " + std::to_string(texts),
         seconds_of(10, [&](int, cudaStream_t s) { check(launch_delta_step(step, s)); }),
         4.0 * tokens * (width + y_width) + 8.0 * texts * attrs.state_floats());
}

void space(int32_t tokens, int32_t texts) {
  const StateSpaceAttrs attrs{0, 128, 64, 1, 128};
  const Memory x(tokens * attrs.channels() * 4), y(tokens * attrs.width() * 4);
  const Memory dt(tokens * attrs.heads * 4), of_heads(3 * attrs.heads * 4);
  const Memory states(2 * texts * attrs.state_floats() * 4);
  const Memory begin((texts + 1) * 4), segments(texts * 16);
  std::vector<int32_t> begins(texts + 1);
  std::iota(begins.begin(), begins.end(), 0);
  std::vector<StateSegment> parts;
  const int32_t each = tokens / texts;
  for (int32_t i = 0; i < texts; ++i) parts.push_back({i * each, each, 2 * i, 2 * i + 1});
  upload(begin, begins);
  upload(segments, parts);
  CudaStateSpaceArgs args;
  args.x = x.as<float>(), args.x_stride = attrs.channels();
  args.dt = dt.as<float>(), args.dt_stride = attrs.heads;
  args.y = y.as<float>(), args.y_stride = attrs.width();
  args.decay = of_heads.as<float>();
  args.skip = args.decay + attrs.heads;
  args.dt_bias = args.skip + attrs.heads;
  args.texts = {begin.as<int32_t>(), segments.as<StateSegment>(), texts, each, each == 1};
  args.states = {states.as<float>(), attrs.state_floats()};
  args.attrs = attrs;
  report("state_space tokens " + std::to_string(tokens) + " texts " + std::to_string(texts),
         seconds_of(10, [&](int, cudaStream_t s) { check(launch_state_space(args, s)); }),
         4.0 * tokens * (attrs.channels() + attrs.width()) + 8.0 * texts * attrs.state_floats());
}

}  // namespace

void bench_delta() {
  for (const int32_t texts : {1, 4, 16, 64, 256}) pass(texts, texts, 0, false);
  for (const int32_t tokens : {512, 2048, 8192}) {
    for (const int32_t texts : {1, 4}) {
      for (const bool chunks : {false, true}) pass(tokens, texts, 0, chunks);
    }
  }
  // Within one slab the time of a chunk from the matrix to the matrix, and what is left.
  for (const int32_t tokens : {64, 256, 1024}) pass(tokens, 1, 0, true);
  pass(512, 1, 33, true);  // 31 tokens before chunks, 33 behind them
  for (const int32_t texts : {1, 16, 64, 256}) space(texts, texts);
  for (const int32_t tokens : {64, 512, 2048}) space(tokens, 1);
}

}  // namespace ktx::bench
