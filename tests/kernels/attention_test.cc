// Attention and the KV store against a plain softmax in double, for every element
// type, head arrangement and instruction set; then the numerics contract.
#include "kernels/attention/attention.h"

#include <fmt/format.h>

#include <optional>

#include "kernels/attention/attention_bf16.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

struct Shape {
  const char* name;
  int32_t heads, kv_heads, key_dim, value_dim;
  bool value_in_key;
  int32_t window = 0;
  int32_t chunked = 0;
  float softcap = 0;
  bool sinks = false;
  float alibi = 0;

  AttentionAttrs attrs() const {
    return {0,     heads,  kv_heads, key_dim, value_dim, value_in_key,
            0.21f, window, chunked,  softcap, alibi};
  }
};

constexpr Shape kShapes[] = {
    {"one_head", 1, 1, 64, 64, false},
    {"gqa", 8, 2, 64, 64, false},
    {"odd_dims", 3, 3, 40, 24, false},
    {"tiny_dims", 2, 1, 3, 5, false},
    {"mla_split", 4, 4, 96, 64, false},
    {"mla_absorbed", 16, 1, 72, 64, true},
    {"many_heads", 160, 1, 32, 16, true},
    {"window", 8, 2, 64, 64, false, 50},
    {"window_of_one", 2, 1, 32, 32, false, 1},
    {"window_over_spans", 4, 2, 64, 48, false, 300},
    {"chunks", 4, 1, 40, 64, false, 60, 1},
    {"softcap", 4, 2, 64, 64, false, 0, 0, 3},
    {"sinks", 6, 3, 64, 64, false, 0, 0, 0, true},
    {"window_softcap_sinks", 12, 1, 40, 24, false, 21, 0, 2, true},
    {"alibi", 4, 4, 64, 64, false, 0, 0, 0, false, 8},
    {"alibi_of_odd_heads", 13, 1, 40, 24, false, 0, 0, 3, true, 4},
    {"alibi_window", 6, 2, 32, 32, false, 270, 0, 0, false, 8},
};
constexpr int kShapeCount = static_cast<int>(std::size(kShapes));

// A sink for each head, below and above its scores.
std::vector<float> sinks_of(const Shape& s) {
  std::vector<float> sinks;
  for (int32_t h = 0; s.sinks && h < s.heads; ++h) sinks.push_back(static_cast<float>(h * 4 - 5));
  return sinks;
}

constexpr KvType kTypes[] = {KvType::F32, KvType::F16, KvType::Q8_0};
constexpr const char* kTypeNames[] = {"F32", "F16", "Q8_0"};

// Two sequences whose blocks are interleaved in memory, filled by kv_store.
struct Cache {
  KvLayout layout;
  int64_t slot_offset = 128;
  int64_t block_bytes;
  AlignedBytes memory;
  std::vector<std::byte*> tables[2];
  std::vector<std::byte* const*> table_list;

  Cache(const Shape& s, KvType type, int64_t block_tokens, int64_t tokens)
      : layout{type, block_tokens, s.kv_heads, s.key_dim, s.value_in_key ? 0 : s.value_dim},
        block_bytes(slot_offset + layout.slot_bytes()),
        memory(2 * blocks(tokens) * block_bytes) {
    for (int64_t b = 0; b < 2 * blocks(tokens); ++b) {
      tables[b % 2].push_back(memory.data() + b * block_bytes);
    }
    table_list = {tables[0].data(), tables[1].data()};
  }
  int64_t blocks(int64_t tokens) const {
    return (tokens + layout.block_tokens - 1) / layout.block_tokens;
  }
};

// Tokens of both sequences at every position, and a q for each.
struct Steps {
  int64_t count;
  std::vector<int32_t> sequence, position;
  std::vector<float> key, value, q;
  std::vector<float> sinks;
};

Steps make_steps(Random& random, const Shape& s, int64_t tokens_each) {
  Steps steps;
  steps.count = 2 * tokens_each;
  for (int64_t i = 0; i < steps.count; ++i) {
    steps.sequence.push_back(static_cast<int32_t>(i / tokens_each));
    steps.position.push_back(static_cast<int32_t>(i % tokens_each));
  }
  steps.key = random.normals(steps.count * s.kv_heads * s.key_dim);
  steps.value = random.normals(steps.count * s.kv_heads * s.value_dim);
  steps.q = random.normals(steps.count * s.heads * s.key_dim, 0.7f);
  steps.sinks = sinks_of(s);
  return steps;
}

