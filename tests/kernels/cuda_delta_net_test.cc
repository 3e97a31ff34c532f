// causal_conv and delta_rule of the GPU against the scalar CPU ops: texts of any length beside each
// other, cut into segments with a slot of states behind each, and decode with padding rows.
#include "kernels/cuda/delta_net/cuda_delta_net.h"

#include <algorithm>

#include "kernels/delta_net/delta_net.h"
#include "tests/kernels/cuda_texts_cases.h"

namespace ktx::kernels {
namespace {

using CudaDeltaNet = CudaTest;

// More chunks than one slab has; from positions inside chunks; with segments that end between and
// inside chunks.
const Pass kChunkPasses[] = {
    {{{1}, {63}, {64}, {65}, {200}, {1000}}, false, 0, {0, 0, 0, 0, 0, 0}},
    {{{1}, {63}, {64}, {65}, {200}, {700}}, true, 0, {63, 1, 5, 127, 30, 500}},
    {{{512, 511, 1}, {1, 62, 1, 64, 5}, {100, 60, 9}, {40, 90}}, true, 0, {0, 64, 28, 1000}},
};

TEST_F(CudaDeltaNet, CausalConvIsTheScalarOne) {
  Random random(91);
  for (const Pass& pass : kPasses) {
    for (const int32_t channels : {83, 512, 1030}) {
      for (const int32_t taps : {2, 4, 5}) {
        const int32_t plain = channels == 512;  // a few with a bias, others without silu
        const CausalConvAttrs attrs{0, channels, taps, plain};
        Slots slots(random, pass, attrs.state_floats());
        const std::vector<float> x = random.normals(slots.rows() * channels);
        const std::vector<float> by_tap = random.normals(int64_t{taps} * channels);
        std::vector<float> by_channel(by_tap.size());
        for (int32_t c = 0; c < channels; ++c) {
          for (int32_t j = 0; j < taps; ++j) by_channel[c * taps + j] = by_tap[j * channels + c];
        }
        const std::vector<float> bias = random.normals(channels);
        Gpu<float> gpu_x(x), y(x.size()), weight(by_channel), gpu_bias(bias);
        CudaCausalConvArgs args;
        args.x = gpu_x.data();
        args.y = y.data();
        args.x_stride = args.y_stride = channels;
        args.weight = weight.data();
        args.bias = taps == 4 ? gpu_bias.data() : nullptr;
        args.texts = slots.texts();
        args.states = slots.states();
        args.attrs = attrs;
        ASSERT_TRUE(ran(launch_causal_conv(args, nullptr)));
        std::vector<float> want(x.size());
        for (const StateSegment& segment : slots.segments()) {
          CausalConvArgs host;
          host.x = x.data() + int64_t{segment.first} * channels;
          host.y = want.data() + int64_t{segment.first} * channels;
          host.x_stride = host.y_stride = host.channel_end = channels;
          host.weight = by_tap.data();
          host.bias = taps == 4 ? bias.data() : nullptr;
          host.attrs = attrs;
          host.state_in = slots.in(segment);
          host.state_out = slots.out(segment);
          host.tokens = segment.tokens;
          (*find_causal_conv("causal_conv", Isa::Scalar))(host);
        }
        expect_rows(y.read(), want, 4e-6f);
        slots.expect_alike(0);
      }
    }
  }
}

struct RuleShape {
  int32_t key_heads, value_heads, dim, tiled;
  bool joined;
  int32_t by_channel = 0;
  float lower_bound = 0;
};

// A pass by the GPU and by the scalar op. decay: of each head.
void compare_rules(Random& random, const RuleShape& s, const Pass& pass,
                   const std::vector<float>& decay) {
  const DeltaRuleAttrs attrs{0,       s.key_heads,  s.value_heads, s.dim,
                             s.tiled, s.by_channel, s.lower_bound};
  Slots slots(random, pass, attrs.state_floats());
  const int64_t heads = s.value_heads, width = (2 * s.key_heads + heads) * s.dim;
  const int64_t y_width = heads * s.dim, b_width = s.joined ? 2 * heads : heads;
  const std::vector<float> x = random.normals(slots.rows() * width);
  const std::vector<float> b = random.normals(slots.rows() * b_width);
  const std::vector<float> a = random.normals(slots.rows() * attrs.decays(), 2);
  const std::vector<float> dt_bias = random.normals(attrs.decays());
  Gpu<float> gpu_x(x), gpu_b(b), gpu_a(a), gpu_decay(decay), gpu_dt(dt_bias);
  Gpu<float> y(static_cast<size_t>(slots.rows() * y_width));
  CudaDeltaRuleArgs args;
  args.x = gpu_x.data();
  args.x_stride = width;
  args.b = gpu_b.data();
  args.b_stride = b_width;
  args.a = s.joined ? nullptr : gpu_a.data();
  args.a_stride = attrs.decays();
  args.y = y.data();
  args.y_stride = y_width;
  args.decay = gpu_decay.data();
  args.dt_bias = gpu_dt.data();
  args.texts = slots.texts();
  args.states = slots.states();
  args.attrs = attrs;
  args.rows = slots.text_rows();
  args.position = slots.positions();
  const GpuWorkspace workspace(args, cuda_delta_rule_workspace(attrs, slots.rows()));
  ASSERT_TRUE(ran(launch_delta_rule(args, nullptr)));
  std::vector<float> want(static_cast<size_t>(slots.rows() * y_width));
  for (const StateSegment& segment : slots.segments()) {
    DeltaRuleArgs host;
    host.x = x.data() + segment.first * width;
    host.x_stride = width;
    host.b = b.data() + segment.first * b_width;
    host.b_stride = b_width;
    host.a = s.joined ? nullptr : a.data() + segment.first * attrs.decays();
    host.a_stride = attrs.decays();
    host.y = want.data() + segment.first * y_width;
    host.y_stride = y_width;
    host.decay = decay.data();
    host.dt_bias = dt_bias.data();
    host.attrs = attrs;
    host.state_in = slots.in(segment);
    host.state_out = slots.out(segment);
    host.tokens = segment.tokens;
    host.column_end = s.dim;
    for (host.head = 0; host.head < heads; ++host.head) {
      (*find_delta_rule("delta_rule", Isa::Scalar))(host);
    }
  }
  expect_rows(y.read(), want, 3e-5f);
  slots.expect_alike(3e-5f);
}

TEST_F(CudaDeltaNet, DeltaRuleIsTheScalarOne) {
  Random random(92);
  for (const RuleShape& s :
       {RuleShape{2, 4, 64, 0, true}, RuleShape{2, 4, 64, 1, false}, RuleShape{1, 3, 20, 0, false},
        RuleShape{2, 4, 128, 0, true}, RuleShape{3, 3, 128, 1, false},
        RuleShape{1, 2, 192, 0, false}, RuleShape{1, 1, 256, 0, true}, RuleShape{2, 2, 4, 0, false},
        RuleShape{2, 2, 64, 0, false, 1}, RuleShape{3, 3, 128, 0, false, 1},
        RuleShape{1, 1, 20, 0, false, 1}, RuleShape{2, 2, 256, 0, false, 1},
        RuleShape{3, 3, 128, 0, false, 1, -5}}) {
    SCOPED_TRACE(s.dim);
    std::vector<float> decay;
    for (int32_t h = 0; h < s.value_heads; ++h) decay.push_back(-0.1f - 0.3f * h);
    for (const Pass& pass : kPasses) compare_rules(random, s, pass, decay);
  }
}

// Where this GPU has no chunks, the same passes token by token. The decays keep nearly all, and
// nothing at all.
TEST_F(CudaDeltaNet, DeltaRuleByChunksIsTheScalarOne) {
  Random random(94);
  const std::vector<float> decay = {-0.001f, -40, -0.3f, -1e6f, -3, -1e-6f};
  for (const RuleShape& s : {RuleShape{2, 4, 128, 0, true}, RuleShape{2, 6, 128, 1, false},
                             RuleShape{3, 3, 128, 0, false}, RuleShape{1, 2, 64, 0, false},
                             RuleShape{2, 2, 128, 0, false, 1}}) {
    for (size_t p = 0; p < std::size(kChunkPasses); ++p) {
      SCOPED_TRACE(testing::Message() << s.value_heads << " heads of " << s.dim << ", pass " << p);
      const std::vector<float> own(decay.begin(), decay.begin() + s.value_heads);
      compare_rules(random, s, kChunkPasses[p], own);
    }
  }
}

// Convolution, rule, norm of the heads and gate in one launch, against the scalar ops one by one: a
// matrix a block, and blocks that take several.
TEST_F(CudaDeltaNet, DeltaStepIsTheScalarOnes) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  if (major < 9) GTEST_SKIP() << "a delta net in one launch needs sm_90";
  Random random(97);
  constexpr int32_t kDim = 128, kTaps = 4;
  Pass many{{}, true, 96};
  for (int32_t i = 0; i < 90; ++i) many.texts.push_back({1});
  for (const RuleShape& s : {RuleShape{2, 4, kDim, 0, true}, RuleShape{2, 6, kDim, 1, false},
                             RuleShape{1, 1, kDim, 0, false}}) {
    for (const Pass& pass : {kPasses[0], kPasses[1], many}) {
      SCOPED_TRACE(testing::Message()
                   << s.value_heads << " heads, " << pass.texts.size() << " texts");
      const int64_t heads = s.value_heads, width = heads * kDim;
      const auto channels = static_cast<int32_t>((2 * s.key_heads + heads) * kDim);
      const CausalConvAttrs conv{0, channels, kTaps};
      const DeltaRuleAttrs rule{1, s.key_heads, s.value_heads, kDim, s.tiled};
      Slots conv_slots(random, pass, conv.state_floats()), slots(random, pass, rule.state_floats());
      const int64_t rows = slots.rows(), b_width = s.joined ? 2 * heads : heads;
      const std::vector<float> x = random.normals(rows * channels),
                               gate = random.normals(rows * width);
      const std::vector<float> b = random.normals(rows * b_width),
                               a = random.normals(rows * heads, 2);
      const std::vector<float> dt_bias = random.normals(heads), norm = random.normals(kDim);
      const std::vector<float> by_tap = random.normals(int64_t{kTaps} * channels);
      std::vector<float> by_channel(by_tap.size()), decay;
      for (int32_t c = 0; c < channels; ++c) {
        for (int32_t j = 0; j < kTaps; ++j) by_channel[c * kTaps + j] = by_tap[j * channels + c];
      }
      for (int32_t h = 0; h < heads; ++h) decay.push_back(-0.1f - 0.3f * h);
      Gpu<float> gpu_x(x), gpu_gate(gate), gpu_b(b), gpu_a(a), gpu_dt(dt_bias), gpu_norm(norm);
      Gpu<float> gpu_taps(by_channel), gpu_decay(decay), y(static_cast<size_t>(rows * width));
      CudaDeltaStepArgs args;
      args.conv.x = gpu_x.data(), args.conv.x_stride = channels;
      args.conv.weight = gpu_taps.data();
      args.conv.states = conv_slots.states();
      args.conv.attrs = conv;
      args.rule.b = gpu_b.data(), args.rule.b_stride = b_width;
      args.rule.a = s.joined ? nullptr : gpu_a.data(), args.rule.a_stride = heads;
      args.rule.y = y.data(), args.rule.y_stride = width;
      args.rule.decay = gpu_decay.data(), args.rule.dt_bias = gpu_dt.data();
      args.rule.texts = slots.texts();
      args.rule.states = slots.states();
      args.rule.attrs = rule;
      args.norm = gpu_norm.data(), args.eps = 1e-6f;
      args.gate = gpu_gate.data(), args.gate_stride = width;
      ASSERT_TRUE(ran(launch_delta_step(args, nullptr)));
      std::vector<float> mixed(x.size()), want(static_cast<size_t>(rows * width));
      for (size_t i = 0; i < slots.segments().size(); ++i) {
        const StateSegment &segment = slots.segments()[i], &other = conv_slots.segments()[i];
        const int64_t row = segment.first;
        CausalConvArgs host;
        host.x = &x[row * channels], host.y = &mixed[row * channels];
        host.x_stride = host.y_stride = host.channel_end = channels;
        host.weight = by_tap.data();
        host.attrs = conv;
        host.state_in = conv_slots.in(other), host.state_out = conv_slots.out(other);
        host.tokens = 1;
        (*find_causal_conv("causal_conv", Isa::Scalar))(host);
        DeltaRuleArgs of;
        of.x = &mixed[row * channels], of.x_stride = channels;
        of.b = &b[row * b_width], of.b_stride = b_width;
        of.a = s.joined ? nullptr : &a[row * heads], of.a_stride = heads;
        of.y = &want[row * width], of.y_stride = width;
        of.decay = decay.data(), of.dt_bias = dt_bias.data();
        of.attrs = rule;
        of.state_in = slots.in(segment), of.state_out = slots.out(segment);
        of.tokens = 1, of.column_end = kDim;
        for (of.head = 0; of.head < heads; ++of.head) {
          (*find_delta_rule("delta_rule", Isa::Scalar))(of);
          float* const head = &want[row * width + of.head * kDim];
          double squares = 0;
          for (int32_t c = 0; c < kDim; ++c) squares += double{head[c]} * head[c];
          const double scale = 1 / std::sqrt(squares / kDim + 1e-6);
          for (int32_t c = 0; c < kDim; ++c) {
            const double g = gate[row * width + of.head * kDim + c];
            head[c] = static_cast<float>(head[c] * scale * norm[c] * g / (1 + std::exp(-g)));
          }
        }
      }
      expect_rows(y.read(), want, 1e-4f);
      conv_slots.expect_alike(0);
      slots.expect_alike(3e-5f);
    }
  }
}

// However a text is cut: the same bits.
TEST_F(CudaDeltaNet, DeltaRuleDoesNotDependOnPasses) {
  Random random(93);
  constexpr int32_t kHeads = 2, kDim = 128, kTokens = 75;
  constexpr int64_t kWidth = 4 * kDim, kYWidth = kHeads * kDim;
  const DeltaRuleAttrs attrs{0, 1, kHeads, kDim, 0};
  const std::vector<float> x = random.normals(kTokens * kWidth);
  const std::vector<float> b = random.normals(kTokens * 2 * kHeads);
  const std::vector<float> decay = {-0.1f, -1}, dt_bias = {0.5f, -0.5f};
  Gpu<float> gpu_x(x), gpu_b(b), gpu_decay(decay), gpu_dt(dt_bias);
  std::vector<float> whole;
  for (const int32_t chunk : {75, 1, 7, 64}) {
    Gpu<float> y(static_cast<size_t>(kTokens * kYWidth));
    Gpu<float> states(static_cast<size_t>(2 * attrs.state_floats()));
    for (int32_t at = 0; at < kTokens; at += chunk) {
      const int32_t tokens = std::min(chunk, kTokens - at), pass = at / chunk;
      Gpu<int32_t> begin(std::vector<int32_t>{0, 1});
      Gpu<StateSegment> segment(
          std::vector<StateSegment>{{0, tokens, at == 0 ? -1 : pass % 2, (pass + 1) % 2}});
      CudaDeltaRuleArgs args;
      args.x = gpu_x.data() + at * kWidth;
      args.x_stride = kWidth;
      args.b = gpu_b.data() + at * 2 * kHeads;
      args.b_stride = 2 * kHeads;
      args.y = y.data() + at * kYWidth;
      args.y_stride = kYWidth;
      args.decay = gpu_decay.data();
      args.dt_bias = gpu_dt.data();
      args.texts = {begin.data(), segment.data(), 1, tokens, tokens == 1};
      args.states = {states.data(), attrs.state_floats()};
      args.attrs = attrs;
      ASSERT_TRUE(ran(launch_delta_rule(args, nullptr)));
    }
    if (whole.empty()) whole = y.read();
    EXPECT_TRUE(same_bits(y.read(), whole)) << "passes of " << chunk;
  }
}

// Passes end at multiples of 64, segments anywhere: the bits are the same.
TEST_F(CudaDeltaNet, ChunksDoNotDependOnPasses) {
  Random random(95);
  constexpr int32_t kHeads = 2, kDim = 128, kTokens = 300;
  constexpr int64_t kWidth = 4 * kDim, kYWidth = kHeads * kDim;
  const DeltaRuleAttrs attrs{0, 1, kHeads, kDim, 0};
  const std::vector<float> x = random.normals(kTokens * kWidth);
  const std::vector<float> b = random.normals(kTokens * 2 * kHeads);
  const std::vector<float> decay = {-0.1f, -1}, dt_bias = {0.5f, -0.5f};
  std::vector<int32_t> positions(kTokens);
  for (int32_t t = 0; t < kTokens; ++t) positions[t] = t;
  Gpu<float> gpu_x(x), gpu_b(b), gpu_decay(decay), gpu_dt(dt_bias);
  Gpu<int32_t> gpu_positions(positions);
  // Segments by pass.
  const std::vector<std::vector<int32_t>> kCuts[] = {
      {{300}}, {{64}, {64}, {128}, {44}}, {{256}, {44}}, {{100, 28}, {63, 65}, {1, 43}}};
  std::vector<float> whole, whole_state;
  for (const auto& passes : kCuts) {
    Gpu<float> y(static_cast<size_t>(kTokens * kYWidth));
    Gpu<float> states(static_cast<size_t>(10 * attrs.state_floats()));
    int32_t at = 0, slot = -1;
    for (const std::vector<int32_t>& tokens : passes) {
      std::vector<StateSegment> segments;
      int32_t count = 0;
      for (const int32_t part : tokens) {
        segments.push_back({count, part, slot, slot + 1});
        ++slot;
        count += part;
      }
      const std::vector<TextRows> rows = {{0, count, at}};
      Gpu<int32_t> begin(std::vector<int32_t>{0, static_cast<int32_t>(segments.size())});
      Gpu<StateSegment> gpu_segments(segments);
      CudaDeltaRuleArgs args;
      args.x = gpu_x.data() + at * kWidth;
      args.x_stride = kWidth;
      args.b = gpu_b.data() + at * 2 * kHeads;
      args.b_stride = 2 * kHeads;
      args.y = y.data() + at * kYWidth;
      args.y_stride = kYWidth;
      args.decay = gpu_decay.data();
      args.dt_bias = gpu_dt.data();
      args.texts = {begin.data(), gpu_segments.data(), 1, count, false};
      args.states = {states.data(), attrs.state_floats()};
      args.attrs = attrs;
      args.rows = rows;
      args.position = gpu_positions.data() + at;
      const GpuWorkspace workspace(args, cuda_delta_rule_workspace(attrs, count));
      ASSERT_TRUE(ran(launch_delta_rule(args, nullptr)));
      at += count;
    }
    const std::vector<float> all = states.read();
    const std::vector<float> state(all.begin() + slot * attrs.state_floats(),
                                   all.begin() + (slot + 1) * attrs.state_floats());
    if (whole.empty()) {
      whole = y.read();
      whole_state = state;
    }
    EXPECT_TRUE(same_bits(y.read(), whole)) << passes.size() << " passes";
    EXPECT_TRUE(same_bits(state, whole_state)) << passes.size() << " passes";
  }
}

}  // namespace
}  // namespace ktx::kernels
