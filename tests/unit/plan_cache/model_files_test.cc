#include "lib/plan_cache/model_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/cpu_time.h"
#include "tests/support/temp_dir.h"

namespace ktx::plan_cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
namespace fs = std::filesystem;

std::string quick(const std::string& path) {
  const auto key = quick_key(files_of_model(path));
  return key ? *key : key.error().message;
}
std::string content(const std::string& path) {
  const auto key = content_key(files_of_model(path));
  return key ? *key : key.error().message;
}

TEST(ModelFiles, AreAllShards) {
  EXPECT_THAT(files_of_model("d/m.gguf"), ElementsAre("d/m.gguf"));
  EXPECT_THAT(
      files_of_model("d/m-00001-of-00003.gguf"),
      ElementsAre("d/m-00001-of-00003.gguf", "d/m-00002-of-00003.gguf", "d/m-00003-of-00003.gguf"));
  // A hostile name asks for no billion of files.
  EXPECT_EQ(files_of_model("m-00001-of-99999.gguf").size(), 1u);
}

TEST(ModelFiles, NamesArePlainFileNames) {
  EXPECT_EQ(name_of_model("d/m.gguf"), "m");
  EXPECT_EQ(name_of_model("d/m-00001-of-00003.gguf"), "m");
  EXPECT_EQ(name_of_model("d/blob"), "blob");
  EXPECT_EQ(name_of_model("d/.gguf"), "model");
  EXPECT_EQ(name_of_model("d/a\nb\xff.gguf").find_first_of("\n\xff"), std::string::npos);
  EXPECT_LT(name_of_model("d/" + std::string(255, 'x')).size(), 200u);
}

TEST(ModelFiles, KeysTellChangesFromMoves) {
  const TempDir dir;
  std::string bytes(4 << 20, 'a');
  const std::string path = dir.write("m.gguf", bytes);
  const std::string first_quick = quick(path), first_content = content(path);
  EXPECT_EQ(quick(path), first_quick);
  EXPECT_EQ(first_quick.size(), 32u);

  // Another name, another inode, the same time.
  fs::rename(path, dir.path("moved.gguf"));
  EXPECT_EQ(content(dir.path("moved.gguf")), first_content);
  fs::copy_file(dir.path("moved.gguf"), dir.path("copy.gguf"));
  fs::last_write_time(dir.path("copy.gguf"), fs::last_write_time(dir.path("moved.gguf")));
  EXPECT_EQ(content(dir.path("copy.gguf")), first_content);
  EXPECT_NE(quick(dir.path("copy.gguf")), first_quick);

  // The same size and time, other bytes: at the head, in the middle, at the end.
  const auto time = fs::last_write_time(dir.path("copy.gguf"));
  for (const size_t at : {size_t{0}, size_t{2} << 20, bytes.size() - 1}) {
    bytes.assign(bytes.size(), 'a');
    for (size_t i = at; i < std::min(bytes.size(), at + (256 << 10)); ++i) bytes[i] = 'b';
    const std::string other = dir.write("other.gguf", bytes);
    fs::last_write_time(other, time);
    EXPECT_NE(content(other), first_content) << at;
  }
  // Another time.
  fs::last_write_time(dir.path("copy.gguf"), time + std::chrono::seconds(1));
  EXPECT_NE(content(dir.path("copy.gguf")), first_content);
}

TEST(ModelFiles, EveryShardCounts) {
  const TempDir dir;
  const std::string first = dir.write("m-00001-of-00002.gguf", "one");
  const std::string second = dir.write("m-00002-of-00002.gguf", "two");
  const std::string before_quick = quick(first), before_content = content(first);
  dir.write("m-00002-of-00002.gguf", "too");
  EXPECT_NE(quick(first), before_quick);
  EXPECT_NE(content(first), before_content);
  fs::remove(second);
  EXPECT_THAT(quick(first), HasSubstr("m-00002-of-00002.gguf: cannot open"));
  EXPECT_THAT(content(first), HasSubstr("m-00002-of-00002.gguf: cannot open"));
}

// 64 TiB would take hours.
TEST(ModelFiles, ALargeFileIsNotReadAsAWhole) {
  const TempDir dir;
  const std::string path = dir.write("m.gguf", "GGUF");
  off_t size = off_t{64} << 40;
  while (truncate(path.c_str(), size) != 0 && size > (off_t{1} << 30)) size /= 2;
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  ASSERT_GE(info.st_size, off_t{1} << 30);
  const double begin = testing::cpu_seconds();
  EXPECT_EQ(quick(path).size(), 32u);
  EXPECT_EQ(content(path).size(), 32u);
  EXPECT_LT(testing::cpu_seconds() - begin, 10);
}

TEST(ModelFiles, SmallAndEmptyFilesHaveKeys) {
  const TempDir dir;
  EXPECT_EQ(content(dir.write("empty.gguf", "")).size(), 32u);
  EXPECT_EQ(quick(dir.write("page.gguf", std::string(4096, 'x'))).size(), 32u);
  EXPECT_EQ(content(dir.write("mib.gguf", std::string((1 << 20) + 1, 'x'))).size(), 32u);
}

}  // namespace
}  // namespace ktx::plan_cache