void store(const Shape& s, const Steps& steps, Cache& cache, Isa isa) {
  KvStoreArgs a;
  a.key = steps.key.data();
  a.key_stride = s.kv_heads * s.key_dim;
  a.value = s.value_in_key ? nullptr : steps.value.data();
  a.value_stride = s.kv_heads * s.value_dim;
  a.kv = {cache.layout, cache.slot_offset, cache.table_list.data(), steps.sequence.data(),
          steps.position.data()};
  a.token_end = steps.count;
  (*find_kv_store("kv_store", isa))(a);
}

AttentionArgs attention_args(const Shape& s, const Steps& steps, const Cache& cache,
                             std::vector<float>& y, AlignedBytes& scratch) {
  AttentionArgs a;
  a.q = steps.q.data();
  a.q_stride = s.heads * s.key_dim;
  a.y = y.data();
  a.y_stride = s.heads * s.value_dim;
  a.attrs = s.attrs();
  if (s.sinks) a.sinks = steps.sinks.data();
  a.kv = {cache.layout, cache.slot_offset, cache.table_list.data(), steps.sequence.data(),
          steps.position.data()};
  a.token_end = steps.count;
  a.head_end = s.heads;
  a.scratch = scratch.data();
  return a;
}

int64_t scratch_bytes(const Shape& s) {
  return attention_scratch_bytes(s.attrs());
}

// What the cache holds for a row: read back by hand.
std::vector<double> cached(const Cache& cache, int32_t sequence, int64_t offset, int64_t position,
                           int64_t dim) {
  const std::byte* row =
      cache.tables[sequence][static_cast<size_t>(position / cache.layout.block_tokens)] +
      cache.slot_offset + offset;
  std::vector<double> out;
  for (int64_t i = 0; i < dim; ++i) {
    if (cache.layout.type == KvType::F32) {
      float value;
      std::memcpy(&value, row + 4 * i, 4);
      out.push_back(value);
      continue;
    }
    uint16_t half;
    const bool q8 = cache.layout.type == KvType::Q8_0;
    std::memcpy(&half, q8 ? row + i / 32 * 34 : row + 2 * i, 2);
    double value = half_to_float(half);
    if (q8) value *= static_cast<int8_t>(row[i / 32 * 34 + 2 + i % 32]);
    out.push_back(value);
  }
  return out;
}

// To the nearest BF16 number, even ones first (of numbers that are not subnormal).
double rounded_bf16(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000);
}

struct Expected {
  std::vector<double> y, magnitude;  // and the weighted values' mean magnitude
};

// What a head's scores lose a position, by the heads of one power of two after the other.
double slope_of(const Shape& s, int64_t head) {
  int64_t whole = 1;
  while (2 * whole <= s.heads) whole *= 2;
  const double ratio = std::pow(2.0, -s.alibi / static_cast<double>(whole));
  if (head < whole) return std::pow(ratio, static_cast<double>(head + 1));
  return std::pow(std::sqrt(ratio), static_cast<double>(2 * (head - whole) + 1));
}

