// Sparse attention: scores of positions against double, the choice of the best against a sort of
// all, and attention over chosen positions against attention over a cache that has no others.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/attention/attention.h"
#include "kernels/attention/best_positions.h"
#include "kernels/attention/position_scores.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kBlock = 64;
constexpr KvType kTypes[] = {KvType::F32, KvType::F16, KvType::Q8_0};

// One sequence, stored by kv_store.
struct Cache {
  KvLayout layout;
  AlignedBytes memory;
  std::vector<std::byte*> blocks;
  std::vector<std::byte* const*> tables;
  std::vector<int32_t> sequence, position;

  Cache(KvType type, int64_t dim, int64_t tokens, const std::vector<float>& keys)
      : layout{type, kBlock, 1, dim, 0},
        memory((tokens + kBlock - 1) / kBlock * layout.slot_bytes()) {
    for (int64_t b = 0; b * kBlock < tokens; ++b) {
      blocks.push_back(memory.data() + b * layout.slot_bytes());
    }
    tables = {blocks.data()};
    sequence.assign(static_cast<size_t>(tokens), 0);
    position.resize(static_cast<size_t>(tokens));
    std::iota(position.begin(), position.end(), 0);
    KvStoreArgs store;
    store.key = keys.data();
    store.key_stride = dim;
    store.kv = view();
    store.token_end = tokens;
    (*find_kv_store("kv_store", Isa::Scalar))(store);
  }
  KvView view() const { return {layout, 0, tables.data(), sequence.data(), position.data()}; }
  // Element d of a key, as it is stored.
  double at(int64_t p, int64_t d) const {
    const std::byte* row =
        blocks[static_cast<size_t>(p / kBlock)] + layout.key_offset(0, p % kBlock);
    if (layout.type == KvType::F32) return reinterpret_cast<const float*>(row)[d];
    const std::byte* block = layout.type == KvType::F16 ? row + 2 * d : row + d / 32 * 34;
    uint16_t half;
    std::memcpy(&half, block, 2);
    if (layout.type == KvType::F16) return half_to_float(half);
    return double{half_to_float(half)} * static_cast<int8_t>(block[2 + d % 32]);
  }
};

TEST(BestPositions, AreThoseOfASortInAnyOrderAndInParts) {
  Random random(91);
  for (const int64_t count : {1, 7, 100, 1000, 5000}) {
    for (const int64_t most : {1, 2, 33, 700}) {
      std::vector<float> scores = random.normals(count);
      for (float& score : scores) {  // ties, zeros of both signs, numbers that are none
        if (random.below(3) == 0) score = std::round(score);
        if (random.below(50) == 0) score = -0.0f;
        if (random.below(200) == 0) score = std::nanf("");
      }
      std::vector<int32_t> order(static_cast<size_t>(count));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return candidate(scores[a], 0) > candidate(scores[b], 0);
      });
      order.resize(static_cast<size_t>(std::min(count, most)));
      std::sort(order.begin(), order.end());

      std::vector<Candidate> memory(static_cast<size_t>(candidate_count(most)));
      std::vector<int32_t> found(static_cast<size_t>(most), -7);
      BestPositions forwards(memory.data(), most);
      forwards.add(scores.data(), 0, count);
      found.resize(static_cast<size_t>(forwards.finish(found.data())));
      EXPECT_EQ(found, order) << count << " " << most << " seed " << random.seed();

      // Backwards, in two parts that give their best to a third.
      found.assign(static_cast<size_t>(most), -7);
      std::vector<Candidate> other(memory.size()), last(memory.size());
      BestPositions low(memory.data(), most), high(other.data(), most), all(last.data(), most);
      for (int64_t p = count - 1; p >= 0; --p) {
        (p < count / 3 ? low : high).add(candidate(scores[p], p));
      }
      for (const Candidate c : high.best()) all.add(c);
      for (const Candidate c : low.best()) all.add(c);
      found.resize(static_cast<size_t>(all.finish(found.data())));
      EXPECT_EQ(found, order) << count << " " << most << " seed " << random.seed();
    }
  }
}

class SparseAttention : public ::testing::TestWithParam<Isa> {};

