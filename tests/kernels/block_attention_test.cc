// Block attention: scores of blocks against double, and attention over chosen blocks against
// attention over a cache that has no others.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/attention/attention.h"
#include "kernels/attention/block_scores.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kCacheBlock = 64;

// One sequence of F32, stored by kv_store.
struct BlockCache {
  KvLayout layout;
  AlignedBytes memory;
  std::vector<std::byte*> blocks;
  std::vector<std::byte* const*> tables;
  std::vector<int32_t> sequence, position;

  BlockCache(int64_t kv_heads, int64_t key_dim, int64_t value_dim, int64_t tokens,
             const std::vector<float>& keys, const std::vector<float>& values)
      : layout{KvType::F32, kCacheBlock, kv_heads, key_dim, value_dim},
        memory((tokens + kCacheBlock - 1) / kCacheBlock * layout.slot_bytes()) {
    for (int64_t b = 0; b * kCacheBlock < tokens; ++b) {
      blocks.push_back(memory.data() + b * layout.slot_bytes());
    }
    tables = {blocks.data()};
    sequence.assign(static_cast<size_t>(tokens), 0);
    position.resize(static_cast<size_t>(tokens));
    std::iota(position.begin(), position.end(), 0);
    KvStoreArgs store;
    store.key = keys.data();
    store.key_stride = kv_heads * key_dim;
    store.value = value_dim > 0 ? values.data() : nullptr;
    store.value_stride = kv_heads * value_dim;
    store.kv = view();
    store.token_end = tokens;
    (*find_kv_store("kv_store", Isa::Scalar))(store);
  }
  KvView view() const { return {layout, 0, tables.data(), sequence.data(), position.data()}; }
};

class BlockAttention : public ::testing::TestWithParam<Isa> {};

TEST_P(BlockAttention, ScoresAreTheLargestOfEachBlockInDouble) {
  Random random(94);
  struct Shape {
    int32_t heads, dim, block;
  };
  const int64_t tokens = 600;
  for (const Shape s : {Shape{1, 64, 16}, Shape{4, 128, 128}, Shape{3, 40, 7}, Shape{2, 32, 1},
                        Shape{5, 32, 256}, Shape{200, 16, 100}}) {
    const std::vector<float> q = random.normals(tokens * s.heads * s.dim);
    const std::vector<float> keys = random.normals(tokens * s.dim);
    const BlockCache cache(1, s.dim, 0, tokens, keys, {});
    BlockScoresArgs a;
    a.q = q.data();
    a.q_stride = s.heads * s.dim;
    a.attrs = {0, s.heads, s.dim, 4, s.block, 1};
    a.kv = cache.view();
    AlignedBytes scratch(block_scores_scratch_bytes(a.attrs));
    a.scratch = scratch.data();
    a.token_begin = 597, a.token_end = 600;
    const int64_t whole = 597 / s.block, at_once = span_blocks(a.attrs);
    for (a.block_begin = 0; a.block_begin < whole; a.block_begin = a.block_end) {
      a.block_end = std::min(whole, a.block_begin + at_once);
      std::vector<float> scores(static_cast<size_t>(3 * s.heads * at_once), -7);
      a.scores = scores.data();
      (*find_block_scores("choose_blocks", GetParam()))(a);
      for (int64_t t = 597; t < 600; ++t) {
        // A token by itself has the same bits.
        std::vector<float> alone(static_cast<size_t>(s.heads * at_once));
        BlockScoresArgs one = a;
        one.token_begin = t, one.token_end = t + 1;
        one.scores = alone.data();
        (*find_block_scores("choose_blocks", GetParam()))(one);
        for (int32_t h = 0; h < s.heads; ++h) {
          for (int64_t b = a.block_begin; b < a.block_end; ++b) {
            double want = -INFINITY;
            for (int64_t p = b * s.block; p < (b + 1) * s.block; ++p) {
              double dot = 0;
              for (int32_t d = 0; d < s.dim; ++d) {
                dot += double{q[(t * s.heads + h) * s.dim + d]} * keys[p * s.dim + d];
              }
              want = std::max(want, dot);
            }
            ASSERT_NEAR(*block_score(a, t, h, b), want, 1e-4)
                << s.heads << "x" << s.dim << " block " << b << " of " << s.block;
            ASSERT_EQ(*block_score(a, t, h, b), *block_score(one, t, h, b));
          }
        }
      }
    }
  }
}

