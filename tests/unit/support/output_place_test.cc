// Resolution of output paths. Nothing is opened for writing in a system folder: find_output()
// only looks.
#include "lib/support/output_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDir;
using Kind = OutputPlace::Kind;

std::string refusal(const std::string& path) {
  const auto place = find_output(path);
  return place.ok() ? "" : place.error().message;
}

TEST(OutputPlace, LinksEndWhereTheyPoint) {
  const TempDir dir;
  const std::string real = fs::canonical(dir.path());
  dir.write("plans/m", "x");
  fs::create_symlink("plans/m", dir.path("relative"));
  fs::create_symlink(dir.path("relative"), dir.path("absolute"));
  fs::create_symlink("plans/new", dir.path("dangling"));
  fs::create_directory_symlink("plans", dir.path("folder"));
  fs::create_hard_link(dir.path("plans/m"), dir.path("hard"));
  const struct {
    const char* given;
    const char* path;
    Kind kind;
  } kCases[] = {
      {"plans/m", "plans/m", Kind::File},         {"relative", "plans/m", Kind::File},
      {"absolute", "plans/m", Kind::File},        {"dangling", "plans/new", Kind::Nothing},
      {"folder/m", "plans/m", Kind::File},        {"folder/../none", "none", Kind::Nothing},
      {"folder/new", "plans/new", Kind::Nothing}, {"hard", "hard", Kind::File},
  };
  for (const auto& c : kCases) {
    const auto place = find_output(dir.path(c.given));
    ASSERT_TRUE(place.ok()) << c.given << ": " << place.error().message;
    EXPECT_EQ(place->path, real + "/" + c.path) << c.given;
    EXPECT_EQ(place->kind, c.kind) << c.given;
    EXPECT_EQ(place->given, dir.path(c.given));
  }
  EXPECT_EQ(describe(*find_output(dir.path("relative"))),
            dir.path("relative") + " (a link to " + real + "/plans/m)");
  EXPECT_EQ(describe(*find_output(dir.path("plans/m"))), dir.path("plans/m"));
}

TEST(OutputPlace, PathsThatLeadNowhereSayWhy) {
  const TempDir dir;
  const std::string file = dir.write("file", "x");
  fs::create_symlink("b", dir.path("a"));
  fs::create_symlink("a", dir.path("b"));
  fs::create_symlink("no/folder/m", dir.path("lost"));
  fs::create_symlink(dir.path(), dir.path("dir"));
  EXPECT_THAT(refusal(dir.path("a")), HasSubstr("links lead back to themselves; name another"));
  EXPECT_THAT(refusal(dir.path("lost")), HasSubstr("/no/folder'; make it first"));
  EXPECT_THAT(refusal(dir.path("lost")), HasSubstr("(a link to "));
  EXPECT_THAT(refusal(dir.path("none/m")), HasSubstr("there is no folder '" + dir.path("none")));
  EXPECT_THAT(refusal(file + "/m"), HasSubstr("a part of the path is not a folder"));
  EXPECT_THAT(refusal(dir.path(std::string(300, 'n'))), HasSubstr("the name is too long"));
  for (const char* folder : {"", "/", "/.", "/dir", "/dir/", "/dir/.."}) {
    EXPECT_THAT(refusal(dir.path() + folder), HasSubstr("it is a folder; name a file in it"));
  }
  EXPECT_THAT(refusal(dir.path("file/")), HasSubstr("a part of the path is not a folder"));
  EXPECT_THAT(refusal(dir.path("absent/")), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal(""), HasSubstr("the name of the output is empty"));
  EXPECT_EQ(refusal("-"), "-: no output goes there; name a file, or ./- for this name");
  EXPECT_EQ(refusal("./-"), "");
}

TEST(OutputPlace, PipesTerminalsAndNullAreStreams) {
  const TempDir dir;
  ASSERT_EQ(mkfifo(dir.path("pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/null", dir.path("null"));
  fs::create_symlink("pipe", dir.path("to-pipe"));
  for (const std::string& path : {dir.path("pipe"), dir.path("to-pipe"), dir.path("null"),
                                  std::string("/dev/full"), std::string("/dev/zero")}) {
    const auto place = find_output(path);
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_EQ(place->kind, Kind::Stream) << path;
    EXPECT_EQ(place->open_file, -1) << path;
  }
}

// A file that is open here is a stream under the name that /dev and /proc give it: a rename
// onto that name would be one onto the machine's link.
TEST(OutputPlace, OpenFilesOfThisProcessAreStreamsByNumber) {
  const TempDir dir;
  const int fd = open(dir.path("f").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  fs::create_symlink(fmt::format("/dev/fd/{}", fd), dir.path("link"));
  for (const std::string& path :
       {fmt::format("/dev/fd/{}", fd), fmt::format("/proc/self/fd/{}", fd),
        fmt::format("/proc/{}/fd/{}", getpid(), fd), dir.path("link")}) {
    const auto place = find_output(path);
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_EQ(place->kind, Kind::Stream) << path;
    EXPECT_EQ(place->open_file, fd) << path;
  }
  close(fd);
  EXPECT_THAT(refusal(dir.path("link")), HasSubstr("belongs to the system"));
}

TEST(OutputPlace, TheSystemsFoldersAreNoPlaceForFiles) {
  const TempDir dir;
  fs::create_symlink("/dev/ktx-test-none", dir.path("dangling"));
  fs::create_directory_symlink("/dev", dir.path("dev"));
  for (const std::string& path :
       {std::string("/dev/ktx-test-none"), std::string("/proc/ktx-test-none"),
        std::string("/proc/self/comm"), std::string("/sys/ktx-test-none"), dir.path("dangling"),
        dir.path("dev/ktx-test-none"), std::string("/dev/../dev/ktx-test-none")}) {
    EXPECT_THAT(refusal(path), HasSubstr("belongs to the system; name a file elsewhere")) << path;
  }
  if (fs::is_directory("/dev/shm")) {
    EXPECT_TRUE(find_output("/dev/shm/ktx-test-none").ok());  // memory: plans are put there
  }
}

TEST(OutputPlace, SocketsAndOtherDevicesAreRefused) {
  const TempDir dir;
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, dir.path("socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(refusal(dir.path("socket")), HasSubstr("it is a socket; name a file to write"));
  close(fd);
  for (const char* device : {"/dev/urandom", "/dev/random"}) {
    fs::create_symlink(device, dir.path("device"));
    EXPECT_THAT(refusal(dir.path("device")), HasSubstr("it is a device; name a file to write"));
    fs::remove(dir.path("device"));
  }
}

// Root may write everything, so a child gives its rights up.
TEST(OutputPlace, WhatMayNotBeWrittenIsSaid) {
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms(0755));
  const std::string file = dir.write("read-only", "x");
  fs::permissions(file, fs::perms(0444));
  dir.write("closed/f", "x");
  fs::permissions(dir.path("closed"), fs::perms(0));
  fs::create_symlink("closed/f", dir.path("into-closed"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0) (void)!setresuid(65534, 65534, 65534);
    const std::string text = refusal(file) + "\n" + refusal(dir.path("into-closed")) + "\n";
    _exit(write(ends[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, n);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  fs::permissions(dir.path("closed"), fs::perms(0700));
  EXPECT_THAT(said, HasSubstr("read-only: the file there may not be written: permission denied"));
  EXPECT_THAT(said, HasSubstr("into-closed: cannot write there: permission denied; write else"));
}

}  // namespace
}  // namespace ktx
