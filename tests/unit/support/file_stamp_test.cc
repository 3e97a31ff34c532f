#include "lib/support/file_stamp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

// The stamp of a file with the time that an archive gives to all of its files.
FileStamp stamp_of_old_file(const std::string& path) {
  const timespec times[] = {{1, 0}, {1, 0}};
  EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  const Result<FileStamp> stamp = stamp_file(path);
  EXPECT_TRUE(stamp.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the clock of files has ticked
  return *stamp;
}

TEST(FileStamp, TellsAFileThatWasChangedOrReplacedAndNotOneThatWasRemoved) {
  const testing::TempDir dir;
  const std::string path = dir.write("file", "three");
  const FileStamp first = stamp_of_old_file(path);
  EXPECT_TRUE(check_unchanged(path, first).ok());
  std::ofstream(path, std::ios::binary) << "seven";
  const FileStamp second = stamp_of_old_file(path);
  EXPECT_EQ(first.size, second.size);
  EXPECT_EQ(first.modified_ns, second.modified_ns);
  const Status changed = check_unchanged(path, first);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(
      changed.error().message,
      path + ": the file was changed or replaced while it was read; start again when it is whole");
  std::filesystem::rename(dir.write("other", "seven"), path);
  EXPECT_FALSE(check_unchanged(path, second).ok());
  std::filesystem::remove(path);
  EXPECT_TRUE(check_unchanged(path, second).ok());
  EXPECT_FALSE(stamp_file(path).ok());
}

}  // namespace
}  // namespace ktx
