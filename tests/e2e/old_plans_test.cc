// Plans of earlier formats run, and answer as those of today (docs/plan-format.md, Versions).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_program.h"
#include "tests/unit/plan/plan_bytes.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

TEST(OldPlans, OfFormats34To36Run) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan}).status, 0);
  const auto answer = [&](const std::string& path) {
    return run_program(
        {ktx_run(), "generate", path, "--prompt-ids", "1,2,3", "-n", "8", "--temp", "0"});
  };
  const Finished now = answer(plan);
  ASSERT_EQ(now.status, 0) << now.err;
  const auto bytes = plan::read_bytes(plan);
  for (const uint16_t minor : {4, 5, 6}) {
    const auto old = plan::as_format(bytes, minor);
    const std::string path =
        dir.write("old.ktxplan", {reinterpret_cast<const char*>(old.data()), old.size()});
    const Finished then = answer(path);
    EXPECT_EQ(then.status, 0) << then.err;
    EXPECT_EQ(then.out, now.out) << "3." << minor;
    const Finished inspected = run_program({ktx_run(), "inspect", path, "--verify"});
    EXPECT_EQ(inspected.status, 0) << inspected.err;
    // What they have not: a root to sign.
    const Finished root = run_program({ktx_run(), "inspect", path, "--root"});
    EXPECT_EQ(root.status, 1);
    EXPECT_THAT(root.err, HasSubstr("without SHA-256 digests; compile it again"));
  }
}

}  // namespace
}  // namespace ktx::testing
