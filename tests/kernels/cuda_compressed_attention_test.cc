// Entries of compressed attention, their choice, and attention over entries and the last positions,
// of the GPU against the scalar CPU ops on the same caches.
#include <algorithm>
#include <cmath>

#include "kernels/attention/compress.h"
#include "kernels/attention/kv_element.h"
#include "kernels/attention/kv_row.h"
#include "kernels/attention/position_scores.h"
#include "kernels/norm/norm.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/cuda_caches.h"

namespace ktx::kernels {
namespace {

using CudaCompressedAttention = CudaTest;

struct Types {
  KvType positions, entries;
};
constexpr Types kTypes[] = {{KvType::F32, KvType::F32},
                            {KvType::F16, KvType::F16},
                            {KvType::Q8_0, KvType::Q8_0},
                            {KvType::Q8_0, KvType::F16}};

KvLayout by_token(KvType type, int32_t dim, int32_t every) {
  return {type, 64, 1, entry_token_elems(dim, every), 0};
}

// A slot of entries of random elements, as they lie in one of so many elements a token.
CacheStep random_entries(Random& random, KvType type, int32_t dim, int32_t every,
                         const std::vector<int32_t>& lengths, int32_t news) {
  CacheStep step(random, by_token(type, dim, every), lengths, news);
  step.layout = entry_layout(step.layout, dim, every);
  return step;
}

void add_padding(CacheStep& step) {
  step.sequence.push_back(0);
  step.position.push_back(-1);
}

// The entry of a token by the scalar ops.
std::vector<float> entry_of(const CacheStep& step, const CompressAttrs& attrs, int64_t token,
                            const std::vector<float>& bias, const std::vector<float>& norm,
                            const std::vector<float>& inv_freq) {
  std::vector<float> entry(static_cast<size_t>(attrs.dim));
  CompressArgs make;
  make.kv = step.view();
  make.attrs = attrs;
  make.bias = bias.data();
  make.token = token;
  make.entry = entry.data();
  (*find_compress("compress", Isa::Scalar))(make);
  RmsNormArgs rms;
  rms.x = rms.y = entry.data();
  rms.weight = norm.data();
  rms.width = attrs.dim;
  rms.attrs = {attrs.eps, 1};
  rms.token_end = 1;
  (*find_rms_norm("rms_norm", Isa::Scalar))(rms);
  const int32_t begin = attrs.dim - attrs.rotary_dim;
  const int32_t first = step.position[static_cast<size_t>(token)] / attrs.every * attrs.every;
  std::vector<float> scratch(static_cast<size_t>(attrs.rotary_dim));
  RopeArgs rope;
  rope.x = rope.y = entry.data();
  rope.inv_freq = inv_freq.data();
  rope.position = &first;
  rope.attrs = {
      1, attrs.dim, begin, attrs.dim, begin, attrs.rotary_dim, attrs.interleaved, attrs.mscale};
  rope.token_end = 1;
  rope.scratch = scratch.data();
  (*find_rope("rope", Isa::Scalar))(rope);
  return entry;
}

// Tokens that end no entry, and padding, change nothing.
TEST_F(CudaCompressedAttention, EntriesAgreeWithTheScalarOps) {
  Random random(111);
  struct Shape {
    int32_t every, overlapped, dim, rotary_dim, interleaved;
    std::vector<int32_t> lengths;
    int32_t news;
  };
  for (const Shape& s :
       {Shape{4, 1, 512, 64, 1, {70, 9, 4}, 3}, Shape{128, 0, 512, 64, 1, {384}, 1},
        Shape{4, 1, 128, 64, 0, {300}, 90}, Shape{2, 0, 48, 16, 1, {33, 64}, 5},
        Shape{128, 1, 80, 32, 1, {400, 256}, 200}}) {
    for (const Types& types : kTypes) {
      const KvType rows_type = types.positions == KvType::F32 ? KvType::F32 : KvType::F16;
      if (types.entries == KvType::Q8_0 && entry_token_elems(s.dim, s.every) % 32 != 0) continue;
      SCOPED_TRACE(::testing::Message() << s.every << " of " << s.dim << " "
                                        << type_name(types.entries) << " seed " << random.seed());
      CompressAttrs attrs;
      attrs.every = s.every, attrs.overlapped = s.overlapped, attrs.dim = s.dim;
      attrs.rotary_dim = s.rotary_dim, attrs.interleaved = s.interleaved;
      attrs.mscale = 1.25f, attrs.eps = 1e-6f;
      const int64_t heads = attrs.channels() / kCompressedChannels;
      CacheStep rows(random, {rows_type, 64, heads, kCompressedChannels, kCompressedChannels},
                     s.lengths, s.news);
      const int64_t tokens = rows.tokens();
      add_padding(rows);
      const CacheStep entries =
          random_entries(random, types.entries, s.dim, s.every, s.lengths, s.news);
      const std::vector<float> bias = random.normals(s.every * attrs.channels());
      const std::vector<float> norm = random.normals(s.dim);
      std::vector<float> inv_freq;
      for (int i = 0; i < s.rotary_dim / 2; ++i) inv_freq.push_back(std::pow(0.7f, 1.0f * i));

      GpuCache gpu_rows(rows), gpu_entries(entries);
      Gpu<float> gpu_bias(bias), gpu_norm(norm), gpu_inv_freq(inv_freq);
      CudaCompressArgs args;
      args.attrs = attrs;
      args.bias = gpu_bias.data();
      args.norm = gpu_norm.data();
      args.inv_freq = gpu_inv_freq.data();
      args.kv = gpu_rows.view;
      args.entries = gpu_entries.view;
      args.tokens = tokens + 1;
      ASSERT_TRUE(ran(launch_compress(args, nullptr)));
      CacheStep found = entries;
      const std::vector<std::byte> pool = gpu_entries.pool.read();
      // Entries as the scalar ops make them; where they are made, the GPU's are compared and then
      // put in, so that all else must have stayed.
      for (int64_t t = 0; t < tokens; ++t) {
        const int32_t position = rows.position[static_cast<size_t>(t)];
        if ((position + 1) % s.every != 0) continue;
        const std::vector<float> want = entry_of(rows, attrs, t, bias, norm, inv_freq);
        const int32_t sequence = rows.sequence[static_cast<size_t>(t)];
        std::byte* own = key_row(entries.view(), sequence, 0, position / s.every);
        const std::byte* made = pool.data() + (own - entries.pool.data());
        std::vector<float> got;
        for (int32_t d = 0; d < s.dim; ++d) got.push_back(element(types.entries, made, d));
        const double tolerance = types.entries == KvType::F32   ? 1e-5
                                 : types.entries == KvType::F16 ? 5e-4
                                                                : 2e-2;
        EXPECT_LT(relative_error(got, want), tolerance) << "token " << t;
        std::copy_n(made, entries.layout.key_row_bytes(),
                    found.pool.data() + (own - entries.pool.data()));
      }
      EXPECT_TRUE(found.pool == pool) << "something else was written";
    }
  }
}

TEST_F(CudaCompressedAttention, ChoosesTheBestEntries) {
  Random random(112);
  struct Shape {
    int32_t heads, dim, every, top_k, length, news;
  };
  for (const Shape& s : {Shape{64, 128, 4, 64, 1000, 20}, Shape{4, 64, 4, 16, 300, 90},
                         Shape{3, 40, 8, 16, 500, 5}}) {
    for (const KvType type : kKvTypes) {
      if (type == KvType::Q8_0 && entry_token_elems(s.dim, s.every) % 32 != 0) continue;
      SCOPED_TRACE(::testing::Message() << s.heads << "x" << s.dim << " " << type_name(type));
      CacheStep step = random_entries(random, type, s.dim, s.every, {s.length}, s.news);
      add_padding(step);
      const ChoosePositionsAttrs attrs{0, s.heads, s.dim, s.top_k, 0.05f, s.every};
      const std::vector<float> q = random.normals(step.tokens() * s.heads * s.dim);
      std::vector<float> weights = random.normals(step.tokens() * s.heads);
      for (float& w : weights) w = std::abs(w) + 0.1f;  // few equal scores
      GpuCache cache(step);
      Gpu<float> gpu_q(q), gpu_weights(weights);
      Gpu<int32_t> chosen(static_cast<size_t>(step.tokens() * s.top_k));
      CudaChoosePositionsArgs args;
      args.q = gpu_q.data(), args.q_stride = s.heads * s.dim;
      args.weights = gpu_weights.data(), args.weights_stride = s.heads;
      args.chosen = chosen.data();
      args.tokens = step.tokens();
      args.attrs = attrs;
      args.kv = cache.view;
      args.max_positions = s.length;
      GpuWorkspace workspace(args, cuda_choose_positions_workspace(args));
      ASSERT_TRUE(ran(launch_choose_positions(args, nullptr)));
      const std::vector<int32_t> found = chosen.read();

      PositionScoresArgs host;
      host.q = q.data(), host.q_stride = args.q_stride;
      host.weights = weights.data(), host.weights_stride = s.heads;
      host.attrs = attrs;
      host.kv = step.view();
      AlignedBytes scratch(position_scores_scratch_bytes(attrs));
      host.scratch = scratch.data();
      std::vector<float> scores(static_cast<size_t>(kAttentionSpan));
      host.scores = scores.data();
      for (int64_t t = 0; t < step.tokens(); ++t) {
        SCOPED_TRACE(t);
        const int64_t seen =
            std::max<int64_t>(0, entries_seen(s.every, step.position[static_cast<size_t>(t)]));
        ASSERT_LE(seen, kAttentionSpan);
        host.token_begin = t, host.token_end = t + 1;
        host.position_end = seen;
        if (seen > 0) (*find_position_scores("choose_positions", Isa::Scalar))(host);
        const std::span own = std::span(found).subspan(static_cast<size_t>(t * s.top_k),
                                                       static_cast<size_t>(s.top_k));
        float least = INFINITY, left = -INFINITY, size = 0;
        std::vector<bool> taken(static_cast<size_t>(seen));
        for (int64_t i = 0; i < s.top_k; ++i) {
          if (i >= seen) {
            ASSERT_EQ(own[static_cast<size_t>(i)], -1);
            continue;
          }
          const int32_t entry = own[static_cast<size_t>(i)];
          ASSERT_GE(entry, i == 0 ? 0 : own[static_cast<size_t>(i - 1)] + 1);
          ASSERT_LT(entry, seen);
          taken[static_cast<size_t>(entry)] = true;
          least = std::min(least, scores[static_cast<size_t>(entry)]);
        }
        for (size_t e = 0; e < taken.size(); ++e) {
          size = std::max(size, std::abs(scores[e]));
          if (!taken[e]) left = std::max(left, scores[e]);
        }
        EXPECT_GE(least, left - (type == KvType::F32 ? 1e-5f : 2e-3f) * size);
      }
    }
  }
}

// top_k = 0: all entries.
TEST_F(CudaCompressedAttention, AgreesWithTheScalarOp) {
  Random random(113);
  struct Shape {
    int32_t heads, dim, every, window, top_k;
    std::vector<int32_t> lengths;
    int32_t news;
  };
  for (const Shape& s :
       {Shape{64, 512, 4, 128, 100, {900, 20, 200}, 1}, Shape{64, 512, 128, 128, 0, {1500}, 9},
        Shape{128, 512, 4, 128, 64, {700}, 20}, Shape{20, 256, 4, 50, 0, {300, 3}, 3},
        Shape{6, 64, 4, 16, 10, {90, 130}, 5}, Shape{4, 64, 128, 70, 0, {400}, 40}}) {
    for (const Types& types : kTypes) {
      if (types.entries == KvType::Q8_0 && entry_token_elems(s.dim, s.every) % 32 != 0) continue;
      SCOPED_TRACE(::testing::Message() << s.heads << "x" << s.dim << " of " << s.every << " "
                                        << type_name(types.positions) << " "
                                        << type_name(types.entries) << " seed " << random.seed());
      CacheStep step(random, {types.positions, 64, 1, s.dim, 0}, s.lengths, s.news);
      const int64_t tokens = step.tokens();
      add_padding(step);
      const CacheStep entries =
          random_entries(random, types.entries, s.dim, s.every, s.lengths, s.news);
      const CompressedAttentionAttrs attrs{
          0, 1, s.heads, s.dim, s.every, s.window, 1 / std::sqrt(static_cast<float>(s.dim))};
      const std::vector<float> q = random.normals((tokens + 1) * s.heads * s.dim);
      std::vector<float> sinks;
      for (int32_t h = 0; h < s.heads; ++h) sinks.push_back(static_cast<float>(h % 7) - 3);
      std::vector<int32_t> last, entries_of, first_of, lists;
      for (const int32_t position : step.position) {
        const int32_t seen = position < 0 ? 0 : (position + 1) / s.every;
        const int32_t taken = s.top_k > 0 ? std::min(s.top_k, seen) : seen;
        const int32_t first = std::max(0, position - s.window + 1);
        std::vector<int32_t> some(static_cast<size_t>(seen));
        for (int32_t e = 0; e < seen; ++e) some[static_cast<size_t>(e)] = e;
        std::shuffle(some.begin(), some.end(), std::mt19937(static_cast<unsigned>(position)));
        some.resize(static_cast<size_t>(taken));
        std::sort(some.begin(), some.end());
        some.resize(static_cast<size_t>(std::max(s.top_k, taken)), -1);
        if (s.top_k > 0) lists.insert(lists.end(), some.begin(), some.end());
        entries_of.push_back(taken);
        first_of.push_back(first);
        last.push_back(taken + position - first);
      }
      std::vector<float> want(static_cast<size_t>(tokens * s.heads * s.dim));
      AttentionArgs host;
      host.q = q.data(), host.q_stride = s.heads * s.dim;
      host.y = want.data(), host.y_stride = s.heads * s.dim;
      host.attrs = whole_attention(attrs);
      host.sinks = sinks.data();
      host.kv = step.view();
      host.kv.position = last.data();
      host.entries = entries.view();
      host.entries_of = entries_of.data();
      host.first_of = first_of.data();
      if (s.top_k > 0) host.chosen = lists.data(), host.chosen_stride = s.top_k;
      host.token_end = tokens;
      host.head_end = s.heads;
      AlignedBytes scratch(attention_scratch_bytes(host.attrs));
      host.scratch = scratch.data();
      (*find_attention("compressed_attention", Isa::Scalar))(host);

      GpuCache gpu(step), gpu_entries(entries);
      Gpu<float> gpu_q(q), gpu_sinks(sinks);
      Gpu<float> y(static_cast<size_t>((tokens + 1) * s.heads * s.dim));
      Gpu<int32_t> gpu_lists(lists);
      CudaAttentionArgs args;
      args.q = gpu_q.data(), args.q_stride = host.q_stride;
      args.y = y.data(), args.y_stride = host.y_stride;
      args.tokens = tokens + 1;
      args.attrs = host.attrs;
      args.sinks = gpu_sinks.data();
      if (s.top_k > 0) args.chosen = gpu_lists.data(), args.top_k = s.top_k;
      args.kv = gpu.view;
      args.entries = gpu_entries.view;
      args.every = s.every;
      args.recent = s.window;
      for (const int64_t bound : {*std::max_element(s.lengths.begin(), s.lengths.end()), 4096}) {
        args.max_positions = bound;
        GpuWorkspace workspace(args, cuda_attention_workspace(args));
        ASSERT_TRUE(ran(launch_attention(args, nullptr)));
        std::vector<float> found = y.read();
        found.resize(want.size());
        EXPECT_LT(relative_error(found, want), types.positions == KvType::F32 ? 3e-6 : 1e-3);
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
