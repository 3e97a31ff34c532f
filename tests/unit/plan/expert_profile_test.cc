#include "lib/plan/expert_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ExpertProfile sample() {
  return {"qwen3moe", {{0, {5, 0, 20, 5}}, {7, {0, 0, 0, 0}}}};
}

TEST(ExpertProfile, IsReadAsItWasWritten) {
  const std::string text = to_json(sample());
  EXPECT_TRUE(text.starts_with(kExpertProfileMagic));
  const auto again = expert_profile_from_json(text);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->architecture, "qwen3moe");
  EXPECT_EQ(again->layers, sample().layers);
  EXPECT_EQ(to_json(*again), text);
  EXPECT_EQ(again->activations(), 30u);
}

TEST(ExpertProfile, AddsUpWithOthersOfTheModel) {
  ExpertProfile sum;
  ASSERT_TRUE(add_expert_profile(sum, sample()));
  ASSERT_TRUE(add_expert_profile(sum, {"qwen3moe", {{0, {1, 2, 3, 4}}, {8, {9}}}}));
  EXPECT_THAT(sum.layers[0], ElementsAre(6, 2, 23, 9));
  EXPECT_THAT(sum.layers[8], ElementsAre(9));
  EXPECT_THAT(add_expert_profile(sum, {"mixtral", {}}).error().message,
              HasSubstr("a profile of qwen3moe and one of mixtral"));
  EXPECT_THAT(add_expert_profile(sum, {"qwen3moe", {{0, {1}}}}).error().message,
              HasSubstr("layer 0 has 4 experts in one profile and 1 in the other"));
}

TEST(ExpertProfile, SaysWhatIsUsedMost) {
  const ExpertProfile profile = sample();
  EXPECT_THAT(experts_by_use(&profile, 0, 4), ElementsAre(2, 0, 3, 1));
  const std::vector<int32_t> some = {2, 3};
  EXPECT_DOUBLE_EQ(expert_use(&profile, 0, some, 4), 25.0 / 30);
  // Without counts, of another number of experts, and without a profile all are alike.
  for (int32_t layer : {1, 7}) {
    EXPECT_THAT(experts_by_use(&profile, layer, 4), ElementsAre(0, 1, 2, 3));
    EXPECT_DOUBLE_EQ(expert_use(&profile, layer, some, 4), 0.5);
  }
  EXPECT_DOUBLE_EQ(expert_use(&profile, 0, some, 8), 0.25);
  EXPECT_DOUBLE_EQ(expert_use(nullptr, 0, some, 4), 0.5);
}

TEST(ExpertProfile, RefusesOtherTexts) {
  const std::string good = to_json(sample());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto read = expert_profile_from_json(text);
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(refusal("qwen3moe", "qwen3moe"), "");
  EXPECT_THAT(refusal("ktx expert profile", "another"), HasSubstr("no profile of experts"));
  EXPECT_THAT(refusal("\"version\": 1", "\"version\": 2"), HasSubstr("another version"));
  EXPECT_THAT(refusal("\"layer\": 7", "\"layer\": 0"), HasSubstr("layer 0 stands there twice"));
  EXPECT_THAT(refusal("\"layer\": 7", "\"layer\": -7"), HasSubstr("`layer` is no number"));
  EXPECT_THAT(refusal("20", "-20"), HasSubstr("layer 0: a count is no whole number"));
  EXPECT_THAT(refusal("20", "1e30"), HasSubstr("layer 0: a count is no whole number"));
  EXPECT_THAT(refusal("[5, 0, 20, 5]", "[]"), HasSubstr("`counts` is no list"));
  EXPECT_THAT(refusal("[5, 0, 20, 5]", "{}"), HasSubstr("`counts` is no list"));
  for (size_t size = 0; size + 2 < good.size(); ++size) {
    EXPECT_FALSE(expert_profile_from_json(good.substr(0, size))) << size;
  }
  EXPECT_FALSE(expert_profile_from_json(std::string(1000, '[')));
}

}  // namespace
}  // namespace ktx::plan
