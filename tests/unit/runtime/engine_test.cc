#include "lib/runtime/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "lib/formats/layout.h"
#include "lib/runtime/engine/plan_runner.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Engine> open(const TinyPlan& plan, const EngineOptions& options) {
  auto engine = Engine::open(plan.path(), options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? engine.take() : nullptr;
}

std::vector<int32_t> random_ids(int count, uint64_t seed = 3) {
  Random random(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(random.next() % kTinyVocab));
  return ids;
}

// Logits of every token, computed `chunk` tokens at a time.
std::vector<float> all_logits(Engine& engine, std::span<const int32_t> ids, size_t chunk) {
  std::vector<float> out;
  Sequence sequence = engine.new_sequence();
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const BatchItem item{&sequence, ids.subspan(at, std::min(chunk, ids.size() - at)), Want::All};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    if (!done.ok() || *done != Forward::Done) return {};
    for (int64_t row = 0; row < engine.logits_rows(); ++row) {
      const auto logits = engine.logits(row);
      out.insert(out.end(), logits.begin(), logits.end());
    }
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class EngineBits : public ::testing::TestWithParam<std::tuple<DType, Precision>> {};

TEST_P(EngineBits, DependNeitherOnThreadsNorOnChunks) {
  const auto [dtype, precision] = GetParam();
  const TinyPlan plan(dtype);
  const std::vector<int32_t> ids = random_ids(75);
  std::vector<float> expected;
  for (const Isa isa : usable_isas()) {
    expected.clear();
    for (int threads = 1; threads <= 4; ++threads) {
      EngineOptions options;
      options.threads = threads;
      options.precision = precision;
      options.all_logits = true;
      options.isa = isa;
      const auto engine = open(plan, options);
      ASSERT_TRUE(engine);
      for (size_t chunk : {1, 7, 64, 75}) {
        const std::vector<float> logits = all_logits(*engine, ids, chunk);
        if (expected.empty()) expected = logits;
        EXPECT_TRUE(same_bits(logits, expected))
            << name(isa) << ", " << threads << " threads, chunks of " << chunk;
      }
    }
    for (float logit : expected) ASSERT_TRUE(std::isfinite(logit));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineBits,
                         ::testing::Combine(::testing::Values(DType::F32, DType::Q8_0, DType::Q4_0),
                                            ::testing::Values(Precision::Exact, Precision::Fast)));

TEST(Engine, GivesTheSameBitsAmongOthers) {
  const TinyPlan plan;
  EngineOptions options;
  options.threads = 2;
  options.max_batch = 3;
  const auto engine = open(plan, options);
  ASSERT_TRUE(engine);
  const std::vector<int32_t> texts[] = {random_ids(40, 1), random_ids(70, 2), random_ids(9, 3)};
  std::vector<float> alone[3];
  for (int i = 0; i < 3; ++i) {
    Sequence sequence = engine->new_sequence();
    const BatchItem item{&sequence, texts[i], Want::Last};
    ASSERT_EQ(engine->forward({&item, 1}).take(), Forward::Done);
    alone[i].assign(engine->logits(0).begin(), engine->logits(0).end());
  }
  // Together, in uneven parts, blocks of the cache mixed.
  std::vector<Sequence> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(engine->new_sequence());
  std::vector<float> last[3];
  size_t at[3] = {0, 0, 0};
  for (int round = 0; at[0] + at[1] + at[2] < 119; ++round) {
    std::vector<BatchItem> items;
    std::vector<int> who;
    for (int i = 0; i < 3; ++i) {
      const size_t count = std::min<size_t>(1 + (round * 5 + i * 3) % 17, texts[i].size() - at[i]);
      if (count == 0) continue;
      items.push_back({&sequences[i], std::span(texts[i]).subspan(at[i], count), Want::Last});
      who.push_back(i);
      at[i] += count;
    }
    ASSERT_EQ(engine->forward(items).take(), Forward::Done);
    for (size_t row = 0; row < who.size(); ++row) {
      last[who[row]].assign(engine->logits(row).begin(), engine->logits(row).end());
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(last[i], alone[i])) << "text " << i;
}

TEST(Engine, ExactIsCloseToFast) {
  const TinyPlan plan;
  std::vector<float> logits[2];
  for (Precision precision : {Precision::Exact, Precision::Fast}) {
    EngineOptions options;
    options.precision = precision;
    options.all_logits = true;
    const auto engine = open(plan, options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->kv_type(),
              precision == Precision::Exact ? plan::KvType::F32 : plan::KvType::F16);
    logits[static_cast<int>(precision)] = all_logits(*engine, random_ids(50), 50);
  }
  double worst = 0, largest = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    worst = std::max<double>(worst, std::abs(logits[0][i] - logits[1][i]));
    largest = std::max<double>(largest, std::abs(logits[0][i]));
  }
  EXPECT_GT(worst, 0) << "the int8 activations were not used";
  EXPECT_LT(worst, 0.2 * largest);
}

TEST(Engine, TakesEveryKvType) {
  const TinyPlan plan;
  for (plan::KvType type : {plan::KvType::F32, plan::KvType::F16, plan::KvType::Q8_0}) {
    EngineOptions options;
    options.kv_type = type;
    options.all_logits = true;
    const auto engine = open(plan, options);
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->kv_type(), type);
    const auto whole = all_logits(*engine, random_ids(100), 100);
    EXPECT_TRUE(same_bits(whole, all_logits(*engine, random_ids(100), 13)));
  }
}

TEST(Engine, SaysWhenTheContextIsFull) {
  const TinyPlan plan;
  EngineOptions options;
  options.ctx = 100;
  const auto engine = open(plan, options);
  ASSERT_TRUE(engine);
  Sequence sequence = engine->new_sequence();
  const std::vector<int32_t> ids = random_ids(100);
  const BatchItem most{&sequence, std::span(ids).first(99), Want::Last};
  EXPECT_EQ(engine->forward({&most, 1}).take(), Forward::Done);
  const BatchItem two{&sequence, std::span(ids).first(2), Want::Last};
  EXPECT_EQ(engine->forward({&two, 1}).take(), Forward::ContextFull);
  EXPECT_EQ(sequence.length(), 99);
  const BatchItem one{&sequence, std::span(ids).first(1), Want::Last};
  EXPECT_EQ(engine->forward({&one, 1}).take(), Forward::Done);
  EXPECT_EQ(engine->forward({&one, 1}).take(), Forward::ContextFull);
}

TEST(Engine, SaysWhenTheCacheIsFull) {
  const TinyPlan plan;
  EngineOptions options;
  options.max_batch = 2;
  const int64_t block = open(plan, options)->memory().kv_token.whole * 64;
  options.kv_budget_bytes = 3 * block + 5;
  const auto engine = open(plan, options);
  ASSERT_TRUE(engine);
  EXPECT_FALSE(engine->notes().empty());
  const std::vector<int32_t> ids = random_ids(128);
  Sequence a = engine->new_sequence();
  const BatchItem item{&a, ids, Want::Last};
  EXPECT_EQ(engine->forward({&item, 1}).take(), Forward::Done);
  Sequence b = engine->new_sequence();
  const BatchItem second{&b, ids, Want::Last};
  EXPECT_EQ(engine->forward({&second, 1}).take(), Forward::CacheFull);
  EXPECT_EQ(b.length(), 0);
  a.truncate(64);
  EXPECT_EQ(engine->forward({&second, 1}).take(), Forward::Done);

  options.kv_budget_bytes = block - 1;
  const auto none = Engine::open(plan.path(), options);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("less than a block of 64 tokens"));
}

