// A file whose blocks go back to the disk from its inside.
#include "lib/support/moved_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;

constexpr uint64_t kSize = (1 << 20) + 100;

TEST(MovedFile, GivesBackWholeBlocksOfWhatWasReleasedInAnyOrder) {
  const TempDir dir;
  const std::string path = dir.write("f", std::string(kSize, 'x'));
  MovedFile file = MovedFile::open(path).take();
  ASSERT_TRUE(file.begin());
  EXPECT_FALSE(std::filesystem::exists(path));
  const uint64_t all = file.disk_bytes();
  EXPECT_TRUE(file.has_all_blocks());
  // Parts of blocks stay until their other parts come.
  ASSERT_TRUE(file.release(5000, 9000));
  EXPECT_EQ(file.disk_bytes(), all);
  ASSERT_TRUE(file.release(1000, 5000));
  EXPECT_EQ(file.disk_bytes(), all - 4096);
  EXPECT_FALSE(file.has_all_blocks());
  ASSERT_TRUE(file.release(9000, 12288));
  EXPECT_EQ(file.disk_bytes(), all - 2 * 4096);
  const std::string rest = read_file(path + kMovingSuffix);
  EXPECT_EQ(rest.size(), kSize);
  EXPECT_TRUE(rest ==
              std::string(4096, 'x') + std::string(8192, '\0') + std::string(kSize - 12288, 'x'));
  EXPECT_EQ(file.next_data(4096), 12288u);
  // Up to the end, which fills no block; again, too.
  ASSERT_TRUE(file.release(12288, kSize));
  ASSERT_TRUE(file.release(100'000, 200'000));
  EXPECT_EQ(file.disk_bytes(), 4096u);
  EXPECT_EQ(file.next_data(4096), kSize);
  ASSERT_TRUE(file.remove());
  EXPECT_FALSE(std::filesystem::exists(path + kMovingSuffix));
}

TEST(MovedFile, HasItsNameBackWhereNothingWasReleased) {
  const TempDir dir;
  const std::string path = dir.write("f", "contents");
  {
    MovedFile file = MovedFile::open(path).take();
    ASSERT_TRUE(file.begin());
    EXPECT_FALSE(file.stays());
  }
  EXPECT_EQ(read_file(path), "contents");
  {
    MovedFile file = MovedFile::open(path).take();
    ASSERT_TRUE(file.begin());
    ASSERT_TRUE(file.release(0, 8));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  MovedFile again = MovedFile::open(path).take();
  EXPECT_TRUE(again.begun());
  EXPECT_TRUE(again.stays());
}

TEST(MovedFile, ReleasesNothingOfAFileThatWasWrittenTo) {
  const TempDir dir;
  const std::string path = dir.write("f", std::string(kSize, 'x'));
  MovedFile file = MovedFile::open(path).take();
  ASSERT_TRUE(file.begin());
  struct timespec times[2] = {{1, 0}, {1, 0}};
  utimensat(AT_FDCWD, (path + kMovingSuffix).c_str(), times, 0);
  const Status status = file.release(0, kSize);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("the file was written to while it was moved"));
  EXPECT_TRUE(read_file(path + kMovingSuffix) == std::string(kSize, 'x'));
}

// The time of its contents as well, by which other programs know it.
TEST(MovedFile, IsAsItWasAfterALook) {
  const TempDir dir;
  const std::string path = dir.write("f", "contents");
  struct stat before = {}, after = {};
  stat(path.c_str(), &before);
  (void)MovedFile::open(path);
  stat(path.c_str(), &after);
  EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

}  // namespace
}  // namespace ktx
