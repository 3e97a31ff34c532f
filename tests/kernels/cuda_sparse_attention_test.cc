// The choice of positions and of blocks, and attention over them, of the GPU against the scalar CPU
// ops on the same cache.
#include <algorithm>

#include "kernels/attention/best_positions.h"
#include "kernels/attention/block_scores.h"
#include "kernels/attention/position_scores.h"
#include "tests/kernels/cuda_caches.h"

namespace ktx::kernels {
namespace {

using CudaSparseAttention = CudaTest;

// The scores of all positions that a token sees.
std::vector<float> scores_of(PositionScoresArgs a, int64_t token) {
  AlignedBytes scratch(position_scores_scratch_bytes(a.attrs));
  a.scratch = scratch.data();
  a.token_begin = token, a.token_end = token + 1;
  std::vector<float> all, span(static_cast<size_t>(kAttentionSpan));
  a.scores = span.data();
  const int64_t positions = a.kv.position[token] + 1;
  for (int64_t first = 0; first < positions; first += kAttentionSpan) {
    a.position_begin = first;
    a.position_end = std::min(positions, first + kAttentionSpan);
    (*find_position_scores("choose_positions", Isa::Scalar))(a);
    all.insert(all.end(), span.begin(), span.begin() + (a.position_end - first));
  }
  return all;
}

// A row that fills a batch up to the size of its graph.
void add_padding(CacheStep& step) {
  step.sequence.push_back(0);
  step.position.push_back(-1);
}

// Queries and weights of a step for choose_positions, and what the GPU chooses by them.
class Choice {
 public:
  Choice(Random& random, const CacheStep& step, const ChoosePositionsAttrs& attrs,
         std::vector<float> weights)
      : step_(step),
        q_(random.normals(step.tokens() * attrs.heads * attrs.key_dim)),
        weights_(std::move(weights)) {
    host_.q = q_.data();
    host_.q_stride = int64_t{attrs.heads} * attrs.key_dim;
    host_.weights = weights_.data();
    host_.weights_stride = attrs.heads;
    host_.attrs = attrs;
    host_.kv = step.view();
  }
  // The positions chosen for all tokens; `bound` is the most that the launch allows for.
  std::vector<int32_t> on_gpu(int64_t bound) const {
    GpuCache cache(step_);
    Gpu<float> q(q_), weights(weights_);
    Gpu<int32_t> chosen(static_cast<size_t>(step_.tokens() * host_.attrs.top_k));
    CudaChoosePositionsArgs args;
    args.q = q.data();
    args.q_stride = host_.q_stride;
    args.weights = weights.data();
    args.weights_stride = host_.weights_stride;
    args.chosen = chosen.data();
    args.tokens = step_.tokens();
    args.attrs = host_.attrs;
    args.kv = cache.view;
    args.max_positions = bound;
    GpuWorkspace workspace(args, cuda_choose_positions_workspace(args));
    EXPECT_TRUE(ran(launch_choose_positions(args, nullptr)));
    return chosen.read();
  }
  const PositionScoresArgs& host() const { return host_; }

