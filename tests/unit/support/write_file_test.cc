#include "lib/support/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "lib/support/line_file.h"
#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TempDir;

std::string message(const Status& status) {
  return status.ok() ? "" : status.error().message;
}

unsigned mode_of(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(WriteFile, KeepsTheLinkAndThePermissionsOfTheFileBehindIt) {
  const TempDir dir;
  dir.write("folder/real", "<html> of old");
  fs::permissions(dir.path("folder/real"), fs::perms(0640));
  fs::create_symlink("folder/real", dir.path("link"));
  ASSERT_EQ(message(write_file(dir.path("link"), "<html>", "<html>new")), "");
  EXPECT_TRUE(fs::is_symlink(dir.path("link")));
  EXPECT_FALSE(fs::is_symlink(dir.path("folder/real")));
  EXPECT_EQ(read_file(dir.path("folder/real")), "<html>new");
  EXPECT_EQ(mode_of(dir.path("folder/real")), 0640u);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path("folder")), {}), 1);  // no work file
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), {}), 2);
}

TEST(WriteFile, MakesTheFileThatADanglingLinkNames) {
  const TempDir dir;
  fs::create_symlink("real", dir.path("link"));
  ASSERT_EQ(message(write_file(dir.path("link"), "x", "")), "");
  EXPECT_EQ(fs::file_size(dir.path("real")), 0u);
  ASSERT_EQ(message(replace_file(dir.path("private"), "", "secret", 0600)), "");
  EXPECT_EQ(mode_of(dir.path("private")), 0600u);
}

TEST(WriteFile, OtherNamesOfTheFileKeepWhatItWas) {
  const TempDir dir;
  dir.write("a", "old");
  fs::create_hard_link(dir.path("a"), dir.path("b"));
  ASSERT_EQ(message(write_file(dir.path("a"), "o", "onew")), "");
  EXPECT_EQ(read_file(dir.path("a")), "onew");
  EXPECT_EQ(read_file(dir.path("b")), "old");
}

TEST(WriteFile, RefusesAFileOfAnotherKindBehindALink) {
  const TempDir dir;
  dir.write("model", "GGUF");
  fs::create_symlink("model", dir.path("link"));
  EXPECT_THAT(message(write_file(dir.path("link"), "<html>", "<html>")),
              HasSubstr("model: there is a file of this name that begins with 'GGUF'"));
  EXPECT_EQ(read_file(dir.path("model")), "GGUF");
}

TEST(WriteFile, AShorterTextBehindAKilledRunIsNotPaddedWithIt) {
  const TempDir dir;
  dir.write("f.work", std::string(100, 'x'));
  ASSERT_EQ(message(write_file(dir.path("f"), "", "short")), "");
  EXPECT_EQ(read_file(dir.path("f")), "short");
}

TEST(WriteFile, WritesToPipesAndSaysThatNobodyReads) {
  const TempDir dir;
  signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", dir.path("link"));
  EXPECT_THAT(message(write_file(dir.path("link"), "x", "text")),
              HasSubstr("cannot write: no program reads from it; start the reader first"));
  const int fd = open(dir.path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_EQ(message(write_file(dir.path("link"), "x", "text")), "");
  char buffer[16] = {};
  EXPECT_EQ(read(fd, buffer, sizeof buffer), 4);
  EXPECT_STREQ(buffer, "text");
  EXPECT_TRUE(fs::is_fifo(dir.path("pipe")));
  EXPECT_THAT(message(replace_file(dir.path("link"), "", "text")),
              HasSubstr("it is a pipe or a device, and not a regular file; name a file"));
  close(fd);
}

TEST(WriteFile, AnOpenFileGoesOnWhereItIs) {
  const TempDir dir;
  const int fd = open(dir.path("f").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(fd, "before ", 7), 7);
  ASSERT_EQ(message(write_file(fmt::format("/dev/fd/{}", fd), "x", "text")), "");
  ASSERT_EQ(write(fd, " after", 6), 6);
  close(fd);
  EXPECT_EQ(read_file(dir.path("f")), "before text after");
  const int closed = open(dir.path("f").c_str(), O_RDONLY);
  EXPECT_THAT(message(write_file(fmt::format("/dev/fd/{}", closed), "x", "text")),
              HasSubstr("cannot write: it is not open for writing"));
  close(closed);
}

TEST(WriteFile, AFullDeviceIsAnError) {
  const TempDir dir;
  fs::create_symlink("/dev/full", dir.path("full"));
  EXPECT_THAT(message(write_file(dir.path("full"), "x", "text")),
              HasSubstr("(a link to /dev/full): cannot write: no space left on the device"));
  EXPECT_TRUE(fs::is_symlink(dir.path("full")));
}

TEST(LineFile, GoesOnOrBeginsAnewBehindALink) {
  const TempDir dir;
  dir.write("log", "{1}\n");
  fs::create_symlink("log", dir.path("link"));
  for (const auto old : {LineFile::Old::GoesOn, LineFile::Old::Goes}) {
    auto file = LineFile::open(dir.path("link"), old, "{");
    ASSERT_TRUE(file.ok()) << file.error().message;
    file->add("{2}\n");
    EXPECT_EQ(message(file->finish()), "");
    EXPECT_EQ(read_file(dir.path("log")), old == LineFile::Old::GoesOn ? "{1}\n{2}\n" : "{2}\n");
  }
  EXPECT_TRUE(fs::is_symlink(dir.path("link")));
}

TEST(LineFile, IsAddedToNoOtherFileAndWaitsForNoReader) {
  const TempDir dir;
  dir.write("model", "GGUF");
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  const auto open_error = [](const std::string& path) {
    const auto file = LineFile::open(path, LineFile::Old::GoesOn, "{");
    return file.ok() ? "" : file.error().message;
  };
  EXPECT_THAT(open_error(dir.path("model")), HasSubstr("begins with 'G', not with '{'"));
  EXPECT_THAT(open_error(dir.path("pipe")), HasSubstr("no program reads from it"));
  EXPECT_THAT(open_error(dir.path("none/log")), HasSubstr("there is no folder"));
  EXPECT_EQ(read_file(dir.path("model")), "GGUF");
}

TEST(LineFile, CountsTheLinesThatAFullDiskLost) {
  auto file = LineFile::open("/dev/full", LineFile::Old::GoesOn, "{");
  ASSERT_TRUE(file.ok()) << file.error().message;
  file->add("{1}\n");
  file->flush();
  file->add("{2}\n{3}\n");
  EXPECT_EQ(message(file->finish()),
            "/dev/full: 3 lines are missing: no space left on the device; "
            "free some or write elsewhere");
}

}  // namespace
}  // namespace ktx
