#include "lib/runtime/quality/text_logits.h"

#include <gtest/gtest.h>

#include "lib/runtime/quality/layer_streams.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

std::vector<int32_t> some_ids(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 7 % kTinyVocab));
  return ids;
}

// Rows of all places from `first` on.
std::vector<std::vector<float>> rows(Engine& engine, std::span<const int32_t> ids, int64_t first) {
  std::vector<std::vector<float>> found(ids.size());
  TextLogits text(engine);
  const auto result = text.compute(ids, first, nullptr, [&](int64_t i, std::span<const float> row) {
    found[static_cast<size_t>(i)].assign(row.begin(), row.end());
  });
  EXPECT_TRUE(result.ok()) << result.error().message;
  return found;
}

TEST(TextLogits, AreTheSameForAnyRoomAndBeginning) {
  const TinyPlan plan(DType::Q8_0);
  const std::vector<int32_t> ids = some_ids(61);
  std::vector<std::vector<float>> expected;
  for (const int64_t room : {64, 7, 1}) {
    EngineOptions options;
    options.sequence_logits = room;
    options.max_batch = 1;
    options.ctx = 64;
    const auto engine = Engine::open(plan.path(), options);
    ASSERT_TRUE(engine) << engine.error().message;
    if (expected.empty()) expected = rows(**engine, ids, 0);
    const auto found = rows(**engine, ids, 40);
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(found[i].empty(), i < 40) << i;
      if (i < 40) continue;
      EXPECT_EQ(found[i], expected[i]) << i;
    }
  }
}

TEST(TextLogits, EndWhereTheContextIsFullAndWhenStopped) {
  const TinyPlan plan(DType::Q8_0);
  EngineOptions options;
  options.ctx = 64;
  const auto engine = Engine::open(plan.path(), options);
  ASSERT_TRUE(engine);
  const auto nothing = [](int64_t, std::span<const float>) {};
  EXPECT_EQ(*TextLogits(**engine).compute(some_ids(65), 0, nullptr, nothing), Forward::ContextFull);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(*TextLogits(**engine).compute(some_ids(20), 10, &stop, nothing), Forward::Stopped);
}

// Each F32 result on the CPU, as the step left it; and looking at them changes no bit.
TEST(StepResults, OfTheCpuAreGivenAndChangeNoBit) {
  const TinyPlan plan(DType::Q8_0);
  const std::vector<int32_t> ids = some_ids(9);
  EngineOptions options;
  options.ctx = 64;
  options.sequence_logits = 9;
  const auto silent = Engine::open(plan.path(), options);
  std::vector<float> logits;
  int64_t results = 0;
  options.on_result = [&](const StepResult& result) {
    ++results;
    if (result.value == "logits") logits.assign(result.rows.begin(), result.rows.end());
  };
  const auto watched = Engine::open(plan.path(), options);
  ASSERT_TRUE(watched);
  const auto expected = rows(**silent, ids, 0), found = rows(**watched, ids, 0);
  EXPECT_EQ(found, expected);
  ASSERT_EQ(logits.size(), found.size() * found[0].size());
  EXPECT_TRUE(std::equal(found.back().begin(), found.back().end(),
                         logits.end() - static_cast<ptrdiff_t>(found[0].size())));
  EXPECT_GT(results, 10);
}

TEST(LayerStreams, PartWhereTheirDifferenceGrowsMost) {
  LayerStreams a, b;
  const auto take = [](LayerStreams& streams, std::string_view value, int32_t layer, float x) {
    const std::vector<float> rows(4, x);
    streams.take({value, layer, rows, 2, 0, 2});
  };
  for (LayerStreams* streams : {&a, &b}) {
    take(*streams, "x", -1, 1);
    take(*streams, "L0.q", 0, 7);
    take(*streams, "x", 0, 1);
  }
  take(a, "x", 1, 2), take(b, "x", 1, 2.2f);
  take(a, "x@cuda:1", 2, 2), take(b, "x", 2, 2.21f);
  take(a, "x@cpu", -1, 5);  // only moved
  StreamDifferences differences;
  differences.add(a, b);
  const auto all = differences.all();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].layer, -1);
  EXPECT_EQ(all[0].relative, 0);
  EXPECT_EQ(all[1].relative, 0);
  EXPECT_NEAR(all[2].relative, 0.1, 1e-6);
  EXPECT_NEAR(all[3].relative, 0.105, 1e-6);
  ASSERT_NE(parting(all), nullptr);
  EXPECT_EQ(parting(all)->layer, 1);
  EXPECT_EQ(parting({{0, 0}, {1, 0}}), nullptr);
  // What was far apart before grows further by itself; what rounding makes is none.
  const std::vector<StreamDifference> grows = {{0, 0.05}, {1, 0.3}, {2, 0.5}};
  EXPECT_EQ(parting(grows)->layer, 1);
  const std::vector<StreamDifference> small = {{0, 1e-6}, {1, 1e-3}, {2, 1e-2}};
  EXPECT_EQ(parting(small)->layer, 2);
  EXPECT_EQ(parting(small, kExactNoise)->layer, 1);
}

}  // namespace
}  // namespace ktx::runtime
