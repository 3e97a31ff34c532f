#include "lib/server/models/served_adapters.h"

#include <gtest/gtest.h>

namespace ktx::server {
namespace {

using runtime::LoraChoice;

TEST(ServedAdapters, AreChosenByNameOrByTheServersScales) {
  ServedAdapters adapters;
  EXPECT_EQ(adapters.choice("poet"), LoraChoice());
  adapters.open({{"poet", "a/poet.gguf", 0.5f}, {"clerk", "clerk.gguf", 0}});
  EXPECT_EQ(adapters.choice(), (LoraChoice{{0, 0.5f}}));
  EXPECT_EQ(adapters.choice("another"), (LoraChoice{{0, 0.5f}}));
  EXPECT_EQ(adapters.choice("poet"), (LoraChoice{{0, 0.5f}}));
  EXPECT_EQ(adapters.choice("clerk"), (LoraChoice{{1, 1}}));
  adapters.set_scales({0, 2});
  EXPECT_EQ(adapters.scales(), (std::vector<float>{0, 2}));
  EXPECT_EQ(adapters.choice(), (LoraChoice{{1, 2}}));
  EXPECT_EQ(adapters.choice("poet"), (LoraChoice{{0, 0.5f}}));
}

}  // namespace
}  // namespace ktx::server
