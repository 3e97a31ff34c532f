#include "lib/support/piped_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

TEST(PipedText, AFileIsReadAsItIs) {
  const testing::TempDir dir;
  const Result<PipedText> text = read_piped_text(dir.write("a", "one\ntwo\n"));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->text, "one\ntwo\n");
  EXPECT_FALSE(text->streamed);
  const Result<PipedText> empty = read_piped_text(dir.write("empty", ""));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->text, "");
}

TEST(PipedText, APipeIsReadToItsEndHoweverSlow) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const std::string expected(300000, 'x');
  std::thread writer([&] {
    for (size_t at = 0; at < expected.size(); at += 50000) {
      EXPECT_EQ(write(ends[1], expected.data() + at, 50000), 50000);
      usleep(1000);
    }
    close(ends[1]);
  });
  const Result<PipedText> text = read_piped_text("/dev/fd/" + std::to_string(ends[0]));
  writer.join();
  close(ends[0]);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->text, expected);
  EXPECT_TRUE(text->streamed);
}

TEST(PipedText, WhatCannotBeReadIsNamed) {
  const testing::TempDir dir;
  const auto message = [](const std::string& path, size_t limit = 1000) {
    const Result<PipedText> text = read_piped_text(path, limit);
    return text.ok() ? std::string("read") : text.error().message;
  };
  EXPECT_EQ(message(dir.path("no")), dir.path("no") + ": cannot open: No such file or directory");
  EXPECT_EQ(message(dir.path()), dir.path() + ": cannot read: Is a directory");
  EXPECT_EQ(message("/dev/zero"), "/dev/zero: the text has more than the 1000 bytes allowed here");
  EXPECT_EQ(message(dir.write("big", std::string(1001, 'x'))),
            dir.path("big") + ": the text has more than the 1000 bytes allowed here");
  EXPECT_EQ(message(dir.write("fits", std::string(1000, 'x'))), "read");
  EXPECT_EQ(message("/dev/null"), "read");
}

}  // namespace
}  // namespace ktx
