// Compressed attention: entries against plain sums in double, and attention over entries and
// positions against attention over a cache that holds just these.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/attention/attention.h"
#include "kernels/attention/compress.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kBlock = 64;

// A slot of one sequence, in blocks of its own.
struct Slot {
  KvLayout layout;  // by tokens
  AlignedBytes memory;
  std::vector<std::byte*> blocks;
  std::vector<std::byte* const*> tables;

  Slot(const KvLayout& l, int64_t tokens)
      : layout(l), memory((tokens + kBlock - 1) / kBlock * l.slot_bytes()) {
    for (int64_t b = 0; b * kBlock < tokens; ++b)
      blocks.push_back(memory.data() + b * l.slot_bytes());
    tables = {blocks.data()};
  }
  KvView view(const KvLayout& as, const std::vector<int32_t>& sequence,
              const std::vector<int32_t>& position) const {
    return {as, 0, tables.data(), sequence.data(), position.data()};
  }
};

void store(const KvView& view, const std::vector<float>& keys, const std::vector<float>& values,
           int64_t rows) {
  KvStoreArgs a;
  a.key = keys.data();
  a.key_stride = view.layout.kv_heads * view.layout.key_dim;
  a.value = values.empty() ? nullptr : values.data();
  a.value_stride = view.layout.kv_heads * view.layout.value_dim;
  a.kv = view;
  a.token_end = rows;
  (*find_kv_store("kv_store", Isa::Scalar))(a);
}

