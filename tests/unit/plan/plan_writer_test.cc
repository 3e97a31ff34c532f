#include "lib/plan/plan_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "lib/plan/pack_blobs.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

namespace fs = std::filesystem;
using ktx::testing::read_file;
using ktx::testing::TempDir;
using ::testing::HasSubstr;

std::string message(const Status& status) {
  return status.ok() ? "" : status.error().message;
}
std::string create_error(const std::string& path, const PlanContents& contents) {
  const auto writer = PlanWriter::create(path, contents);
  return writer.ok() ? "" : writer.error().message;
}

// Byte `at` of a made-up weight; cheap, and different everywhere.
std::byte pattern(uint64_t seed, uint64_t at) {
  return static_cast<std::byte>((at * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u) >> 56);
}

// The tiny plan with large weights behind its own, carried, so that its segments
// have chunks and blobs that begin and end anywhere in them.
struct LargePlan {
  TinyPlan tiny = make_tiny_plan();
  std::mutex mutex;
  std::set<uint64_t> packed;  // offsets asked of the large weights, all in one

  explicit LargePlan(uint64_t seed = 1) {
    tiny.contents.segments.pop_back();  // the small carried one joins the large weights
    const uint64_t sizes[] = {(3 << 20) + 5, (70 << 20) + 1, 4 << 20, (60 << 20) - 7, 1};
    std::vector<uint32_t> blobs;
    for (const uint64_t size : sizes) {
      const std::string name = "large" + std::to_string(blobs.size());
      blobs.push_back(tiny.weight(name, DType::F32, 1, static_cast<int64_t>(size / 4 + 1)));
    }
    tiny.contents.close_segment("none", SegmentKind::Carried);
    for (const GgufTensorRecord& tensor : tiny.contents.gguf.tensors) {
      tiny.contents.gguf.shards[0].file_size =
          std::max(tiny.contents.gguf.shards[0].file_size, tensor.offset + tensor.size);
    }
    uint64_t at = tiny.gguf.size();
    for (const uint32_t blob : blobs) {
      GgufTensorRecord& tensor =
          tiny.contents.gguf
              .tensors[tiny.contents.slices.at(tiny.contents.blobs[blob].first_slice).tensor];
      tensor.offset = at;
      at += tensor.size;
      BlobSource source;
      source.slices.resize(1);
      source.granule_bytes = 4096;
      source.pack = [this, seed, blob](auto, uint64_t offset, std::span<std::byte> out) {
        {
          const std::lock_guard lock(mutex);
          packed.insert(uint64_t{blob} << 32 | offset);
        }
        for (size_t i = 0; i < out.size(); ++i) out[i] = pattern(seed + blob, offset + i);
      };
      tiny.sources.push_back(std::move(source));
    }
    tiny.contents.gguf.shards[0].file_size = at;
  }
};

Status write_large(LargePlan& plan, const std::string& path, int threads,
                   const std::function<void(uint64_t, uint64_t)>& progress = {}) {
  PlanWriter writer = KTX_TRY(PlanWriter::create(path, plan.tiny.contents, {{7, 7}, true}));
  PackOptions options;
  options.threads = threads;
  options.progress = progress;
  KTX_TRY(pack_blobs(writer, plan.tiny.sources, options));
  return writer.finish();
}

TEST(PlanWriter, SameContentsGiveSameBytes) {
  TempDir dir;
  LargePlan plan;
  ASSERT_EQ(message(write_large(plan, dir.path("a"), 1)), "");
  ASSERT_EQ(message(write_large(plan, dir.path("b"), 4)), "");
  EXPECT_TRUE(read_bytes(dir.path("a")) == read_bytes(dir.path("b")));
  EXPECT_FALSE(fs::exists(dir.path("a.work")));
}

