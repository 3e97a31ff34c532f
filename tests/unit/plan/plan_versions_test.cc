// What docs/plan-format.md promises of versions: plans of all earlier versions of 3 are read, those
// of other major versions and of newer formats refused with what to do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/plan/plan_reader.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/plan/plan_bytes.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

using ktx::testing::TempDir;
using ::testing::HasSubstr;

class PlanVersions : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_plan(make_tiny_plan(), dir_.path("p")).ok());
    bytes_ = read_bytes(dir_.path("p"));
  }
  std::string error_of(const std::vector<std::byte>& bytes) {
    file_.set(bytes);
    const auto plan = PlanFile::open(file_.path(), {.verify_weights = true});
    if (plan) touch_everything(plan->view());
    return plan ? "" : plan.error().message;
  }
  std::vector<std::byte> with_prefix(uint16_t major, uint16_t minor, uint32_t least) {
    auto bytes = bytes_;
    prefix(bytes).major = major;
    prefix(bytes).minor = minor;
    prefix(bytes).min_reader_minor = least;
    fix_hashes(bytes);
    return bytes;
  }

  TempDir dir_;
  MemoryFile file_;
  std::vector<std::byte> bytes_;
};

TEST_F(PlanVersions, EveryEarlierOneIsRead) {
  for (uint16_t minor = 0; minor < kMinor; ++minor) {
    const auto old = as_format(bytes_, minor);
    EXPECT_EQ(error_of(old), "") << "3." << minor;
    file_.set(old);
    const auto plan = PlanFile::open(file_.path());
    EXPECT_EQ(plan->view().minor, minor);
    EXPECT_EQ(plan->view().digests.empty(), minor < 7);
  }
}

TEST_F(PlanVersions, OthersAreRefusedWithTheCommand) {
  EXPECT_THAT(error_of(with_prefix(2, 9, 0)),
              HasSubstr("plan format 2.9, this ktx-run reads 3.x; compile the model again: "
                        "ktx-compile MODEL.gguf -o PLAN.ktxplan [KTX-V001]"));
  EXPECT_THAT(error_of(with_prefix(4, 0, 0)), HasSubstr("use a newer ktx-run [KTX-V001]"));
  EXPECT_THAT(error_of(with_prefix(3, kMinor + 1, kMinor + 1)),
              HasSubstr(fmt::format("asks for a reader of 3.{}, this ktx-run is 3.{}; use a newer "
                                    "ktx-run [KTX-V001]",
                                    kMinor + 1, kMinor)));
  EXPECT_EQ(error_of(with_prefix(3, kMinor + 9, kMinor)), "");
}

}  // namespace
}  // namespace ktx::plan
