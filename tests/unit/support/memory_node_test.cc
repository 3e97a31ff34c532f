#include "lib/support/memory_node.h"

#include <gtest/gtest.h>

#include <cstring>

#include "lib/support/mapped_file.h"
#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

TEST(MemoryNode, PagesOfAMappedFileGoToNode0AndKeepTheirBytes) {
  const testing::TempDir dir;
  const std::string text(100000, 'k');
  dir.write("file", text);
  const auto file = MappedFile::open(dir.path("file"));
  ASSERT_TRUE(file.ok());
  const auto bytes = file->bytes();
  const Status moved = move_to_node(bytes.subspan(5000, 50000), 0);
  if (!moved) GTEST_SKIP() << moved.error().message;  // a container without the right
  EXPECT_EQ(std::memcmp(bytes.data(), text.data(), text.size()), 0);
}

TEST(MemoryNode, ANodeThatDoesNotExistIsAnError) {
  const testing::TempDir dir;
  dir.write("file", "text");
  const auto file = MappedFile::open(dir.path("file"));
  const Status moved = move_to_node(file->bytes(), 900);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().message.substr(0, 7), "mbind: ");
  EXPECT_TRUE(move_to_node({}, 900));
}

}  // namespace
}  // namespace ktx