// Operands rounded as the variant rounds them, but for the weights.
Expected naive(const Shape& s, const Steps& steps, const Cache& cache, int64_t t, int64_t head,
               bool bf16, std::optional<int64_t> text_end = {}) {
  const int64_t g = head / (s.heads / s.kv_heads);
  const int32_t sequence = steps.sequence[static_cast<size_t>(t)];
  const float* q = steps.q.data() + (t * s.heads + head) * s.key_dim;
  const auto operand = [&](double value) { return bf16 ? rounded_bf16(value) : value; };
  const size_t width = static_cast<size_t>(s.value_dim);
  Expected out{std::vector<double>(width), std::vector<double>(width)};
  std::vector<double> scores;
  double largest = -INFINITY, sum = 0;
  const int32_t position = steps.position[static_cast<size_t>(t)];
  const int64_t first = first_position(s.attrs(), position);
  const int64_t last = text_end ? last_position(s.attrs(), position, *text_end) : position;
  const int64_t count = last + 1;
  for (int64_t p = first; p < count; ++p) {
    const auto key = cached(
        cache, sequence, cache.layout.key_offset(g, p % cache.layout.block_tokens), p, s.key_dim);
    double score = 0;
    for (size_t d = 0; d < key.size(); ++d) score += operand(key[d]) * operand(q[d]);
    score *= 0.21f;
    scores.push_back(s.softcap > 0 ? s.softcap * std::tanh(score / s.softcap) : score);
    if (s.alibi > 0) {
      scores.back() -= slope_of(s, head) * static_cast<double>(std::abs(position - p));
    }
    largest = std::max(largest, scores.back());
  }
  if (s.sinks) {
    const double sink = steps.sinks[static_cast<size_t>(head)];
    largest = std::max(largest, sink);
    sum = std::exp(sink - largest);
  }
  for (int64_t p = first; p < count; ++p) {
    const int64_t in_block = p % cache.layout.block_tokens;
    const auto value = cached(cache, sequence,
                              s.value_in_key ? cache.layout.key_offset(g, in_block)
                                             : cache.layout.value_offset(g, in_block),
                              p, s.value_dim);
    const double weight = std::exp(scores[static_cast<size_t>(p - first)] - largest);
    sum += weight;
    for (size_t d = 0; d < width; ++d) {
      out.y[d] += weight * operand(value[d]);
      out.magnitude[d] += weight * std::abs(value[d]);
    }
  }
  for (double& v : out.y) v /= sum;
  for (double& v : out.magnitude) v /= sum;
  return out;
}

using Case = std::tuple<Isa, int, int>;  // instruction set, shape, element type
class AttentionTest : public ::testing::TestWithParam<Case> {
 protected:
  Isa isa = std::get<0>(GetParam());
  const Shape& shape = kShapes[std::get<1>(GetParam())];
  KvType type = kTypes[std::get<2>(GetParam())];
  bool bf16 = isa != Isa::Scalar && type != KvType::F32;

  // Weights rounded to BF16 move by 2^-8 of themselves at most.
  void expect_near(const float* y, const Expected& expected, const std::string& where) const {
    double moved = 0;
    for (size_t d = 0; d < expected.y.size(); ++d) {
      const double most = 3e-6 + (bf16 ? expected.magnitude[d] / 256 : 0);
      ASSERT_NEAR(y[d], expected.y[d], most) << where;
      moved += std::abs(y[d] - expected.y[d]) / most;
    }
    // They do not all move one way.
    ASSERT_LE(moved, 0.6 * static_cast<double>(expected.y.size())) << where;
  }
};

TEST_P(AttentionTest, AgreesWithPlainSoftmax) {
  Random random(11);
  const int64_t tokens = shape.heads > 100 ? 70 : 133;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, 24, tokens);  // blocks that spans straddle
  store(shape, steps, cache, isa);
  std::vector<float> y(static_cast<size_t>(steps.count * shape.heads * shape.value_dim));
  AlignedBytes scratch(scratch_bytes(shape));
  (*find_attention("attention", isa))(attention_args(shape, steps, cache, y, scratch));
  const bool many = shape.heads > 100;
  for (int64_t t = 0; t < steps.count; t += many ? 13 : 7) {
    for (int64_t h = 0; h < shape.heads; h += many ? 11 : 1) {
      expect_near(y.data() + (t * shape.heads + h) * shape.value_dim,
                  naive(shape, steps, cache, t, h, bf16), fmt::format("token {} head {}", t, h));
    }
  }
}

