#include "lib/support/strings.h"

#include <gtest/gtest.h>

namespace ktx {
namespace {

TEST(Strings, SwappedNeighboursAreOneMistake) {
  const std::vector<std::string> names = {"ctx", "check", "kv-budget"};
  EXPECT_EQ(nearest_name("cxt", names), "ctx");
  EXPECT_EQ(nearest_name("chekc", names), "check");
  EXPECT_EQ(nearest_name("kv-bugdte", names), "kv-budget");
  EXPECT_EQ(nearest_name("ctx", names), "ctx");
  EXPECT_EQ(nearest_name("xtc", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

TEST(Strings, AShellReadsAWordBackAsItWas) {
  EXPECT_EQ(shell_word("dir/m-1.Q4_K.ktxplan"), "dir/m-1.Q4_K.ktxplan");
  EXPECT_EQ(shell_word("mödel.gguf"), "mödel.gguf");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace ktx
