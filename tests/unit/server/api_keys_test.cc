#include "lib/server/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

TEST(ApiKeys, HaveNamesLimitsAndNotes) {
  std::vector<ApiKey> keys;
  ASSERT_TRUE(read_api_keys("keys.txt",
                            "# of the team\n"
                            "sk-1\n"
                            "\n"
                            "  sk-2\tname=anna  requests=60 tokens=20k  # a note\r\n"
                            "sk#3 models=edit figures=all\n"
                            "sk-4 priority=5",
                            keys)
                  .ok());
  ASSERT_EQ(keys.size(), 4u);
  EXPECT_EQ(keys[0].key, "sk-1");
  EXPECT_EQ(keys[0].requests_per_minute, 0);
  EXPECT_EQ(keys[1].key, "sk-2");
  EXPECT_EQ(keys[1].name, "anna");
  EXPECT_EQ(keys[1].requests_per_minute, 60);
  EXPECT_EQ(keys[1].tokens_per_minute, 20 << 10);
  EXPECT_EQ(keys[2].key, "sk#3");
  EXPECT_TRUE(keys[2].edits_models && keys[2].sees_figures);
  EXPECT_FALSE(keys[1].edits_models || keys[1].sees_figures);
  EXPECT_EQ(keys[2].priority, 1);
  EXPECT_EQ(keys[3].priority, 5);
}

TEST(ApiKeys, MistakesHaveTheirLine) {
  const auto message = [](std::string_view text) {
    std::vector<ApiKey> keys;
    const Status read = read_api_keys("keys.txt", text, keys);
    return read ? std::string() : read.error().message;
  };
  EXPECT_THAT(message("a\nb c\n"), HasSubstr("keys.txt:2: 'c' behind a key; expected name=NAME"));
  EXPECT_THAT(message("a requests=many"), HasSubstr("keys.txt:1: 'requests=many' is no count"));
  for (const char* wrong : {"a priority=0", "a priority=1001", "a priority=high", "a priority="}) {
    EXPECT_THAT(message(wrong), HasSubstr("expected priority=N with N from 1 to 1000"));
  }
  EXPECT_THAT(message("a tokens=0"), HasSubstr("is no count"));
  EXPECT_THAT(message("# nothing\n"), HasSubstr("keys.txt: no key in it"));
}

}  // namespace
}  // namespace ktx::server
