#include "lib/support/replace_all.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(ReplaceAll, WhatIsReplacedMayBeAPartOfWhatReplacesIt) {
  EXPECT_EQ(replace_all("models/a, models/b", "models", "the models' folder"),
            "the models' folder/a, the models' folder/b");
  EXPECT_EQ(replace_all("aaa", "aa", ""), "a");
  EXPECT_EQ(replace_all("abc", "", "x"), "abc");
}

}  // namespace
}  // namespace ktx