 private:
  const CacheStep& step_;
  std::vector<float> q_, weights_;
  PositionScoresArgs host_;
};

// Rising positions, as many as may be; of those that are left out none scores higher by more than
// rounding explains.
void expect_best(std::span<const int32_t> chosen, const std::vector<float>& scores,
                 float tolerance) {
  const auto top_k = static_cast<int64_t>(chosen.size());
  const int64_t count = std::min<int64_t>(top_k, std::ssize(scores));
  std::vector<bool> taken(scores.size());
  float least = INFINITY, size = 0, left = -INFINITY;
  for (int64_t i = 0; i < top_k; ++i) {
    if (i >= count) {
      ASSERT_EQ(chosen[i], -1);
      continue;
    }
    ASSERT_GE(chosen[i], i == 0 ? 0 : chosen[i - 1] + 1);
    ASSERT_LT(chosen[i], std::ssize(scores));
    taken[static_cast<size_t>(chosen[i])] = true;
    least = std::min(least, scores[static_cast<size_t>(chosen[i])]);
  }
  for (size_t p = 0; p < scores.size(); ++p) {
    size = std::max(size, std::abs(scores[p]));
    if (!taken[p]) left = std::max(left, scores[p]);
  }
  EXPECT_GE(least, left - tolerance * size);
}

TEST_F(CudaSparseAttention, ChoosesTheBestPositions) {
  Random random(94);
  struct Shape {
    int32_t heads, dim, top_k;
    std::vector<int32_t> lengths;
    int32_t news;
    int64_t bound = 0;  // 0: the longest length
  };
  for (const Shape& s : {Shape{4, 64, 32, {200, 31, 32, 33}, 1}, Shape{64, 128, 128, {1500}, 20},
                         Shape{32, 128, 2048, {3000, 100}, 1}, Shape{5, 64, 7, {70}, 70},
                         Shape{3, 40, 16, {300, 90}, 5}, Shape{20, 64, 1, {130}, 2},
                         // (Scores of 16 tokens are a slice.)
                         Shape{4, 64, 32, {200}, 40, int64_t{1} << 20}}) {
    for (const KvType type : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << s.heads << "x" << s.dim << " " << type_name(type));
      CacheStep step(random, {type, 64, 1, s.dim, 0}, s.lengths, s.news);
      add_padding(step);
      std::vector<float> weights = random.normals(step.tokens() * s.heads);
      for (float& w : weights) w = std::abs(w) + 0.1f;  // few equal scores
      const Choice choice(random, step, {0, s.heads, s.dim, s.top_k, 0.05f}, weights);
      const int64_t longest = *std::max_element(s.lengths.begin(), s.lengths.end());
      const std::vector<int32_t> found = choice.on_gpu(s.bound > 0 ? s.bound : longest);
      for (int64_t t = 0; t < step.tokens(); ++t) {
        SCOPED_TRACE(t);
        expect_best(std::span(found).subspan(static_cast<size_t>(t * s.top_k), s.top_k),
                    scores_of(choice.host(), t), type == KvType::F32 ? 1e-5f : 2e-3f);
      }
    }
  }
}

TEST_F(CudaSparseAttention, OfEqualScoresTheEarlierPositionsAreChosen) {
  Random random(96);
  constexpr int32_t kHeads = 4, kDim = 64;
  for (const int32_t top_k : {1, 100, 2000}) {
    for (const KvType type : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << top_k << " " << type_name(type));
      const CacheStep step(random, {type, 64, 1, kDim, 0}, {2500}, 3);
      const std::vector<float> zeros(static_cast<size_t>(step.tokens() * kHeads));
      const Choice choice(random, step, {0, kHeads, kDim, top_k, 0.05f}, zeros);
      const std::vector<int32_t> found = choice.on_gpu(2500);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i], static_cast<int32_t>(i % static_cast<size_t>(top_k)));
      }
    }
  }
}

// What the step's tokens choose: [rows][lists of a row][top_k], and by row the number of the last
// position that it takes.
struct Lists {
  int64_t top_k;
  int32_t block = 0;  // 0: of positions
  std::vector<int32_t> numbers{}, last{};
};

// Attention over them by the scalar op and on the GPU; the step's last row is padding.
void expect_the_scalar_attention(Random& random, std::string_view op, const CacheStep& step,
                                 const AttentionAttrs& attrs, const Lists& lists, int64_t bound) {
  const int64_t tokens = step.tokens() - 1, each = lists.block > 0 ? attrs.kv_heads : 1;
  const std::vector<float> q = random.normals(step.tokens() * attrs.heads * attrs.key_dim);
  std::vector<float> want(static_cast<size_t>(tokens * attrs.heads * attrs.value_dim));
  AttentionArgs host;
  host.q = q.data(), host.q_stride = int64_t{attrs.heads} * attrs.key_dim;
  host.y = want.data(), host.y_stride = int64_t{attrs.heads} * attrs.value_dim;
  host.attrs = attrs;
  host.kv = step.view();
  host.kv.position = lists.last.data();
  host.chosen = lists.numbers.data();
  host.chosen_stride = each * lists.top_k;
  if (lists.block > 0) host.chosen_each = lists.top_k, host.chosen_block = lists.block;
  host.token_end = tokens;
  host.head_end = attrs.heads;
  AlignedBytes scratch(attention_scratch_bytes(attrs));
  host.scratch = scratch.data();
  (*find_attention(op, Isa::Scalar))(host);

  GpuCache gpu(step);
  Gpu<float> gpu_q(q);
  Gpu<float> y(static_cast<size_t>(step.tokens() * attrs.heads * attrs.value_dim));
  Gpu<int32_t> numbers(lists.numbers);
  CudaAttentionArgs args;
  args.q = gpu_q.data(), args.q_stride = host.q_stride;
  args.y = y.data(), args.y_stride = host.y_stride;
  args.tokens = step.tokens();
  args.attrs = attrs;
  (lists.block > 0 ? args.blocks : args.chosen) = numbers.data();
  args.top_k = lists.top_k;
  args.block = lists.block;
  args.kv = gpu.view;
  args.max_positions = bound;
  GpuWorkspace workspace(args, cuda_attention_workspace(args));
  ASSERT_TRUE(ran(launch_attention(args, nullptr)));
  std::vector<float> found = y.read();
  found.resize(want.size());
  EXPECT_LT(relative_error(found, want), step.layout.type == KvType::F32 ? 3e-6 : 1e-3);
}

