#include "lib/support/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

TEST(MappedFile, ACopyInHugePagesHasTheSameBytesAndOutlivesTheFile) {
  const testing::TempDir dir;
  std::string text((9u << 20) + 123, 'a');
  for (size_t i = 0; i < text.size(); i += 4099) text[i] = static_cast<char>(i % 251);
  dir.write("file", text);
  auto file = MappedFile::open(dir.path("file"));
  ASSERT_TRUE(file.ok());
  const Status copied = file->copy_to_huge_pages(3);
  if (!copied) GTEST_SKIP() << copied.error().message;
  std::filesystem::resize_file(dir.path("file"), 10);
  ASSERT_EQ(file->bytes().size(), text.size());
  file->advise_dont_need(0, text.size());  // a hint for files: it must not lose the copy
  EXPECT_EQ(std::memcmp(file->bytes().data(), text.data(), text.size()), 0);
  EXPECT_TRUE(file->check());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->bytes().data()) % (2u << 20), 0u);
}

TEST(MappedFile, AFileAskedForInHugePagesHasTheSameBytesAndTellsWhenItShrinks) {
  const testing::TempDir dir;
  std::string text((9u << 20) + 123, 'a');
  for (size_t i = 0; i < text.size(); i += 4099) text[i] = static_cast<char>(i % 251);
  dir.write("file", text);
  const auto file = MappedFile::open(dir.path("file"));
  ASSERT_TRUE(file.ok());
  file->advise_huge_pages();
  EXPECT_EQ(std::memcmp(file->bytes().data(), text.data(), text.size()), 0);
  std::filesystem::resize_file(dir.path("file"), 10);
  const volatile std::byte& last = file->bytes()[text.size() - 1];
  const std::byte read = last;
  EXPECT_EQ(read, std::byte{0});
  EXPECT_TRUE(file->shrunk());
}

TEST(MappedFile, AFileThatShrinksWhileItIsCopiedIsToldAndNotCopied) {
  const testing::TempDir dir;
  dir.write("file", std::string(1u << 20, 'a'));
  auto file = MappedFile::open(dir.path("file"));
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(dir.path("file"), 10);
  const Status copied = file->copy_to_huge_pages(1);
  ASSERT_FALSE(copied);
  if (file->shrunk()) {
    EXPECT_NE(copied.error().message.find("became smaller"), std::string::npos);
  }
}

TEST(MappedFile, APipeWithoutAWriterIsRefusedAtOnce) {
  const testing::TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  const auto file = MappedFile::open(dir.path("pipe"));
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace ktx