// A whole text: windows reach as far forward as back, and no further than its end. At the beginning
// of one, where spans meet, and where the next one begins.
TEST_P(AttentionTest, OfAWholeTextAgreesWithPlainSoftmaxOverBothSides) {
  if (shape.chunked != 0) GTEST_SKIP() << "a whole text is not seen in chunks";
  Random random(21);
  const int64_t tokens = kAttentionSpan + 45;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, 24, tokens);
  store(shape, steps, cache, isa);
  const std::vector<int32_t> ends(static_cast<size_t>(steps.count),
                                  static_cast<int32_t>(tokens - 1));
  std::vector<float> y(static_cast<size_t>(steps.count * shape.heads * shape.value_dim)), alone(y);
  AlignedBytes scratch(scratch_bytes(shape));
  const AttentionFn run = *find_attention("attention", isa);
  const int64_t half = shape.heads > 100 ? 2 : 7;
  for (const int64_t middle : {half, kAttentionSpan, tokens}) {
    AttentionArgs a = attention_args(shape, steps, cache, y, scratch);
    a.text_end = ends.data();
    a.token_begin = middle - half, a.token_end = middle + half;
    run(a);
    a.y = alone.data();
    for (int64_t t = middle - half; t < middle + half; t += 3) {
      a.token_begin = t, a.token_end = t + 1;
      run(a);
      const auto row = t * shape.heads * shape.value_dim;
      expect_near(y.data() + row, naive(shape, steps, cache, t, 0, bf16, tokens - 1),
                  fmt::format("token {}", t));
      const auto width = static_cast<size_t>(shape.heads * shape.value_dim);
      ASSERT_TRUE(same_bits(std::vector(y.data() + row, y.data() + row + width),
                            std::vector(alone.data() + row, alone.data() + row + width)));
    }
  }
}

TEST_P(AttentionTest, GivesTheSameBitsForAnyRangeAndBlockSize) {
  Random random(12);
  const int64_t tokens = 67;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, 16, tokens), big(shape, type, 1024, tokens);
  store(shape, steps, cache, isa);
  store(shape, steps, big, isa);
  AlignedBytes scratch(scratch_bytes(shape));
  const AttentionFn run = *find_attention("attention", isa);
  std::vector<float> whole(static_cast<size_t>(steps.count * shape.heads * shape.value_dim)),
      parts(whole), one_block(whole);
  run(attention_args(shape, steps, cache, whole, scratch));
  run(attention_args(shape, steps, big, one_block, scratch));
  EXPECT_TRUE(same_bits(whole, one_block));
  for (int64_t batch : {1, 7, 64}) {
    AttentionArgs a = attention_args(shape, steps, cache, parts, scratch);
    for (int64_t t = 0; t < steps.count; t += batch) {
      a.token_begin = t;
      a.token_end = std::min(t + batch, steps.count);
      for (int64_t h = 0; h < shape.heads; h = a.head_end) {
        a.head_begin = h;
        a.head_end = std::min<int64_t>(shape.heads, h + 1 + random.below(shape.heads));
        run(a);
      }
    }
    ASSERT_TRUE(same_bits(whole, parts)) << "batches of " << batch;
  }
}

// One token of each sequence behind a past of several spans: cut into its spans, whole,
// and among the tokens before it.
TEST_P(AttentionTest, GivesTheSameBitsInSpansAndAgreesWithPlainSoftmax) {
  Random random(16);
  const int64_t tokens = 2 * kAttentionSpan + 70;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, 64, tokens);
  store(shape, steps, cache, isa);
  AlignedBytes scratch(scratch_bytes(shape));
  const AttentionFn run = *find_attention("attention", isa);
  std::vector<float> whole(static_cast<size_t>(steps.count * shape.heads * shape.value_dim)),
      spans(whole), among(whole);
  AttentionArgs a = attention_args(shape, steps, cache, spans, scratch);
  std::vector<float> partials(
      static_cast<size_t>(steps.count * shape.heads * 3 * attention_partial_floats(a.attrs)));
  a.partials = partials.data();
  a.spans = 3;
  AttentionArgs alone = attention_args(shape, steps, cache, whole, scratch);
  AttentionArgs in_run = attention_args(shape, steps, cache, among, scratch);
  for (int64_t t : {kAttentionSpan - 1, kAttentionSpan, 2 * kAttentionSpan + 3, tokens - 1}) {
    a.token_begin = alone.token_begin = t;
    a.token_end = alone.token_end = in_run.token_end = t + 1;
    in_run.token_begin = t - 9;
    a.part = AttentionPart::OneSpan;
    a.first_span = first_position(a.attrs, t) / kAttentionSpan;
    for (a.span = t / kAttentionSpan; a.span >= a.first_span; --a.span) run(a);
    a.part = AttentionPart::Merge;
    run(a);
    run(alone);
    run(in_run);
    const int64_t width = shape.heads * shape.value_dim;
    const auto row = [&](const std::vector<float>& y) {
      return std::vector<float>(y.begin() + t * width, y.begin() + (t + 1) * width);
    };
    ASSERT_TRUE(same_bits(row(whole), row(spans))) << "token " << t;
    ASSERT_TRUE(same_bits(row(whole), row(among))) << "token " << t;
    expect_near(row(whole).data() + (shape.heads - 1) * shape.value_dim,
                naive(shape, steps, cache, t, shape.heads - 1, bf16), fmt::format("token {}", t));
  }
}