TEST_F(CudaSparseAttention, AgreesWithTheScalarOp) {
  Random random(95);
  struct Shape {
    int32_t heads, key_dim, value_dim, top_k;
    std::vector<int32_t> lengths;
    int32_t news;
  };
  for (const Shape& s : {Shape{4, 288, 256, 32, {200, 31, 40}, 1},
                         Shape{128, 576, 512, 300, {900}, 6}, Shape{16, 576, 512, 64, {70, 500}, 3},
                         Shape{6, 40, 24, 20, {90}, 4}, Shape{64, 576, 512, 2048, {2500}, 1}}) {
    for (const KvType type : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << s.heads << "x" << s.key_dim << " " << type_name(type));
      CacheStep step(random, {type, 64, 1, s.key_dim, 0}, s.lengths, s.news);
      add_padding(step);
      Lists lists{s.top_k};
      for (const int32_t position : step.position) {
        std::vector<int32_t> all(static_cast<size_t>(position + 1));
        for (int32_t p = 0; p <= position; ++p) all[static_cast<size_t>(p)] = p;
        std::shuffle(all.begin(), all.end(), std::mt19937(static_cast<unsigned>(position)));
        all.resize(std::min<size_t>(all.size(), s.top_k));
        std::sort(all.begin(), all.end());
        lists.last.push_back(static_cast<int32_t>(all.size()) - 1);
        all.resize(static_cast<size_t>(s.top_k), -1);
        lists.numbers.insert(lists.numbers.end(), all.begin(), all.end());
      }
      const AttentionAttrs attrs{
          0, s.heads, 1, s.key_dim, s.value_dim, 1, 1 / std::sqrt(static_cast<float>(s.key_dim))};
      expect_the_scalar_attention(random, "sparse_attention", step, attrs, lists,
                                  *std::max_element(s.lengths.begin(), s.lengths.end()));
    }
  }
}

struct BlockShape {
  int32_t heads, kv_heads, dim, top_k, block, local;
  std::vector<int32_t> lengths;
  int32_t news;
};
const BlockShape kBlockShapes[] = {{4, 4, 128, 4, 128, 1, {2000, 513, 512, 100}, 1},
                                   {64, 4, 128, 3, 64, 2, {700}, 20},
                                   {6, 3, 40, 5, 20, 1, {333, 90}, 3},
                                   {32, 2, 64, 2, 192, 1, {900}, 70}};