// Blobs that begin and end anywhere in the chunks: contents and hashes.
TEST(PlanWriter, WritesBlobsAcrossChunks) {
  TempDir dir;
  LargePlan plan;
  ASSERT_EQ(message(write_large(plan, dir.path("p"), 2)), "");
  const auto file = PlanFile::open(dir.path("p"), {.verify_weights = true, .threads = 2});
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (uint32_t b = 0; b < (*file)->blobs.size(); ++b) {
    const auto bytes = (*file)->blob_bytes(b);
    if (b + 5 >= (*file)->blobs.size()) {
      for (uint64_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != pattern(1 + b, i)) FAIL() << "weight " << b << " byte " << i;
      }
    }
    // The hash as the format says, computed plainly.
    Hash128 expected = hash_bytes(bytes);
    if (bytes.size() > kBlobPieceBytes) {
      std::vector<Hash128> pieces;
      for (size_t at = 0; at < bytes.size(); at += kBlobPieceBytes) {
        pieces.push_back(
            hash_bytes(bytes.subspan(at, std::min<size_t>(kBlobPieceBytes, bytes.size() - at))));
      }
      expected = hash_bytes(std::as_bytes(std::span(pieces)));
    }
    EXPECT_EQ((*file)->blobs[b].hash, expected) << "weight " << b;
  }
}

TEST(PlanWriter, ReportsProgressToTheEnd) {
  TempDir dir;
  LargePlan plan;
  uint64_t last = 0;
  uint64_t total = 0;
  ASSERT_EQ(message(write_large(plan, dir.path("p"), 2,
                                [&](uint64_t done, uint64_t all) {
                                  EXPECT_GT(done, last);
                                  last = done;
                                  total = all;
                                })),
            "");
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 137u << 20);
}