TEST_P(SparseAttention, ScoresAreThoseOfDouble) {
  Random random(92);
  struct Shape {
    int32_t heads, dim;
  };
  const int64_t tokens = 300;
  for (const Shape s : {Shape{1, 64}, Shape{4, 64}, Shape{3, 40}, Shape{64, 128}, Shape{200, 32}}) {
    for (const KvType type : kTypes) {
      const std::vector<float> q = random.normals(tokens * s.heads * s.dim);
      const std::vector<float> weights = random.normals(tokens * s.heads);
      const Cache cache(type, s.dim, tokens, random.normals(tokens * s.dim));
      PositionScoresArgs a;
      a.q = q.data();
      a.q_stride = s.heads * s.dim;
      a.weights = weights.data();
      a.weights_stride = s.heads;
      a.attrs = {0, s.heads, s.dim, 8, 0.1f};
      a.kv = cache.view();
      AlignedBytes scratch(position_scores_scratch_bytes(a.attrs));
      a.scratch = scratch.data();
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 256}, {256, 300}, {0, 1}}) {
        a.token_begin = 297, a.token_end = 300;
        a.position_begin = first, a.position_end = last;
        std::vector<float> scores(static_cast<size_t>(3 * kAttentionSpan));
        a.scores = scores.data();
        (*find_position_scores("choose_positions", GetParam()))(a);
        for (int64_t t = 297; t < 300; ++t) {
          // A token by itself has the same bits.
          std::vector<float> alone(static_cast<size_t>(kAttentionSpan));
          PositionScoresArgs one = a;
          one.token_begin = t, one.token_end = t + 1;
          one.scores = alone.data();
          (*find_position_scores("choose_positions", GetParam()))(one);
          for (int64_t p = first; p < last; ++p) {
            const float found = scores[static_cast<size_t>((t - 297) * kAttentionSpan + p - first)];
            double want = 0, size = 0;
            for (int32_t h = 0; h < s.heads; ++h) {
              double dot = 0;
              for (int32_t d = 0; d < s.dim; ++d) {
                dot += q[(t * s.heads + h) * s.dim + d] * cache.at(p, d);
              }
              const double term = 0.1 * weights[t * s.heads + h] * std::max(0.0, dot);
              want += term, size += std::abs(term);
            }
            ASSERT_NEAR(found, want, 1e-5 * (1 + size)) << s.heads << "x" << s.dim << " " << p;
            ASSERT_EQ(found, alone[static_cast<size_t>(p - first)]);
          }
        }
      }
    }
  }
}

TEST_P(SparseAttention, TakesTheChosenPositionsAndNoOthers) {
  Random random(93);
  constexpr int32_t kHeads = 5, kDim = 96, kValue = 64;
  constexpr int64_t kTokens = 400, kMost = 290;
  for (const KvType type : kTypes) {
    const std::vector<float> keys = random.normals(kTokens * kDim);
    const std::vector<float> q = random.normals(3 * kHeads * kDim);
    const Cache cache(type, kDim, kTokens, keys);
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = kHeads * kDim;
    a.attrs = {0, kHeads, 1, kDim, kValue, 1, 0.1f};
    a.kv = cache.view();
    for (const int64_t count : {int64_t{1}, int64_t{33}, kMost}) {
      // Some positions, and a cache of these alone.
      std::vector<int32_t> chosen(static_cast<size_t>(kTokens));
      std::iota(chosen.begin(), chosen.end(), 0);
      std::shuffle(chosen.begin(), chosen.end(), std::mt19937(static_cast<unsigned>(count)));
      chosen.resize(static_cast<size_t>(count));
      std::sort(chosen.begin(), chosen.end());
      std::vector<float> some;
      for (const int32_t p : chosen) {
        some.insert(some.end(), &keys[static_cast<size_t>(p) * kDim],
                    &keys[static_cast<size_t>(p + 1) * kDim]);
      }
      const Cache alone(type, kDim, count, some);
      const std::vector<int32_t> last(3, static_cast<int32_t>(count - 1)), sequence(3, 0);
      std::vector<int32_t> lists;
      for (int t = 0; t < 3; ++t) {
        lists.insert(lists.end(), chosen.begin(), chosen.end());
        lists.resize(static_cast<size_t>((t + 1) * kMost), -1);
      }
      AttentionArgs sparse = a;
      sparse.chosen = lists.data();
      sparse.chosen_stride = kMost;
      sparse.kv.sequence = sequence.data();
      sparse.kv.position = last.data();
      sparse.token_end = 3;
      AttentionArgs dense = sparse;
      dense.chosen = nullptr;
      dense.kv = alone.view();
      dense.kv.sequence = sequence.data();
      dense.kv.position = last.data();
      const std::vector<float> want = attend(dense, GetParam(), "attention");
      EXPECT_TRUE(same_bits(attend(sparse, GetParam(), "sparse_attention"), want)) << count;
      EXPECT_TRUE(same_bits(attend(sparse, GetParam(), "sparse_attention", 2), want)) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SparseAttention, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ktx::kernels
