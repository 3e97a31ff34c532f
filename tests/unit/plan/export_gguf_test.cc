#include "lib/plan/export_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/formats/layout.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

namespace fs = std::filesystem;
using ktx::testing::read_file;
using ktx::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::string>> export_tiny(const TinyPlan& tiny, const TempDir& dir) {
  KTX_TRY(write_plan(tiny, dir.path("p.ktxplan")));
  const PlanFile plan = KTX_TRY(PlanFile::open(dir.path("p.ktxplan")));
  return export_gguf(plan, dir.path("out.gguf"));
}

TEST(ExportGguf, GivesBackTheSourceByteForByte) {
  TempDir dir;
  const TinyPlan tiny = make_tiny_plan();
  const auto paths = export_tiny(tiny, dir);
  ASSERT_TRUE(paths.ok()) << paths.error().message;
  EXPECT_THAT(*paths, ElementsAre(dir.path("out.gguf")));
  EXPECT_TRUE(read_file(dir.path("out.gguf")) == tiny.gguf);
}

// The second half of the tensors in a file of their own.
TEST(ExportGguf, GivesBackTheShardsOfAShardedSource) {
  TempDir dir;
  TinyPlan tiny = make_tiny_plan();
  auto& gguf = tiny.contents.gguf;
  const size_t half = gguf.tensors.size() / 2;
  const uint64_t cut = gguf.tensors[half].offset;
  const std::string second = "GGUF, the second header, 32 byte";
  gguf.shards.push_back({second, second.size() + tiny.gguf.size() - cut, 32});
  gguf.shards[0].file_size = cut;
  for (size_t t = half; t < gguf.tensors.size(); ++t) {
    gguf.tensors[t].shard = 1;
    gguf.tensors[t].offset += second.size() - cut;
  }
  const auto paths = export_tiny(tiny, dir);
  ASSERT_TRUE(paths.ok()) << paths.error().message;
  ASSERT_THAT(*paths, ElementsAre(dir.path("out-00001-of-00002.gguf"),
                                  dir.path("out-00002-of-00002.gguf")));
  EXPECT_TRUE(read_file((*paths)[0]) == tiny.gguf.substr(0, cut));
  EXPECT_TRUE(read_file((*paths)[1]) == second + tiny.gguf.substr(cut));
}

// The tiny plan with one weight that several threads share, in a layout of choice.
TinyPlan plan_with_large_weight(Layout layout) {
  TinyPlan tiny = make_tiny_plan();
  tiny.contents.segments.pop_back();
  const uint32_t large = tiny.weight("large", DType::Q8_0, 4096 - 16, 4096 - 32);
  tiny.contents.blobs[large].layout = static_cast<uint16_t>(layout);
  tiny.contents.close_segment("none", SegmentKind::Carried);
  tiny.finish();
  return tiny;
}

TEST(ExportGguf, BlamesThePlanThatBecameSmaller) {
  TempDir dir;
  const TinyPlan tiny = plan_with_large_weight(Layout::Rows);
  ASSERT_TRUE(write_plan(tiny, dir.path("p")).ok());
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  fs::resize_file(dir.path("p"), 1 << 20);
  for (const int threads : {1, 3}) {
    const auto paths = export_gguf(*plan, dir.path("out.gguf"), {}, threads);
    ASSERT_FALSE(paths.ok());
    EXPECT_THAT(paths.error().message, HasSubstr(dir.path("p") + ": the file became smaller"));
    EXPECT_FALSE(fs::exists(dir.path("out.gguf")));
  }
}

TEST(ExportGguf, GivesBackALargeTensorOnAnyNumberOfThreads) {
  TempDir dir;
  const TinyPlan tiny = plan_with_large_weight(Layout::Rows);
  ASSERT_TRUE(write_plan(tiny, dir.path("p")).ok());
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (const int threads : {1, 3, 16}) {
    const auto paths = export_gguf(*plan, dir.path("out.gguf"), {}, threads);
    ASSERT_TRUE(paths.ok()) << paths.error().message;
    EXPECT_TRUE(read_file(dir.path("out.gguf")) == tiny.gguf) << threads;
  }
}

TEST(ExportGguf, EndsWithTheFailureOfAnyThread) {
  TempDir dir;
  ASSERT_TRUE(write_plan(plan_with_large_weight(Layout::Panel16), dir.path("p")).ok());
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const UnpackFunction unpack = [](const BlobRecord&, auto, uint64_t offset, auto) -> Status {
    if (offset < 8u << 20) return {};
    return Error{"the layout says no"};
  };
  const auto paths = export_gguf(*plan, dir.path("out.gguf"), unpack, 4);
  ASSERT_FALSE(paths.ok());
  EXPECT_EQ(paths.error().message, "the layout says no");
  EXPECT_FALSE(fs::exists(dir.path("out.gguf")));
  EXPECT_FALSE(fs::exists(dir.path("out.gguf.work")));
}

TEST(ExportGguf, RefusesATensorThatThePlanLacks) {
  TempDir dir;
  TinyPlan tiny = make_tiny_plan();
  tiny.add_tensor("left.out", DType::F32, 1, 4);
  tiny.finish();
  const auto paths = export_tiny(tiny, dir);
  ASSERT_FALSE(paths.ok());
  EXPECT_THAT(paths.error().message,
              HasSubstr("tensor 'left.out' is in the plan with 0 of its 16"));
  EXPECT_FALSE(fs::exists(dir.path("out.gguf")));
  EXPECT_FALSE(fs::exists(dir.path("out.gguf.work")));
}

TEST(ExportGguf, RefusesToOverwriteThePlan) {
  TempDir dir;
  ASSERT_TRUE(write_plan(make_tiny_plan(), dir.path("p")).ok());
  const auto plan = PlanFile::open(dir.path("p"));
  ASSERT_TRUE(plan.ok());
  const auto paths = export_gguf(*plan, dir.path("p"));
  ASSERT_FALSE(paths.ok());
  EXPECT_THAT(paths.error().message, HasSubstr("this is the plan itself"));
}

}  // namespace
}  // namespace ktx::plan
