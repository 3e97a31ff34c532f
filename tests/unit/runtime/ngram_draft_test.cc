#include "lib/runtime/draft/ngram_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NgramDraft, ContinuesTheLatestEarlierPlace) {
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 3, 4, 5, 1, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 3, 4, 1, 2, 3, 6, 7, 1, 2, 3}, 2),
              ElementsAre(6, 7));
}

TEST(NgramDraft, FallsBackToTwoTokens) {
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 8, 9, 1, 2}, 8), ElementsAre(8, 9, 1, 2));
}

TEST(NgramDraft, EndsBeforeAnImage) {
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 3, 4, -2, -2, 5, 1, 2, 3}, 8), ElementsAre(4));
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 3, -2, -2, 5, 1, 2, 3}, 8), IsEmpty());
}

TEST(NgramDraft, SaysNothingWhereNothingRepeats) {
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 2, 3, 4}, 4), IsEmpty());
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1}, 4), IsEmpty());
  EXPECT_THAT(ngram_draft({}, 4), IsEmpty());
  EXPECT_THAT(ngram_draft(std::vector<int32_t>{1, 1, 1, 1}, 0), IsEmpty());
}

}  // namespace
}  // namespace ktx::runtime