// Tokens that share the work on a span see different parts of it: infinity and NaN in
// what only the later ones may see leave the bits of the earlier ones alone.
TEST_P(AttentionTest, ATokenSeesNothingOfTheTokensBehindIt) {
  Random random(17);
  const int64_t tokens = 70;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, 32, tokens), broken(shape, type, 32, tokens);
  AlignedBytes scratch(scratch_bytes(shape));
  std::vector<float> y(static_cast<size_t>(steps.count * shape.heads * shape.value_dim)), other(y);
  store(shape, steps, cache, isa);
  (*find_attention("attention", isa))(attention_args(shape, steps, cache, y, scratch));
  for (int64_t first : {2, 13, 63, 64, 69}) {
    const auto spoil = [&](std::vector<float>& rows, int64_t width) {
      for (int64_t i = first * width; i < tokens * width; ++i) {
        rows[static_cast<size_t>(i)] = i % 3 == 0 ? NAN : -INFINITY;
      }
    };
    Steps later = steps;
    spoil(later.key, shape.kv_heads * shape.key_dim);
    if (!shape.value_in_key) spoil(later.value, shape.kv_heads * shape.value_dim);
    store(shape, later, broken, isa);
    (*find_attention("attention", isa))(attention_args(shape, later, broken, other, scratch));
    const auto seen = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin(), all.begin() + first * shape.heads * shape.value_dim);
    };
    ASSERT_TRUE(same_bits(seen(y), seen(other))) << "tokens from " << first << " on are broken";
  }
}

// Blocks that every token of a run has left behind are not read: they may be another's by then.
TEST_P(AttentionTest, ATokenReadsNoBlockBeforeItsWindow) {
  if (shape.window == 0) GTEST_SKIP() << "sees all positions";
  Random random(19);
  const int64_t tokens = 2 * kAttentionSpan + 40, block = 16;
  const Steps steps = make_steps(random, shape, tokens);
  Cache cache(shape, type, block, tokens);
  store(shape, steps, cache, isa);
  AlignedBytes scratch(scratch_bytes(shape)), damaged(scratch_bytes(shape));
  std::memset(damaged.data(), 0xFF, static_cast<size_t>(damaged.size()));  // NaN
  std::vector<float> y(static_cast<size_t>(steps.count * shape.heads * shape.value_dim)), other(y);
  AttentionArgs a = attention_args(shape, steps, cache, y, scratch);
  AttentionArgs b = attention_args(shape, steps, cache, other, damaged);
  a.token_begin = b.token_begin = tokens - 21;
  a.token_end = b.token_end = tokens;
  (*find_attention("attention", isa))(a);
  const int64_t first = first_position(a.attrs, tokens - 21);
  for (int64_t i = 0; i < first / block; ++i) cache.tables[0][static_cast<size_t>(i)] = nullptr;
  (*find_attention("attention", isa))(b);
  EXPECT_TRUE(same_bits(y, other));
}

INSTANTIATE_TEST_SUITE_P(Table, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(usable_isas()),
                                            ::testing::Range(0, kShapeCount),
                                            ::testing::Range(0, 3)),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  kShapes[std::get<1>(info.param)].name + "_" +
                                  kTypeNames[std::get<2>(info.param)];
                         });

