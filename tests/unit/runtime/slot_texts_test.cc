#include "lib/runtime/scheduler/slot_texts.h"

#include <gtest/gtest.h>

namespace ktx::runtime {
namespace {

void put(SlotTexts& texts, const std::string& owner, int slot, int tokens, bool busy = false) {
  SlotTexts::Entry& entry = texts.use(owner, slot);
  entry.text.tokens.assign(static_cast<size_t>(tokens), 1);
  entry.state.tokens = tokens;
  entry.state.busy = busy;
}

TEST(SlotTexts, AnOwnerSeesItsOwnTextsAlone) {
  SlotTexts texts(2, 1000);
  put(texts, "a", 0, 5, true);
  put(texts, "b", 0, 7);
  EXPECT_EQ(texts.find("a", 0)->text.tokens.size(), 5u);
  EXPECT_EQ(texts.find("b", 0)->text.tokens.size(), 7u);
  EXPECT_EQ(texts.find("", 0), nullptr);
  EXPECT_EQ(texts.find("a", 1), nullptr);
  const std::vector<SlotState> mine = texts.states("a"), others = texts.states("c");
  ASSERT_EQ(mine.size(), 2u);
  EXPECT_TRUE(mine[0].busy);
  EXPECT_EQ(mine[1].id, 1);
  EXPECT_FALSE(others[0].busy);
  EXPECT_EQ(others[0].tokens, 0);
  texts.erase("a", 0);
  EXPECT_EQ(texts.find("a", 0), nullptr);
  EXPECT_NE(texts.find("b", 0), nullptr);
}

TEST(SlotTexts, TheLongestUnusedGoWhenThereAreTooMany) {
  SlotTexts texts(2, 20);
  put(texts, "a", 0, 10, true);
  put(texts, "b", 0, 10);
  put(texts, "c", 0, 5);
  texts.shrink();
  EXPECT_NE(texts.find("a", 0), nullptr) << "its request runs";
  EXPECT_EQ(texts.find("b", 0), nullptr);
  EXPECT_NE(texts.find("c", 0), nullptr);
}

}  // namespace
}  // namespace ktx::runtime