// Three tokens in a row, whose lists differ by KV head; one head's lists are the same for all
// three, another's are not.
TEST_P(BlockAttention, TakesTheChosenBlocksOfEachKvHeadAndNoOthers) {
  Random random(95);
  constexpr int32_t kKvHeads = 2, kHeads = 6, kDim = 48;
  constexpr int64_t kTokens = 700;
  for (const int64_t block : {16, 60, 128}) {
    const int64_t top_k = 5, own = (kTokens - 3) / block;
    const std::vector<float> keys = random.normals(kTokens * kKvHeads * kDim);
    const std::vector<float> values = random.normals(kTokens * kKvHeads * kDim);
    const std::vector<float> q = random.normals(3 * kHeads * kDim);
    const BlockCache cache(kKvHeads, kDim, kDim, kTokens, keys, values);
    std::vector<int32_t> lists, last, sequence(3, 0);
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t position = kTokens - 3 + t;
      ASSERT_EQ(position / block, own) << "the tokens end in one block";
      last.push_back(static_cast<int32_t>(last_of_blocks(top_k, block, position)));
      for (int64_t g = 0; g < kKvHeads; ++g) {
        std::vector<int32_t> some(static_cast<size_t>(own));
        std::iota(some.begin(), some.end(), 0);
        std::shuffle(some.begin(), some.end(),
                     std::mt19937(static_cast<unsigned>(block + (g == 0 ? 0 : t))));
        some.resize(static_cast<size_t>(top_k - 1));
        std::sort(some.begin(), some.end());
        some.push_back(static_cast<int32_t>(own));
        lists.insert(lists.end(), some.begin(), some.end());
      }
    }
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = kHeads * kDim;
    a.attrs = whole_attention(
        BlockAttentionAttrs{0, kHeads, kKvHeads, kDim, kDim, static_cast<int32_t>(block), 0.1f});
    a.kv = cache.view();
    a.kv.sequence = sequence.data();
    a.kv.position = last.data();
    a.chosen = lists.data();
    a.chosen_stride = kKvHeads * top_k;
    a.chosen_each = top_k;
    a.chosen_block = block;
    a.token_end = 3;
    const std::vector<float> whole = attend(a, GetParam(), "block_attention");
    EXPECT_TRUE(same_bits(attend(a, GetParam(), "block_attention", 3), whole)) << block;
    for (int64_t t = 0; t < 3; ++t) {
      // A cache of these positions alone, for each KV head its own.
      const int64_t count = last[static_cast<size_t>(t)] + 1;
      std::vector<float> some_keys, some_values;
      for (int64_t j = 0; j < count; ++j) {
        for (int64_t g = 0; g < kKvHeads; ++g) {
          const int64_t listed = lists[static_cast<size_t>((t * kKvHeads + g) * top_k + j / block)];
          const int64_t at = ((listed * block + j % block) * kKvHeads + g) * kDim;
          some_keys.insert(some_keys.end(), &keys[static_cast<size_t>(at)],
                           &keys[static_cast<size_t>(at + kDim)]);
          some_values.insert(some_values.end(), &values[static_cast<size_t>(at)],
                             &values[static_cast<size_t>(at + kDim)]);
        }
      }
      const BlockCache alone(kKvHeads, kDim, kDim, count, some_keys, some_values);
      AttentionArgs dense = a;
      dense.chosen = nullptr;
      dense.q = q.data() + t * kHeads * kDim;
      dense.kv = alone.view();
      dense.kv.position = &last[static_cast<size_t>(t)];
      dense.token_end = 1;
      const std::vector<float> want = attend(dense, GetParam(), "attention");
      const std::vector<float> found(whole.begin() + t * kHeads * kDim,
                                     whole.begin() + (t + 1) * kHeads * kDim);
      EXPECT_TRUE(same_bits(found, want)) << "token " << t << ", blocks of " << block;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockAttention, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ktx::kernels
