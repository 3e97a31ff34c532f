#include "lib/runtime/experts/direct_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "lib/plan/expert_memory.h"
#include "lib/runtime/engine/arena.h"
#include "tests/support/temp_dir.h"

namespace ktx::runtime {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr uint64_t kBlock = plan::kDirectBlock;

// Byte i of the file.
std::byte at(uint64_t i) {
  return static_cast<std::byte>((i * 2654435761u) >> 13);
}

class Answers {
 public:
  ReadDone taker() {
    return [this](uint32_t ticket, int error) {
      const std::lock_guard lock(mutex_);
      errors_.emplace(ticket, error);
      changed_.notify_all();
    };
  }
  std::map<uint32_t, int> wait_for(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30), [&] { return errors_.size() >= count; });
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, int> errors_;
};

class DirectReaders : public ::testing::TestWithParam<ReaderKind> {
 protected:
  void SetUp() override {
    std::string bytes(kBytes, '\0');
    for (uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(at(i));
    path_ = dir_.write("file", bytes);
    memory_ = Arena::allocate(202 * kPiece, "test").take();
  }
  // Null where the system has no io_uring.
  std::unique_ptr<DirectReader> open(std::function<int(const DirectRead&)> fault = {}) {
    auto reader = open_direct_reader(path_, answers_.taker(),
                                     {.kind = GetParam(), .fault = std::move(fault)});
    if (reader.ok()) return reader.take();
    EXPECT_THAT(reader.error().message, HasSubstr("no io_uring"));
    return nullptr;
  }
  // Each to a place of its own, as those of a cache are.
  DirectRead piece(uint32_t number, uint64_t needed = kPiece) {
    return {number * kPiece, kPiece, needed, memory_.data() + number * kPiece, number};
  }

  // No whole number of blocks.
  static constexpr uint64_t kPiece = 16 * kBlock, kBytes = 200 * kPiece + 777;
  TempDir dir_;
  std::string path_;
  Answers answers_;
  Arena memory_;
};

TEST_P(DirectReaders, GiveTheBytesOfTheFile) {
  const auto reader = open();
  if (!reader) GTEST_SKIP() << "no io_uring here";
  std::vector<DirectRead> reads;
  for (uint32_t i = 0; i < 64; ++i) reads.push_back(piece(i));
  reader->read(reads);
  for (const auto& [ticket, error] : answers_.wait_for(64)) {
    ASSERT_EQ(error, 0);
    for (uint64_t i = 0; i < kPiece; ++i) {
      ASSERT_EQ(memory_.data()[ticket * kPiece + i], at(ticket * kPiece + i)) << ticket;
    }
  }
}

TEST_P(DirectReaders, TakeMoreReadsThanAreInFlight) {
  const auto reader = open();
  if (!reader) GTEST_SKIP() << "no io_uring here";
  std::vector<DirectRead> reads;
  for (uint32_t i = 0; i < 200; ++i) reads.push_back(piece(i));
  reader->read(reads);
  EXPECT_EQ(answers_.wait_for(200).size(), 200u);
}

TEST_P(DirectReaders, ReadUpToTheFilesEndAndNameAPieceBehindIt) {
  const auto reader = open();
  if (!reader) GTEST_SKIP() << "no io_uring here";
  const DirectRead reads[] = {piece(200, 777), piece(201, 1)};
  reader->read({reads, 1});
  EXPECT_EQ(answers_.wait_for(1).at(200), 0);
  reader->read({reads + 1, 1});
  EXPECT_EQ(answers_.wait_for(2).at(201), kFileEnds);
  const DirectRead more = {200 * kPiece, kPiece, 778, memory_.data(), 7};
  reader->read({&more, 1});
  EXPECT_EQ(answers_.wait_for(3).at(7), kFileEnds);
}

TEST_P(DirectReaders, AFileThatWasCutOffIsNamed) {
  const auto reader = open();
  if (!reader) GTEST_SKIP() << "no io_uring here";
  std::filesystem::resize_file(path_, 5 * kPiece);
  const DirectRead reads[] = {piece(4), piece(5)};
  reader->read(reads);
  const auto answers = answers_.wait_for(2);
  EXPECT_EQ(answers.at(4), 0);
  EXPECT_EQ(answers.at(5), kFileEnds);
}

TEST_P(DirectReaders, ErrorsComeWithTheirNumber) {
  const auto reader = open([](const DirectRead& read) { return read.ticket == 3 ? EIO : 0; });
  if (!reader) GTEST_SKIP() << "no io_uring here";
  const DirectRead reads[] = {piece(2), piece(3)};
  reader->read(reads);
  const auto answers = answers_.wait_for(2);
  EXPECT_EQ(answers.at(2), 0);
  EXPECT_EQ(answers.at(3), EIO);
}

TEST_P(DirectReaders, EndWithReadsOnTheirWay) {
  for (int round = 0; round < 20; ++round) {
    auto reader = open();
    if (!reader) GTEST_SKIP() << "no io_uring here";
    std::vector<DirectRead> reads;
    for (uint32_t i = 0; i < 200; ++i) reads.push_back(piece(i));
    reader->read(reads);
    reader.reset();
  }
}

TEST_P(DirectReaders, DropWhatHasNotBegun) {
  std::atomic<bool> hangs = true, begun = false;
  const auto reader = open([&](const DirectRead&) {
    begun = true;
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  if (!reader) GTEST_SKIP() << "no io_uring here";
  std::vector<DirectRead> reads;
  for (uint32_t i = 0; i < 200; ++i) reads.push_back(piece(i));
  reader->read(reads);
  while (!begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  reader->drop();
  hangs = false;
  const auto answers = answers_.wait_for(200);
  ASSERT_EQ(answers.size(), 200u);
  int dropped = 0;
  for (const auto& [ticket, error] : answers) {
    EXPECT_TRUE(error == 0 || error == ECANCELED) << ticket << ": " << error;
    dropped += error == ECANCELED;
  }
  EXPECT_GE(dropped, 200 - 2 * 64) << "64 are in flight at most, and as many whose answers wait";
  EXPECT_LT(dropped, 200);
}

INSTANTIATE_TEST_SUITE_P(All, DirectReaders,
                         ::testing::Values(ReaderKind::Ring, ReaderKind::Threads),
                         [](const auto& info) {
                           return info.param == ReaderKind::Ring ? "Ring" : "Threads";
                         });

TEST(DirectReader, RefusesAFileThatWasReplaced) {
  const TempDir dir;
  const std::string path = dir.write("file", "old");
  const FileStamp stamp = *stamp_file(path);
  dir.write("new", "other");
  std::filesystem::rename(dir.path("new"), path);
  const auto reader = open_direct_reader(path, {}, {.stamp = &stamp});
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.error().message, HasSubstr("changed or replaced"));
}

TEST(DirectReader, NamesAFileThatIsNotThere) {
  const auto reader = open_direct_reader("/nowhere/file", {});
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.error().message, HasSubstr("/nowhere/file: cannot open: No such file"));
}

}  // namespace
}  // namespace ktx::runtime