// The blocks before the last `local` ones are scored.
TEST_F(CudaSparseAttention, ChoosesTheBestBlocks) {
  Random random(97);
  for (const BlockShape& s : kBlockShapes) {
    for (const KvType type : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << s.kv_heads << "x" << s.dim << " " << type_name(type));
      CacheStep step(random, {type, 64, 1, s.dim, 0}, s.lengths, s.news);
      const int64_t tokens = step.tokens();
      add_padding(step);
      const ChooseBlocksAttrs attrs{0, s.kv_heads, s.dim, s.top_k, s.block, s.local};
      const std::vector<float> q = random.normals(step.tokens() * s.kv_heads * s.dim);
      GpuCache cache(step);
      Gpu<float> gpu_q(q);
      Gpu<int32_t> chosen(static_cast<size_t>(step.tokens() * s.kv_heads * s.top_k));
      CudaChooseBlocksArgs args;
      args.q = gpu_q.data(), args.q_stride = s.kv_heads * s.dim;
      args.chosen = chosen.data();
      args.tokens = step.tokens();
      args.attrs = attrs;
      args.kv = cache.view;
      args.max_positions = *std::max_element(s.lengths.begin(), s.lengths.end());
      GpuWorkspace workspace(args, cuda_choose_blocks_workspace(args));
      ASSERT_TRUE(ran(launch_choose_blocks(args, nullptr)));
      const std::vector<int32_t> found = chosen.read();

      BlockScoresArgs host;
      host.q = q.data(), host.q_stride = s.kv_heads * s.dim;
      host.attrs = attrs;
      host.kv = step.view();
      AlignedBytes scratch(block_scores_scratch_bytes(attrs));
      host.scratch = scratch.data();
      std::vector<float> span(static_cast<size_t>(s.kv_heads * span_blocks(attrs)));
      host.scores = span.data();
      for (int64_t t = 0; t < step.tokens(); ++t) {
        const int64_t seen = t < tokens ? step.position[static_cast<size_t>(t)] / s.block + 1 : 0;
        std::vector<std::vector<float>> scores(static_cast<size_t>(s.kv_heads));
        host.token_begin = t, host.token_end = t + 1;
        for (int64_t first = 0; first + s.local < seen; first = host.block_end) {
          host.block_begin = first;
          host.block_end = std::min(seen - s.local, first + span_blocks(attrs));
          (*find_block_scores("choose_blocks", Isa::Scalar))(host);
          for (int32_t h = 0; h < s.kv_heads; ++h) {
            for (int64_t b = first; b < host.block_end; ++b) {
              scores[static_cast<size_t>(h)].push_back(*block_score(host, t, h, b));
            }
          }
        }
        for (int32_t h = 0; h < s.kv_heads; ++h) {
          SCOPED_TRACE(::testing::Message() << "token " << t << " head " << h);
          std::vector<float>& own = scores[static_cast<size_t>(h)];
          own.resize(static_cast<size_t>(seen), 1e4f);
          const auto list = std::span(found).subspan(
              static_cast<size_t>((t * s.kv_heads + h) * s.top_k), static_cast<size_t>(s.top_k));
          expect_best(list, own, type == KvType::F32 ? 1e-8f : 5e-6f);
        }
      }
    }
  }
}

TEST_F(CudaSparseAttention, OverBlocksAgreesWithTheScalarOp) {
  Random random(98);
  for (const BlockShape& s : kBlockShapes) {
    for (const KvType type : kKvTypes) {
      SCOPED_TRACE(::testing::Message() << s.heads << "x" << s.dim << " " << type_name(type));
      CacheStep step(random, {type, 64, s.kv_heads, s.dim, s.dim}, s.lengths, s.news);
      add_padding(step);
      Lists lists{s.top_k, s.block};
      for (size_t t = 0; t < step.position.size(); ++t) {
        const int32_t position = step.position[t], own = position < 0 ? -1 : position / s.block;
        lists.last.push_back(
            position < 0 ? -1 : static_cast<int32_t>(last_of_blocks(s.top_k, s.block, position)));
        for (int32_t g = 0; g < s.kv_heads; ++g) {
          std::vector<int32_t> some;
          for (int32_t b = 0; b < own; ++b) some.push_back(b);
          std::shuffle(some.begin(), some.end(), std::mt19937(static_cast<unsigned>(t + 7 * g)));
          some.resize(std::min<size_t>(some.size(), static_cast<size_t>(s.top_k - 1)));
          std::sort(some.begin(), some.end());
          if (own >= 0) some.push_back(own);
          some.resize(static_cast<size_t>(s.top_k), -1);
          lists.numbers.insert(lists.numbers.end(), some.begin(), some.end());
        }
      }
      const BlockAttentionAttrs attrs{0, s.heads, s.kv_heads, s.dim, s.dim, s.block, 0.1f};
      expect_the_scalar_attention(random, "block_attention", step, whole_attention(attrs), lists,
                                  *std::max_element(s.lengths.begin(), s.lengths.end()));
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
