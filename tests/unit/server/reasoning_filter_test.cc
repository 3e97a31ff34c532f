#include "lib/server/reasoning_filter.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

constexpr int32_t kOpen = 1, kClose = 2, kEnd = 3, kVocab = 8;

// A grammar of one token, again and again.
class Only final : public runtime::TokenFilter {
 public:
  explicit Only(int32_t id) : id_(id), bits_(1u << id) {}
  Result<runtime::TokenBits> allowed() override { return runtime::TokenBits(&bits_, 1); }
  Status accept(int32_t id) override { return id == id_ ? Status{} : Error{"not allowed"}; }

 private:
  int32_t id_;
  uint32_t bits_;
};

std::vector<int32_t> allowed(ReasoningFilter& filter) {
  const runtime::TokenBits bits = filter.allowed().take();
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (runtime::has_token(bits, id)) ids.push_back(id);
  }
  return ids;
}

const ReasoningTokens kTokens = {kOpen, kClose, {0xFF & ~(1u << kEnd)}};

TEST(ReasoningFilter, TheGrammarBeginsBehindTheReasoning) {
  ReasoningFilter filter(kTokens, false, std::make_unique<Only>(5));
  EXPECT_EQ(allowed(filter), (std::vector<int32_t>{kOpen, 5}));
  EXPECT_TRUE(filter.accept(kOpen).ok());
  EXPECT_EQ(allowed(filter), (std::vector<int32_t>{0, 1, 2, 4, 5, 6, 7})) << "but for the end";
  EXPECT_TRUE(filter.accept(7).ok());
  EXPECT_TRUE(filter.accept(kClose).ok());
  EXPECT_EQ(allowed(filter), (std::vector<int32_t>{5}));
  EXPECT_TRUE(filter.accept(5).ok());
  EXPECT_FALSE(filter.accept(kOpen).ok()) << "once is enough";
}

TEST(ReasoningFilter, ItNeedNotReason) {
  ReasoningFilter filter(kTokens, false, std::make_unique<Only>(5));
  EXPECT_TRUE(filter.accept(5).ok());
  EXPECT_EQ(allowed(filter), (std::vector<int32_t>{5}));
}

TEST(ReasoningFilter, AnOpenPromptIsWithinIt) {
  ReasoningFilter filter(kTokens, true, std::make_unique<Only>(5));
  EXPECT_EQ(allowed(filter).size(), 7u);
  EXPECT_TRUE(filter.accept(kClose).ok());
  EXPECT_EQ(allowed(filter), (std::vector<int32_t>{5}));
}

}  // namespace
}  // namespace ktx::server