// Runs `body` in a child that kills itself as soon as `bytes` are packed.
void killed_after(LargePlan& plan, const std::string& path, uint64_t bytes) {
  const pid_t child = fork();
  if (child == 0) {
    (void)write_large(plan, path, 1, [&](uint64_t done, uint64_t) {
      if (done > bytes) kill(getpid(), SIGKILL);
    });
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
}

TEST(PlanWriter, ResumesAfterAKill) {
  TempDir dir;
  LargePlan plan;
  ASSERT_EQ(message(write_large(plan, dir.path("whole"), 2)), "");
  const size_t all = plan.packed.size();

  killed_after(plan, dir.path("p"), 100 << 20);
  EXPECT_FALSE(fs::exists(dir.path("p")));
  ASSERT_TRUE(fs::exists(dir.path("p.work")));
  EXPECT_THAT(PlanFile::open(dir.path("p.work")).error().message, HasSubstr("not finished"));

  plan.packed.clear();
  ASSERT_EQ(message(write_large(plan, dir.path("p"), 2)), "");
  EXPECT_LT(plan.packed.size(), all * 3 / 4);  // one of three chunks was there already
  EXPECT_TRUE(read_bytes(dir.path("p")) == read_bytes(dir.path("whole")));
  EXPECT_FALSE(fs::exists(dir.path("p.work")));
}

TEST(PlanWriter, DoesNotTrustDamagedChunksOfAKilledRun) {
  TempDir dir;
  LargePlan plan;
  ASSERT_EQ(message(write_large(plan, dir.path("whole"), 2)), "");
  killed_after(plan, dir.path("p"), 100 << 20);
  const int fd = open(dir.path("p.work").c_str(), O_RDWR);
  ASSERT_EQ(pwrite(fd, "damage", 6, 30 << 20), 6);
  close(fd);
  ASSERT_EQ(message(write_large(plan, dir.path("p"), 2)), "");
  EXPECT_TRUE(read_bytes(dir.path("p")) == read_bytes(dir.path("whole")));
}

TEST(PlanWriter, BeginsAnewWhenTheInputsAreOthers) {
  TempDir dir;
  LargePlan plan;
  killed_after(plan, dir.path("p"), 100 << 20);
  LargePlan other;
  other.tiny.contents.facts.name = "another";
  ASSERT_EQ(message(write_large(other, dir.path("p"), 2)), "");
  ASSERT_EQ(message(write_large(other, dir.path("whole"), 2)), "");
  EXPECT_TRUE(read_bytes(dir.path("p")) == read_bytes(dir.path("whole")));
}

TEST(PlanWriter, ReplacesWhateverStandsInPlaceOfTheWorkFile) {
  TempDir dir;
  dir.write("p.work", std::string(100000, 'x'));
  ASSERT_EQ(message(write_plan(make_tiny_plan(), dir.path("p"))), "");
  ASSERT_EQ(message(write_plan(make_tiny_plan(), dir.path("q"))), "");
  EXPECT_TRUE(read_bytes(dir.path("p")) == read_bytes(dir.path("q")));
}

TEST(PlanWriter, LeavesNothingWithoutFinish) {
  TempDir dir;
  dir.write("p", "KTXPLAN of before");
  {
    const TinyPlan tiny = make_tiny_plan();
    auto writer = PlanWriter::create(dir.path("p"), tiny.contents);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    EXPECT_TRUE(fs::exists(dir.path("p.work")));
    ASSERT_EQ(message(pack_blobs(*writer, tiny.sources)), "");
  }
  EXPECT_FALSE(fs::exists(dir.path("p.work")));
  EXPECT_EQ(read_file(dir.path("p")), "KTXPLAN of before");
}

TEST(PlanWriter, RefusesASecondWriterOfTheSameTarget) {
  TempDir dir;
  const TinyPlan tiny = make_tiny_plan();
  auto first = PlanWriter::create(dir.path("p"), tiny.contents);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(create_error(dir.path("p"), tiny.contents),
              HasSubstr("another process is writing this file"));
  ASSERT_EQ(message(pack_blobs(*first, tiny.sources)), "");
  ASSERT_EQ(message(first->finish()), "");
  EXPECT_TRUE(PlanFile::open(dir.path("p"), {.verify_weights = true}).ok());
}

TEST(PlanWriter, ManyWritersAtOnceLeaveAWholePlan) {
  TempDir dir;
  const TinyPlan tiny = make_tiny_plan();
  std::atomic<int> written = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) written += write_plan(tiny, dir.path("p"), 1).ok();
    });
  }
  for (int i = 0; i < 50; ++i) {
    const auto plan = PlanFile::open(dir.path("p"), {.verify_weights = true, .threads = 1});
    if (!plan.ok()) {
      EXPECT_THAT(plan.error().message, HasSubstr("No such file"));
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(written, 1);
  EXPECT_TRUE(PlanFile::open(dir.path("p"), {.verify_weights = true}).ok());
  EXPECT_FALSE(fs::exists(dir.path("p.work")));
}

// A plan somewhat larger than what is free: the larger it is, the more records of
// hash chunks the writer keeps in memory.
TEST(PlanWriter, SaysHowManyBytesAFullDiskLacks) {
  TempDir dir;
  const uint64_t beyond = fs::space(dir.path()).available + (uint64_t{256} << 30);
  TinyPlan tiny = make_tiny_plan();
  tiny.contents.segments.pop_back();
  tiny.weight("huge", DType::F32, static_cast<int64_t>(beyond >> 22), 1 << 20);  // rows of 4 MiB
  tiny.contents.close_segment("none", SegmentKind::Carried);
  GgufContents& gguf = tiny.contents.gguf;
  gguf.shards[0].file_size = uint64_t{1} << 55;
  gguf.tensors.back().offset = gguf.shards[0].header.size();
  const std::string error = create_error(dir.path("p"), tiny.contents);
  uint64_t needed = 0, free = 0;
  const char* numbers = std::strstr(error.c_str(), "no space left on the device: the file needs ");
  ASSERT_NE(numbers, nullptr) << error;
  ASSERT_EQ(std::sscanf(numbers, "%*[^(](%lu bytes), %*[^(](%lu bytes) are free", &needed, &free),
            2)
      << error;
  EXPECT_GE(needed, beyond & ~((uint64_t{1} << 22) - 1));
  EXPECT_LT(free, needed);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(PlanWriter, NamesALimitOfTheProcess) {
  TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error = create_error(dir.path("p"), make_tiny_plan().contents);
    _exit(error.find("ulimit -f") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(PlanWriter, RefusesTargetsThatAreNoFiles) {
  TempDir dir;
  const TinyPlan tiny = make_tiny_plan();
  EXPECT_THAT(create_error("/dev/null", tiny.contents), HasSubstr("not a regular file"));
  EXPECT_THAT(create_error(dir.path(), tiny.contents), HasSubstr("it is a folder; name a file"));
  EXPECT_THAT(create_error(dir.path("no/such/folder/p"), tiny.contents),
              HasSubstr("there is no folder '" + dir.path("no/such/folder") + "'; make it first"));
  ASSERT_EQ(mkfifo(dir.path("q.work").c_str(), 0600), 0);
  EXPECT_THAT(create_error(dir.path("q"), tiny.contents), HasSubstr("not a regular file"));
}

TEST(PlanWriter, ReportsASourceThatShrinks) {
  TempDir dir;
  TinyPlan tiny = make_tiny_plan();
  const std::string gguf = dir.write("m.gguf", tiny.gguf);
  auto source = MappedFile::open(gguf);
  ASSERT_TRUE(source.ok());
  tiny.point_sources_at(source->bytes());
  fs::resize_file(gguf, 5000);
  {
    auto writer = PlanWriter::create(dir.path("p"), tiny.contents);
    ASSERT_TRUE(writer.ok());
    PackOptions options;
    options.files = {&*source};
    EXPECT_THAT(message(pack_blobs(*writer, tiny.sources, options)),
                HasSubstr("m.gguf: the file became smaller"));
  }
  EXPECT_FALSE(fs::exists(dir.path("p")));
  EXPECT_FALSE(fs::exists(dir.path("p.work")));
}

TEST(PlanWriter, RefusesContentsThatNoReaderWouldOpen) {
  TempDir dir;
  TinyPlan tiny = make_tiny_plan();
  tiny.contents.operands[0].width = 32;
  EXPECT_THAT(create_error(dir.path("p"), tiny.contents),
              HasSubstr("a mistake in ktx-compile): step 0 (embed, model.layers.-1): y is 32 wide, "
                        "expected 64"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(PlanWriter, RefusesSourcesOfTheWrongSize) {
  TempDir dir;
  TinyPlan tiny = make_tiny_plan();
  tiny.sources[0].slices[0] = tiny.sources[0].slices[0].first(100);
  EXPECT_THAT(message(write_plan(tiny, dir.path("p"))),
              HasSubstr("weight 'token_embd.weight': its source has 100 bytes, expected 3264"));
}

TEST(PlanWriter, SourceKeyChangesWithTheFileAndWithItsBytes) {
  FileStamp stamp{.device = 1, .inode = 2, .size = 3 << 20, .modified_ns = 4, .changed_ns = 5};
  std::vector<std::byte> bytes(stamp.size);
  const auto key = [&] {
    const SourceFile file{stamp, bytes};
    return source_key({&file, 1});
  };
  const Hash128 before = key();
  EXPECT_EQ(before, key());
  stamp.changed_ns = 6;  // size and time of modification as they were
  EXPECT_FALSE(before == key());
  stamp.changed_ns = 5;
  for (const size_t begin : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    const size_t end = std::min(begin + bytes.size() / 16, bytes.size());
    for (size_t at = begin; at < end; ++at) bytes[at] = std::byte{1};
    EXPECT_FALSE(before == key()) << begin;
    for (size_t at = begin; at < end; ++at) bytes[at] = std::byte{0};
  }
  EXPECT_EQ(before, key());
}

}  // namespace
}  // namespace ktx::plan