// Subnormal, tiny and large numbers among them, which vdpbf16ps and floats must treat alike.
TEST(Attention, VectorVariantsGiveTheSameBits) {
  std::vector<std::pair<std::string, AttentionFn>> variants;
  for (Isa isa : usable_isas()) {
    if (isa == Isa::Scalar) continue;
    variants.emplace_back(name(isa), *find_attention("attention", isa));
  }
  if (variants.size() < 2) GTEST_SKIP() << "this machine has one vector variant at most";
#if defined(__x86_64__)
  if (detect_isa() >= Isa::Avx512) variants.emplace_back("bf16 floats", attention_bf16_floats);
  if (has_bf16_dots()) variants.emplace_back("bf16 dots", attention_bf16_dots);
  if (has_bf16_dots()) variants.emplace_back("bf16 rounded", attention_bf16_rounded);
#endif
  for (const Shape& shape : kShapes) {
    Random random(18);
    const int64_t tokens = shape.heads > 100 ? 40 : kAttentionSpan + 75;
    Steps steps = make_steps(random, shape, tokens);
    for (std::vector<float>* all : {&steps.key, &steps.value, &steps.q}) {
      for (size_t i = 0; i < all->size(); i += 7) (*all)[i] *= i % 3 == 0 ? 1e-39f : 1e-7f;
      for (size_t i = 3; i < all->size(); i += 97) (*all)[i] *= 50;
    }
    for (KvType type : kTypes) {
      Cache cache(shape, type, 64, tokens);
      store(shape, steps, cache, Isa::Scalar);
      AlignedBytes scratch(scratch_bytes(shape));
      std::vector<float> first(static_cast<size_t>(steps.count * shape.heads * shape.value_dim));
      std::vector<float> y(first);
      variants.front().second(attention_args(shape, steps, cache, first, scratch));
      for (const auto& [variant, run] : variants) {
        if (variant.starts_with("bf16") && type == KvType::F32) continue;
        run(attention_args(shape, steps, cache, y, scratch));
        ASSERT_TRUE(same_bits(first, y)) << variant << " " << shape.name;
      }
    }
  }
}

TEST(Attention, SurvivesNaNAndInfinityAndNoTokens) {
  for (Isa isa : usable_isas()) {
    Random random(13);
    Steps steps = make_steps(random, kShapes[1], 5);
    steps.key[7] = NAN;
    steps.key[300] = INFINITY;
    steps.q[3] = -INFINITY;
    for (KvType type : kTypes) {
      Cache cache(kShapes[1], type, 4, 5);
      store(kShapes[1], steps, cache, isa);
      std::vector<float> y(steps.q.size(), 5);
      AlignedBytes scratch(scratch_bytes(kShapes[1]));
      AttentionArgs a = attention_args(kShapes[1], steps, cache, y, scratch);
      a.token_end = 0;
      (*find_attention("attention", isa))(a);
      EXPECT_EQ(y[0], 5);
      a.token_end = steps.count;
      (*find_attention("attention", isa))(a);
    }
  }
}

TEST(KvStore, EveryVariantWritesTheSameBytesAndNothingElse) {
  for (const Shape& shape : kShapes) {
    for (KvType type : kTypes) {
      Random random(14);
      const Steps steps = make_steps(random, shape, 9);
      Cache scalar(shape, type, 4, 9);
      store(shape, steps, scalar, Isa::Scalar);
      for (Isa isa : usable_isas()) {
        Cache other(shape, type, 4, 9);
        store(shape, steps, other, isa);
        EXPECT_EQ(std::memcmp(scalar.memory.data(), other.memory.data(),
                              static_cast<size_t>(scalar.memory.size())),
                  0)
            << shape.name << " " << name(isa);
      }
      for (int64_t i = 0; i < scalar.slot_offset; ++i) {
        ASSERT_EQ(scalar.memory.data()[i], std::byte{0xA5});
      }
    }
  }
}

TEST(KvStore, Q8RoundsToWithinHalfAStep) {
  const Shape& shape = kShapes[1];
  Random random(15);
  const Steps steps = make_steps(random, shape, 9);
  Cache cache(shape, KvType::Q8_0, 16, 9);
  store(shape, steps, cache, Isa::Scalar);
  for (int64_t p = 0; p < 9; ++p) {
    const auto row = cached(cache, 0, cache.layout.key_offset(1, p), p, 64);
    for (int64_t d = 0; d < 64; ++d) {
      const float x = steps.key[static_cast<size_t>(p * 128 + 64 + d)];
      ASSERT_NEAR(row[static_cast<size_t>(d)], x, 4.0 / 127 / 2 * 1.01);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
