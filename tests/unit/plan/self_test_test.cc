#include "lib/plan/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::TempDir;
using ::testing::HasSubstr;

SelfTest small_test() {
  SelfTest test;
  SelfTestPrompt& prompt = test.prompts.emplace_back();
  prompt.tokens = {1, 47};
  prompt.answers = {answer_of(std::vector<float>{1, 3, 2}), answer_of(std::vector<float>{0, -1})};
  const std::vector<float> x = {3, 4};
  prompt.streams = {{-1, 5, sketch_of(x)}};
  return test;
}

std::vector<std::byte> plan_with(const TempDir& dir, const std::string& self_test) {
  TinyPlan tiny = make_tiny_plan();
  tiny.contents.self_test = self_test;
  EXPECT_TRUE(write_plan(tiny, dir.path("p")).ok());
  return read_bytes(dir.path("p"));
}

TEST(SelfTestSection, GivesBackWhatWasStored) {
  const TempDir dir;
  plan_with(dir, to_json(small_test()));
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto test = read_self_test(plan->view());
  ASSERT_TRUE(test.ok()) << test.error().message;
  ASSERT_EQ(test->prompts.size(), 1u);
  const SelfTestPrompt& prompt = test->prompts[0];
  EXPECT_EQ(prompt.tokens, (std::vector<int32_t>{1, 47}));
  EXPECT_EQ(prompt.answers[0].ids, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_EQ(prompt.answers[0].logits, (std::vector<float>{3, 2, 1}));
  EXPECT_NEAR(prompt.answers[0].log_sum, 3.4076059, 1e-6);
  ASSERT_EQ(prompt.streams.size(), 1u);
  EXPECT_EQ(prompt.streams[0].layer, -1);
  EXPECT_EQ(prompt.streams[0].difference(std::vector<float>{3, 4}), 0);
  EXPECT_GT(prompt.streams[0].difference(std::vector<float>{3, -4}), 0.5);
}

// All bytes before it stay, but the header's size of the file, its hash and the section's own
// entry.
TEST(SelfTestSection, ChangesNeitherIdentityNorPlaces) {
  const TempDir with, without;
  auto a = plan_with(with, to_json(small_test())), b = plan_with(without, "");
  ASSERT_GT(a.size(), b.size());
  const uint64_t header = prefix(a).header_bytes;
  // All but the SHA-256 of the self-test, which is the last of the digests.
  const SectionEntry digests = *find_section(a, SectionId::Digests);
  for (auto* bytes : {&a, &b}) {
    const auto end = bytes->begin() + static_cast<int64_t>(digests.offset + digests.size);
    std::fill(end - sizeof(DigestRecord), end, std::byte{});
  }
  EXPECT_TRUE(std::equal(b.begin() + static_cast<int64_t>(header), b.end(),
                         a.begin() + static_cast<int64_t>(header)));
  const auto one = PlanFile::open(with.path("p")), other = PlanFile::open(without.path("p"));
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(to_hex((*one)->identity), to_hex((*other)->identity));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 64, b.begin()));
  EXPECT_THAT(read_self_test(other->view()).error().message, HasSubstr("has no self-test"));

  TinyPlan changed = make_tiny_plan();
  changed.contents.facts.name = "another";
  ASSERT_TRUE(write_plan(changed, without.path("q")).ok());
  EXPECT_FALSE(PlanFile::open(without.path("q"))->view().identity == (*one)->identity);
}

TEST(SelfTestSection, RefusesWhatTheModelDoesNotHave) {
  const std::string good = to_json(small_test());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string wrong[] = {changed("[1,47]", "[1,48]"),  // one more than the vocabulary
                               changed("[1,47]", "[1,-1]"),
                               changed("[1,47]", "[1]"),     // as many answers as tokens
                               changed("[1,2,0]", "[1,2]"),  // as many logits as ids
                               changed("\"layer\":-1", "\"layer\":99"),
                               changed("\"layer\":-1", "\"layer\":\"x\""),
                               changed("\"norm\":5", "\"norm\":1e99"),
                               changed("\"prompts\"", "\"prompt\""),
                               "[]",
                               "{",
                               "{\"prompts\":[]}",
                               "{\"prompts\":[1]}",
                               "{\"prompts\":{}}",
                               "{\"prompts\":[{\"tokens\":[1],\"answers\":[null],\"streams\":[]}]}",
                               std::string(100, '[')};
  for (const std::string& text : wrong) {
    const TempDir dir;
    plan_with(dir, text);
    const auto plan = PlanFile::open(dir.path("p"));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto test = read_self_test(plan->view());
    ASSERT_FALSE(test.ok()) << text;
    EXPECT_THAT(test.error().message, HasSubstr("section 'self-test'")) << text;
  }
}

// It is not looked at when a plan is opened, so that damage there stops nothing else.
TEST(SelfTestSection, IsCheckedWhereItIsRead) {
  const TempDir dir;
  std::vector<std::byte> bytes = plan_with(dir, to_json(small_test()));
  bytes.back() ^= std::byte{1};
  dir.write("damaged", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const auto plan = PlanFile::open(dir.path("damaged"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(read_self_test(plan->view()).error().message, HasSubstr("is damaged"));
}

TEST(Sketches, GiveTheDistanceOfVectors) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  int close = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<float> x(500), y(500);
    double difference = 0, squares = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      x[j] = normal(random);
      y[j] = x[j] + 0.1f * normal(random);
      difference += (y[j] - x[j]) * (y[j] - x[j]);
      squares += x[j] * x[j];
    }
    const SelfTestStream stream = {0, std::sqrt(squares), sketch_of(x)};
    const double ratio = stream.difference(y) / std::sqrt(difference / squares);
    close += ratio > 0.75 && ratio < 1.25;
  }
  EXPECT_GT(close, 75);
}

}  // namespace
}  // namespace ktx::plan
