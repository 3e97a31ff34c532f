// ktx-run probe: a target file of this machine that ktx-compile reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

TEST(Probe, WritesATargetThatPredictionsUse) {
  const TempDir dir;
  const std::string file = dir.path("machine.yaml");
  const Finished probed = run_program({ktx_run(), "probe", "-o", file});
  ASSERT_EQ(probed.status, 0) << probed.err;
  const Finished again = run_program({ktx_run(), "probe", "-o", file});
  EXPECT_EQ(again.status, 0) << "over its own file: " << again.err;
  const Finished estimate = run_program(
      {ktx_compile(), "--check", model_gguf("qwen3moe"), "--target", file, "--estimate"});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("GB/s (measured)"));
  EXPECT_THAT(estimate.out, HasSubstr("long prompts: "));
}

TEST(Probe, DoesNotOverwriteOtherFiles) {
  const TempDir dir;
  const std::string file = dir.write("notes.txt", "dear diary");
  const Finished probed = run_program({ktx_run(), "probe", "-o", file});
  EXPECT_EQ(probed.status, 1);
  EXPECT_EQ(read_file(file), "dear diary");
}

}  // namespace
}  // namespace ktx::testing