std::vector<int32_t> counted(int64_t n) {
  std::vector<int32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class CompressedAttention : public ::testing::TestWithParam<Isa> {};

TEST(EntryLayout, PutsEntriesIntoTheBlocksOfTheirLastPositions) {
  const KvLayout slot{KvType::F32, kBlock, 1, entry_token_elems(48, 4), 0};
  const KvLayout four = entry_layout(slot, 48, 4), many = entry_layout(slot, 48, 128);
  EXPECT_EQ(four.block_tokens, 16);
  EXPECT_EQ(four.row_blocks, 1);
  EXPECT_EQ(many.block_tokens, 1);
  EXPECT_EQ(many.row_blocks, 2);
  for (const int32_t every : {2, 4, 16, 64, 128, 192}) {
    for (const int32_t dim : {16, 48, 80, 512}) {
      for (const KvType type : {KvType::F32, KvType::F16, KvType::Q8_0}) {
        const int32_t elems = entry_token_elems(dim, every);
        if (type == KvType::Q8_0 && elems % 32 != 0) continue;  // is F16 then
        const KvLayout tokens{type, kBlock, 1, elems, 0};
        const KvLayout entries = entry_layout(tokens, dim, every);
        EXPECT_LE(entries.block_tokens * entries.key_row_bytes(), tokens.slot_bytes())
            << dim << " of " << every;
      }
    }
  }
}

// Every entry, the first one too, which has none before it.
TEST_P(CompressedAttention, EntriesAreSumsOfTheirPositionsByChannel) {
  Random random(96);
  constexpr int32_t kDim = 48;
  for (const int32_t every : {4, 128}) {
    for (const bool overlapped : {false, true}) {
      for (const KvType type : {KvType::F32, KvType::F16}) {
        CompressArgs a;
        a.attrs.every = every, a.attrs.overlapped = overlapped, a.attrs.dim = kDim;
        const int64_t channels = a.attrs.channels(), tokens = 3 * every;
        const KvLayout layout{type, kBlock, channels / kCompressedChannels, kCompressedChannels,
                              kCompressedChannels};
        const Slot slot(layout, tokens);
        const std::vector<int32_t> sequence(static_cast<size_t>(tokens), 0),
            position = counted(tokens);
        std::vector<float> rows = random.normals(tokens * channels);
        std::vector<float> scores = random.normals(tokens * channels, 3);
        const std::vector<float> bias = random.normals(every * channels);
        a.kv = slot.view(layout, sequence, position);
        store(a.kv, rows, scores, tokens);
        if (type == KvType::F16) {
          for (float& x : rows) x = half_to_float(float_to_half(x));
          for (float& x : scores) x = half_to_float(float_to_half(x));
        }
        a.bias = bias.data();
        std::vector<float> entry(kDim + 1, -7);
        a.entry = entry.data();
        for (int64_t e = 0; e < 3; ++e) {
          a.token = (e + 1) * every - 1;
          (*find_compress("compress", GetParam()))(a);
          EXPECT_EQ(entry[kDim], -7) << "behind the entry";
          for (int64_t c = 0; c < kDim; ++c) {
            double sum = 0, weights = 0;
            const int64_t first = overlapped && e > 0 ? (e - 1) * every : e * every;
            for (int64_t p = first; p < (e + 1) * every; ++p) {
              const int64_t own = overlapped && p >= e * every ? kDim + c : c;
              const double score = double{scores[static_cast<size_t>(p * channels + own)]} +
                                   bias[static_cast<size_t>(p % every * channels + own)];
              weights += std::exp(score);
              sum += std::exp(score) * rows[static_cast<size_t>(p * channels + own)];
            }
            ASSERT_NEAR(entry[static_cast<size_t>(c)], sum / weights, 2e-5)
                << "entry " << e << " of " << every << ", channel " << c;
          }
        }
      }
    }
  }
}

// Three tokens with entries of 4 or 128 positions, all or some; of types that may differ.
TEST_P(CompressedAttention, ReadsEntriesAndThenTheWindow) {
  Random random(97);
  constexpr int32_t kHeads = 6, kDim = 64, kWindow = 100;
  constexpr int64_t kTokens = 1403, kFirst = 1400;
  const auto all = counted(kTokens);
  const std::vector<int32_t> sequence(static_cast<size_t>(kTokens), 0);
  struct Case {
    int32_t every;
    int64_t top_k;  // 0: all
    KvType positions, entries;
  };
  for (const Case& c :
       {Case{4, 0, KvType::F32, KvType::F32}, Case{4, 77, KvType::F32, KvType::F32},
        Case{128, 0, KvType::F32, KvType::F32}, Case{4, 33, KvType::F16, KvType::F16},
        Case{4, 0, KvType::Q8_0, KvType::Q8_0}, Case{128, 0, KvType::Q8_0, KvType::F16},
        Case{128, 0, KvType::F16, KvType::F16}}) {
    const KvLayout layout{c.positions, kBlock, 1, kDim, 0};
    const KvLayout by_token{c.entries, kBlock, 1, entry_token_elems(kDim, c.every), 0};
    const KvLayout by_entry = entry_layout(by_token, kDim, c.every);
    const Slot positions(layout, kTokens), entries(by_token, kTokens);
    const int64_t made = kTokens / c.every;
    const std::vector<float> keys = random.normals(kTokens * kDim);
    const std::vector<float> rows = random.normals(made * kDim);
    const std::vector<float> q = random.normals(3 * kHeads * kDim);
    const std::vector<float> sinks = random.normals(kHeads);
    store(positions.view(layout, sequence, all), keys, {}, kTokens);
    store(entries.view(by_entry, sequence, all), rows, {}, made);
    std::vector<int32_t> last, entries_of, first_of, lists;
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t position = kFirst + t, seen = entries_seen(c.every, position);
      const int64_t taken = c.top_k > 0 ? std::min(c.top_k, seen) : seen;
      std::vector<int32_t> some = counted(seen);
      std::shuffle(some.begin(), some.end(), std::mt19937(static_cast<unsigned>(t)));
      some.resize(static_cast<size_t>(taken));
      std::sort(some.begin(), some.end());
      lists.insert(lists.end(), some.begin(), some.end());
      entries_of.push_back(static_cast<int32_t>(taken));
      first_of.push_back(static_cast<int32_t>(position - kWindow + 1));
      last.push_back(static_cast<int32_t>(taken + kWindow - 1));
    }
    AttentionArgs a;
    a.q = q.data();
    a.q_stride = kHeads * kDim;
    a.attrs =
        whole_attention(CompressedAttentionAttrs{0, 1, kHeads, kDim, c.every, kWindow, 0.11f});
    a.sinks = sinks.data();
    a.kv = positions.view(layout, sequence, last);
    a.entries = entries.view(by_entry, sequence, all);
    a.entries_of = entries_of.data();
    a.first_of = first_of.data();
    if (c.top_k > 0) {
      a.chosen = lists.data();
      a.chosen_stride = c.top_k;
    }
    a.token_end = 3;
    const std::vector<float> found = attend(a, GetParam(), "compressed_attention");
    EXPECT_TRUE(same_bits(attend(a, GetParam(), "compressed_attention", 4), found)) << c.every;
    for (int64_t t = 0, at = 0; t < 3; ++t) {
      // A cache of these rows alone. Where types differ it is F32, and as near as they are.
      const int64_t count = last[static_cast<size_t>(t)] + 1;
      std::vector<float> some;
      const auto take = [&](const std::vector<float>& from, int64_t row) {
        some.insert(some.end(), from.begin() + row * kDim, from.begin() + (row + 1) * kDim);
      };
      for (int64_t e = 0; e < entries_of[static_cast<size_t>(t)]; ++e) {
        take(rows, lists[static_cast<size_t>(at++)]);
      }
      for (int64_t p = kFirst + t - kWindow + 1; p <= kFirst + t; ++p) take(keys, p);
      const bool alike = c.positions == c.entries;
      const KvLayout own{alike ? c.positions : KvType::F32, kBlock, 1, kDim, 0};
      const Slot alone(own, count);
      store(alone.view(own, sequence, all), some, {}, count);
      AttentionArgs dense;
      dense.q = q.data() + t * kHeads * kDim;
      dense.q_stride = a.q_stride;
      dense.attrs = a.attrs;
      dense.sinks = a.sinks;
      dense.kv = alone.view(own, sequence, last);
      dense.kv.position = &last[static_cast<size_t>(t)];
      dense.token_end = 1;
      const std::vector<float> want = attend(dense, GetParam(), "attention");
      const std::vector<float> of_token(found.begin() + t * kHeads * kDim,
                                        found.begin() + (t + 1) * kHeads * kDim);
      if (alike) {
        EXPECT_TRUE(same_bits(of_token, want)) << "token " << t << ", entries of " << c.every;
        continue;
      }
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(of_token[i], want[i], 0.02) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CompressedAttention, ::testing::ValuesIn(usable_isas()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ktx::kernels