TEST(Engine, RefusesWhatDoesNotFitTheMemory) {
  const TinyPlan plan;
  EngineOptions options;
  options.ctx = 1 << 24;
  options.max_batch = 4096;
  const auto engine = Engine::open(plan.path(), options);
  ASSERT_FALSE(engine.ok());
  const std::string& message = engine.error().message;
  EXPECT_THAT(message, HasSubstr("does not fit the memory"));
  EXPECT_THAT(message, HasSubstr("KV cache"));
  EXPECT_THAT(message, HasSubstr("--ctx"));
  EXPECT_THAT(message, HasSubstr("--kv-budget"));
}

TEST(Engine, RefusesNumbersOutOfRange) {
  const TinyPlan plan;
  const auto message = [&](auto change) {
    EngineOptions options;
    change(options);
    const auto engine = Engine::open(plan.path(), options);
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_THAT(message([](auto& o) { o.ctx = 0; }), HasSubstr("(--ctx) is 0"));
  EXPECT_THAT(message([](auto& o) { o.max_batch = -1; }), HasSubstr("(--max-batch) is -1"));
  EXPECT_THAT(message([](auto& o) { o.chunk_tokens = 0; }), HasSubstr("(--chunk) is 0"));
  EXPECT_THAT(message([](auto& o) { o.chunk_tokens = 32769; }), HasSubstr("expected 1 to 32768"));
  EXPECT_THAT(message([](auto& o) { o.kv_budget_bytes = -4; }), HasSubstr("KV budget is -4"));
}

TEST(Engine, RefusesTokensOutsideOfTheVocabulary) {
  const TinyPlan plan;
  const auto engine = open(plan, {});
  ASSERT_TRUE(engine);
  Sequence sequence = engine->new_sequence();
  for (int32_t id : {-1, static_cast<int32_t>(kTinyVocab), 1 << 30}) {
    const BatchItem item{&sequence, {&id, 1}, Want::Last};
    const auto done = engine->forward({&item, 1});
    ASSERT_FALSE(done.ok());
    EXPECT_THAT(done.error().message, HasSubstr("is not in the vocabulary of 96"));
  }
}

TEST(Engine, ReportsAFileThatShrinks) {
  const TinyPlan plan;
  const auto engine = open(plan, {});
  ASSERT_TRUE(engine);
  std::filesystem::resize_file(plan.path(), 4096);
  Sequence sequence = engine->new_sequence();
  const int32_t id = 1;
  const BatchItem item{&sequence, {&id, 1}, Want::Last};
  const auto done = engine->forward({&item, 1});
  ASSERT_FALSE(done.ok());
  EXPECT_THAT(done.error().message, HasSubstr("became smaller"));
  EXPECT_EQ(done.error().message.rfind(plan.path()), 0u) << "named once";
  EXPECT_EQ(sequence.length(), 0);
}

TEST(Engine, HugePagesAndPinnedThreadsChangeNoBit) {
  const TinyPlan plan;
  EngineOptions options;
  options.all_logits = true;
  options.threads = 2;
  const std::vector<int32_t> ids = random_ids(40);
  const std::vector<float> expected = all_logits(*open(plan, options), ids, 40);
  options.pin = Pin::On;
  EXPECT_TRUE(same_bits(all_logits(*open(plan, options), ids, 40), expected));
  options.huge_pages = true;
  const auto engine = Engine::open(plan.path(), options);
  if (!engine.ok()) GTEST_SKIP() << engine.error().message;
  EXPECT_TRUE(same_bits(all_logits(**engine, ids, 40), expected));
  // The copy outlives what happens to the file.
  std::filesystem::resize_file(plan.path(), 4096);
  EXPECT_TRUE(same_bits(all_logits(**engine, ids, 7), expected));
}

TEST(Engine, NamesTheFileItCannotOpen) {
  const auto engine = Engine::open("/nonexistent/m.ktxplan", {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("/nonexistent/m.ktxplan"));
}

TEST(Engine, MeasuresStepsAndBytes) {
  const TinyPlan plan;
  const auto engine = open(plan, {});
  ASSERT_TRUE(engine);
  EXPECT_TRUE(engine->runner().step_times().empty());
  engine->runner().enable_times(true);
  Sequence sequence = engine->new_sequence();
  const std::vector<int32_t> ids = random_ids(3);
  const BatchItem item{&sequence, ids, Want::Last};
  ASSERT_EQ(engine->forward({&item, 1}).take(), Forward::Done);
  const auto times = engine->runner().step_times();
  ASSERT_FALSE(times.empty());
  EXPECT_EQ(times[0].op, "embed");
  EXPECT_EQ(times[0].module, "model.0");
  EXPECT_EQ(times[0].runs, 1);
  for (const StepTime& time : times) {
    // Threads work at a step no longer than they are there.
    EXPECT_GT(time.busy_seconds, 0);
    EXPECT_LE(time.busy_seconds, time.seconds * engine->threads() * 1.001);
  }
  EXPECT_EQ(times[0].tokens, 3);
  EXPECT_EQ(engine->stats().tokens, 3);
  EXPECT_GT(engine->stats().weight_bytes, 0);
  EXPECT_LE(engine->stats().weight_bytes, static_cast<int64_t>(engine->memory().weight_bytes));
}

// What the head reads: its product with the head's weights is the logits.
TEST(Engine, HiddenRowsMakeTheLogits) {
  const TinyPlan plan;
  EngineOptions options;
  options.precision = Precision::Exact;
  options.all_logits = true;
  const auto engine = Engine::open(plan.path(), options).take();
  Sequence sequence = engine->new_sequence();
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  const BatchItem item{&sequence, ids, Want::All};
  ASSERT_EQ(engine->forward({&item, 1}).take(), Forward::Done);
  const plan::PlanView& view = engine->plan();
  const uint32_t blob = view.weights(view.steps.back())[0];
  ASSERT_EQ(view.blobs[blob].layout, static_cast<uint16_t>(Layout::Rows));
  const auto* weights = reinterpret_cast<const float*>(view.blob_bytes(blob).data());
  std::vector<float> hidden(static_cast<size_t>(engine->hidden_size()));
  for (int64_t row = 0; row < 5; ++row) {
    ASSERT_TRUE(engine->hidden(row, hidden).ok());
    for (size_t token = 0; token < engine->logits(row).size(); ++token) {
      double sum = 0;
      for (size_t i = 0; i < hidden.size(); ++i)
        sum += weights[token * hidden.size() + i] * hidden[i];
      ASSERT_NEAR(engine->logits(row)[token], sum, 1e-4) << row << " " << token;
    }
  }
}

}  // namespace
}  // namespace ktx::runtime
