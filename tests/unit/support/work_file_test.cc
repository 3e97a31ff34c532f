// Many threads fill one work file: each byte arrives, and a failed write is an error with its
// cause, never a signal.
#include "lib/support/work_file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "lib/support/mapped_file.h"
#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

using testing::read_file;
using testing::TempDir;

std::byte pattern(uint64_t at) {
  return static_cast<std::byte>((at * 0x9E3779B97F4A7C15u) >> 56);
}

// Pieces that begin and end anywhere in pages, by four threads at once. The first error.
Status fill(WorkFile& file, uint64_t total) {
  constexpr uint64_t kPiece = (256 << 10) + 77;
  std::atomic<uint64_t> next = 0;
  std::vector<Status> results(4);
  std::vector<std::thread> threads;
  for (Status& result : results) {
    threads.emplace_back([&] {
      std::vector<std::byte> bytes;
      for (uint64_t at = next.fetch_add(kPiece); at < total && result.ok();
           at = next.fetch_add(kPiece)) {
        bytes.resize(std::min(kPiece, total - at));
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(at + i);
        result = file.write(at, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Status& result : results) KTX_TRY(std::move(result));
  return {};
}

void expect_filled(const std::string& path, uint64_t total) {
  const std::string bytes = read_file(path);
  ASSERT_EQ(bytes.size(), total);
  for (uint64_t i = 0; i < total; ++i) {
    if (static_cast<std::byte>(bytes[i]) != pattern(i)) FAIL() << "byte " << i;
  }
}

TEST(WorkFile, TakesWhatManyThreadsWriteAtOnce) {
  const TempDir dir;
  constexpr uint64_t kTotal = (24 << 20) + 13;
  auto file = WorkFile::open(dir.path("f"), "MAGIC");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE(file->reserve(kTotal).ok());
  const Status filled = fill(*file, kTotal);
  ASSERT_TRUE(filled.ok()) << filled.error().message;
  ASSERT_TRUE(file->commit().ok());
  expect_filled(dir.path("f"), kTotal);
}

TEST(WorkFile, ReplacesOnlyFilesOfItsOwnKind) {
  const TempDir dir;
  dir.write("f", "GGUF weights");
  const auto refused = WorkFile::open(dir.path("f"), "MAGIC");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("begins with 'GGUF "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(dir.path("f.work")));
  EXPECT_EQ(read_file(dir.path("f")), "GGUF weights");
  dir.write("f", "MAGIC of old");
  EXPECT_TRUE(WorkFile::open(dir.path("f"), "MAGIC").ok());
}

// The next run finds what a killed one left, by whichever name it is called.
TEST(WorkFile, IsBesideTheFileThatALinkLeadsTo) {
  const TempDir dir;
  dir.write("folder/real", "MAGIC of old");
  std::filesystem::permissions(dir.path("folder/real"), std::filesystem::perms(0600));
  std::filesystem::create_symlink("folder/real", dir.path("link"));
  auto file = WorkFile::open(dir.path("link"), "MAGIC");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(std::filesystem::status(dir.path("folder/real.work")).permissions(),
            std::filesystem::perms(0600));  // other users may not read a file in the making
  const auto second = WorkFile::open(dir.path("folder/real"), "MAGIC");
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("another process is writing this file"), std::string::npos);
  ASSERT_TRUE(file->write(0, std::as_bytes(std::span("MAGIC new", 9))).ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir.path("link")));
  EXPECT_EQ(read_file(dir.path("folder/real")), "MAGIC new");
}

TEST(WorkFile, IsNoLinkItself) {
  const TempDir dir;
  dir.write("precious", "text");
  std::filesystem::create_symlink("precious", dir.path("f.work"));
  const auto refused = WorkFile::open(dir.path("f"), "MAGIC");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("f.work: not a regular file; remove it"),
            std::string::npos);
  EXPECT_EQ(read_file(dir.path("precious")), "text");
}

// Behind the end of a file there is no memory to copy into.
TEST(WorkFile, GrowsUnderManyThreadsThatReservedNothing) {
  const TempDir dir;
  constexpr uint64_t kTotal = (8 << 20) + 13;
  auto file = WorkFile::open(dir.path("f"), "MAGIC");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Status filled = fill(*file, kTotal);
  ASSERT_TRUE(filled.ok()) << filled.error().message;
  ASSERT_TRUE(file->commit().ok());
  expect_filled(dir.path("f"), kTotal);
}

// A file system of 4 MiB in a name space of the child's own. The file has its size without
// its space, as where space cannot be reserved.
TEST(WorkFile, SaysThatADiskBecameFullWhileThreadsWrote) {
  const TempDir dir;
  constexpr int kNoMount = 77;
  const pid_t child = fork();
  if (child == 0) {
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", dir.path().c_str(), "tmpfs", 0, "size=4m") != 0) {
      _exit(kNoMount);
    }
    auto file = WorkFile::open(dir.path("f"), "MAGIC");
    if (!file.ok() || !file->truncate(16 << 20).ok()) _exit(2);
    const Status filled = fill(*file, 16 << 20);
    if (filled.ok()) _exit(3);
    const bool told =
        filled.error().message.find("no space left on the device") != std::string::npos;
    _exit(told ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNoMount) GTEST_SKIP() << "no file systems may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(WorkFile, WhatItCannotReadIsNoFailureOfTheFileItWrites) {
  const TempDir dir;
  dir.write("from", std::string(1 << 20, 'a'));
  const auto from = MappedFile::open(dir.path("from"));
  ASSERT_TRUE(from.ok());
  std::filesystem::resize_file(dir.path("from"), 4096);
  auto file = WorkFile::open(dir.path("to"), "");
  ASSERT_TRUE(file.ok());
  const Status written = file->write(0, from->bytes());
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(from->shrunk());
}

}  // namespace
}  // namespace ktx
