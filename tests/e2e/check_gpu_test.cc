// Runs tools/dev/check-gpu as on a machine without sources (DIR/run), with scripts in place of
// the test programs: how it sums up their results.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

constexpr const char* kPassed = "echo '[  PASSED  ] 3 tests.'";
constexpr const char* kSkipped = R"(echo '[  SKIPPED ] Gpu.Adds (0 ms)'
echo '[  PASSED  ] 0 tests.'
echo '[  SKIPPED ] 2 tests, listed below:'
echo '[  SKIPPED ] Gpu.Adds')";
constexpr const char* kFailed = R"(echo '[  FAILED  ] Gpu.Adds (1 ms)'
echo '[  PASSED  ] 4 tests.'
echo '[  FAILED  ] 2 tests, listed below:'
exit 1)";

void write_program(const TempDir& dir, const std::string& name, const std::string& body) {
  dir.write(name,
            "#!/bin/sh\necho " + name + " \"$@\" >> \"$(dirname \"$0\")/calls\"\n" + body + "\n");
  std::filesystem::permissions(dir.path(name), std::filesystem::perms::owner_all);
}

// With these bodies of the two test programs.
Finished check_gpu(const TempDir& dir, const std::string& kernels, const std::string& models,
                   const std::vector<std::string>& arguments = {},
                   const std::string& shards = "1") {
  std::filesystem::copy_file(source_dir() + "/tools/dev/check-gpu", dir.path("run"),
                             std::filesystem::copy_options::overwrite_existing);
  write_program(dir, "test_cuda_kernels", kernels);
  write_program(dir, "test_gpu", models);
  std::vector<std::string> command = {"/usr/bin/env", "bash", dir.path("run")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_program(
      command, "",
      {"PATH=" + dir.path() + ":" + std::getenv("PATH"), "KTX_CHECK_SHARDS=" + shards});
}

TEST(CheckGpu, AddsUpWhatBothProgramsPassed) {
  const TempDir dir;
  const Finished run = check_gpu(dir, kPassed, kPassed);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "check-gpu: passed: 6 passed, 0 skipped\n");
  EXPECT_EQ(read_file(dir.path("calls")), "test_cuda_kernels\ntest_gpu\n");
}

TEST(CheckGpu, SaysThatNothingRanWhereNoGpuOpens) {
  const TempDir dir;
  const Finished run = check_gpu(dir, kSkipped, kSkipped);
  EXPECT_EQ(run.status, 77) << run.err;
  EXPECT_EQ(run.out,
            "check-gpu: SKIPPED: no GPU can be opened, all 4 tests skipped; the tests say why\n");
}

TEST(CheckGpu, RunsTheOtherProgramAfterAFailureAndFails) {
  const TempDir dir;
  const Finished run = check_gpu(dir, kFailed, kPassed);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "check-gpu: FAILED: 2 failed, 7 passed, 0 skipped\n");
}

TEST(CheckGpu, AProgramThatDiesOrRunsNoTestIsAFailure) {
  const TempDir dir;
  EXPECT_EQ(check_gpu(dir, "kill -SEGV $$", kPassed).out,
            "check-gpu: FAILED: 1 failed, 3 passed, 0 skipped\n");
  EXPECT_EQ(check_gpu(dir, kPassed, "echo '[  PASSED  ] 0 tests.'").out,
            "check-gpu: FAILED: 1 failed, 3 passed, 0 skipped\n");
}

TEST(CheckGpu, AddsUpOverShards) {
  const TempDir dir;
  // Sums over GPUs run apart. The first shard has no test, which is no failure.
  const char* shard = R"([ "$1" != '--gtest_filter=*CudaAllReduce*' ] || GTEST_SHARD_INDEX=4
[ "$GTEST_TOTAL_SHARDS-$GTEST_SHARD_INDEX" = 1-4 ] || [ "$GTEST_TOTAL_SHARDS" = 3 ] || exit 1
echo "[  PASSED  ] $GTEST_SHARD_INDEX tests.")";
  EXPECT_EQ(check_gpu(dir, shard, shard, {}, "3").out, "check-gpu: passed: 10 passed, 0 skipped\n");
  const char* last_dies = R"(echo "[  PASSED  ] 2 tests."
[ "$GTEST_SHARD_INDEX" != 2 ])";
  const Finished run = check_gpu(dir, shard, last_dies, {}, "3");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "check-gpu: FAILED: 1 failed, 13 passed, 0 skipped\n");
  EXPECT_EQ(check_gpu(dir, kPassed, kPassed, {}, "many").status, 2);
}

TEST(CheckGpu, SanitizesKernelsAndModelsWithBothTools) {
  const TempDir dir;
  write_program(dir, "compute-sanitizer",
                R"(while [ "${1#--}" != "$1" ]; do case $1 in --tool) shift;; --error*) shift;; esac
shift; done
exec "$@")");
  const Finished run = check_gpu(dir, kPassed, kPassed, {"--sanitize"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "check-gpu: passed: 12 passed, 0 skipped\n");
  const std::string calls = read_file(dir.path("calls"));
  for (const char* tool : {"memcheck", "racecheck"}) {
    for (const char* program : {"test_cuda_kernels", "test_gpu"}) {
      EXPECT_NE(calls.find(std::string("compute-sanitizer --tool ") + tool +
                           " --error-exitcode 9 " + dir.path(program)),
                std::string::npos)
          << calls;
    }
  }
}

TEST(CheckGpu, WrongUsageIsExplained) {
  const TempDir dir;
  const Finished run = check_gpu(dir, kPassed, kPassed, {"--fast"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("tools/dev/check-gpu --sanitize"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(dir.path("calls")));
}

}  // namespace
}  // namespace ktx::testing
