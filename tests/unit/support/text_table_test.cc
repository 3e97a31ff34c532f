#include "lib/support/text_table.h"

#include <gtest/gtest.h>

#include "lib/support/display_width.h"

namespace ktx {
namespace {

TEST(DisplayWidth, CountsColumnsAndNotBytes) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("llama 8B"), 8u);
  EXPECT_EQ(display_width("通义千问"), 8u);
  EXPECT_EQ(display_width("ＡＢ"), 4u);
  EXPECT_EQ(display_width("한글"), 4u);
  EXPECT_EQ(display_width("caf\u00e9"), 4u);
  EXPECT_EQ(display_width("cafe\u0301"), 4u);
  EXPECT_EQ(display_width("🦊"), 2u);
  EXPECT_EQ(display_width("±"), 1u);
  EXPECT_EQ(display_width("\xff\xe4\xb8"), 2u);  // no UTF-8
}

TEST(TextTable, WideNamesAndBarsKeepColumnsAligned) {
  TextTable table({{"model", TextTable::Left}, {"t/s"}});
  table.add({"通义 8B", "41.30"});
  table.add({"a|b", "1,234.00"});
  EXPECT_EQ(table.markdown(),
            "| model   |      t/s |\n"
            "| ------- | -------: |\n"
            "| 通义 8B |    41.30 |\n"
            "| a\\|b    | 1,234.00 |\n");
  EXPECT_EQ(table.plain("  "),
            "  model         t/s\n"
            "  通义 8B     41.30\n"
            "  a|b      1,234.00\n");
}

TEST(TextTable, LinesHaveNoSpaceAtTheirEnd) {
  TextTable table({{"a", TextTable::Left}, {"b", TextTable::Left}});
  table.add({"x"});
  EXPECT_EQ(table.plain(), "a  b\nx\n");
  TextTable nameless({{"", TextTable::Left}, {""}});
  nameless.add({"x", "1"});
  EXPECT_EQ(nameless.plain(), "x  1\n");
}

TEST(ByteUnit, AColumnHasTheUnitOfItsLargest) {
  const ByteUnit gib(uint64_t{17} << 30);
  EXPECT_EQ(gib.text(uint64_t{17} << 30), "17.00 GiB");
  EXPECT_EQ(gib.text(80 << 20), "0.08 GiB");
  EXPECT_EQ(gib.text(4096), "<0.01 GiB");
  EXPECT_EQ(gib.text(0), "0.00 GiB");
  EXPECT_EQ(ByteUnit(1 << 20).text(1536 << 10), "1.50 MiB");
  EXPECT_EQ(ByteUnit(900).text(12), "12 B");
  EXPECT_EQ(ByteUnit(0).text(0), "0 B");
}

}  // namespace
}  // namespace ktx
