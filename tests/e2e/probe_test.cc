// ktx-run probe: a target file of this machine that ktx-compile reads.
#include <fmt/format.h>
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

TEST(Probe, MeasuresTheDiskOfAFile) {
  const TempDir dir;
  const std::string large = dir.write("large", std::string(size_t{64} << 20, 'x')),
                    small = dir.write("small", "x"), file = dir.path("machine.yaml");
  const Finished probed = run_program({ktx_run(), "probe", "--disk", large, "-o", file});
  ASSERT_EQ(probed.status, 0) << probed.err;
  EXPECT_THAT(read_file(file), HasSubstr(", disk_gbps: "));
  const Finished estimate = run_program(
      {ktx_compile(), "--check", model_gguf("qwen3moe"), "--target", file, "--estimate"});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  for (const std::string& wrong : {small, dir.path("none")}) {
    const Finished run = run_program({ktx_run(), "probe", "--disk", wrong});
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr(wrong));
  }
}

// With little memory it reads less, and where memory and caches cannot be distinguished it says so.
TEST(Probe, MeasuresWithLittleMemory) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), model_gguf("llama"), "-o", plan, "--ctx", "256"}).status,
            0);
  const std::string bench = ktx_run() + " bench " + plan + " -p 3 -n 1 -r 1 -t 1 -o csv";
  const std::string probe = ktx_run() + " probe";
  for (const char* kib : {"1000000", "300000"}) {
    for (const std::string& command : {bench, probe}) {
      const Finished run = run_program(
          {"/bin/bash", "-c", fmt::format("ulimit -c 0; ulimit -v {}; exec {}", kib, command)});
      EXPECT_EQ(run.status, 0) << kib << " KiB: " << command << ": " << run.err;
    }
  }
  const Finished none =
      run_program({"/bin/bash", "-c", "ulimit -c 0; ulimit -v 20000; exec " + probe});
  EXPECT_LT(none.status, 128) << "a message and no signal: " << none.err;
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
