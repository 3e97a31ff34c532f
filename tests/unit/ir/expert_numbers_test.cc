#include "lib/ir/expert_numbers.h"

#include <gtest/gtest.h>

namespace ktx::ir {
namespace {

using Numbers = std::vector<int32_t>;

TEST(ExpertNumbers, AreReadInAnyOrderAndPrintedAsRanges) {
  const auto read = [](std::string_view text) { return parse_expert_numbers(text).value(); };
  EXPECT_EQ(read("3"), Numbers({3}));
  EXPECT_EQ(read("0..3"), Numbers({0, 1, 2, 3}));
  EXPECT_EQ(read("7, 1-2 ,2"), Numbers({1, 2, 7}));
  EXPECT_EQ(expert_numbers_text(read("7,0..3,9,8")), "0..3,7..9");
  EXPECT_EQ(expert_numbers_text(Numbers{5}), "5");
  EXPECT_EQ(expert_numbers_text(Numbers{}), "");
}

TEST(ExpertNumbers, RefuseWhatIsNone) {
  for (const char* text : {"", "a", "-1", "3..", "..3", "5..3", "1,,2", "1..2..3", "65536",
                           "99999999999", "0..65536", "1.5"}) {
    EXPECT_FALSE(parse_expert_numbers(text)) << text;
  }
}

}  // namespace
}  // namespace ktx::ir
