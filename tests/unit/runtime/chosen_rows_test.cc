#include "lib/runtime/hosts/chosen_rows.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

using Rows = std::vector<uint32_t>;
using Ints = std::vector<int32_t>;

// Two pairs a token, of three tokens.
const Ints kOrder = {3, 0, 5, 1, 2, 4};

TEST(ChosenRows, AreThoseOfThePairsInFront) {
  EXPECT_EQ(chosen_rows(kOrder, Ints{0, 2, 3}, 3, 2), (Rows{3, 0, 5}));
  EXPECT_EQ(chosen_rows(kOrder, Ints{0, 0, 0}, 3, 2), Rows{});
  EXPECT_EQ(chosen_rows(kOrder, Ints{0, 6}, 3, 2), (Rows{3, 0, 5, 1, 2, 4}));
}

TEST(ChosenRows, OfTokensComeOnce) {
  EXPECT_EQ(chosen_rows(kOrder, Ints{0, 2, 3}, 3, 1), (Rows{1, 0, 2}));
  EXPECT_EQ(chosen_rows(kOrder, Ints{0, 2}, 3, 1), (Rows{1, 0}));
  EXPECT_EQ(chosen_rows(Ints{2, 0, 1}, Ints{0, 2}, 3, 1), (Rows{2, 0}));
}

TEST(ChosenRows, DamagedOnesAreNone) {
  EXPECT_FALSE(chosen_rows(kOrder, Ints{}, 3, 2));
  EXPECT_FALSE(chosen_rows(kOrder, Ints{0, 7}, 3, 2));
  EXPECT_FALSE(chosen_rows(kOrder, Ints{0, -1}, 3, 2));
  EXPECT_FALSE(chosen_rows(Ints{0, 6}, Ints{0, 2}, 1, 2));
  EXPECT_FALSE(chosen_rows(Ints{0, -1}, Ints{0, 2}, 1, 2));
  EXPECT_FALSE(chosen_rows(kOrder, Ints{0, 3}, 4, 1));
}

}  // namespace
}  // namespace ktx::runtime
