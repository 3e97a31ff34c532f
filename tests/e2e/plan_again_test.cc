// Plans that are placed again (tools/ktx-compile/plan_input.h): compiled from a plan, without the
// GGUF.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/plan/device_memory.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

class PlanAgain : public ::testing::Test {
 protected:
  std::string rule(const std::string& name) const { return source_dir() + "/rules/" + name; }
  std::string target(const std::string& name) const {
    return "--target=" + source_dir() + "/targets/" + name + ".yaml";
  }
  Finished compile(const std::vector<std::string>& words) {
    std::vector<std::string> command = {ktx_compile()};
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.path(""))) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  TempDir dir;
};

// Whatever the first plan was for, the second is that of the GGUF, byte for byte.
TEST_F(PlanAgain, IsThePlanOfTheGguf) {
  const std::string gguf = dir.write("m.gguf", read_file(model_gguf("qwen3moe")));
  const std::string first = dir.path("first.ktxplan"), again = dir.path("again.ktxplan"),
                    direct = dir.path("direct.ktxplan");
  struct Machine {
    std::vector<std::string> words;
  };
  const std::vector<std::string> machines[] = {
      {rule("moe-experts-on-cpu.yaml"), target("h200")},
      {rule("all-gpu.yaml"), target("rtx-4090"), "--ctx", "2k"},
      {rule("cpu-only.yaml"), target("zen4")}};
  for (const auto& from : machines) {
    std::vector<std::string> words = {gguf, "-q", "-o", first};
    words.insert(words.end(), from.begin(), from.end());
    ASSERT_EQ(compile(words).status, 0);
    for (const auto& to : machines) {
      std::vector<std::string> of_gguf = {gguf, "-q", "-o", direct}, of_plan = {first, "-o", again};
      of_gguf.insert(of_gguf.end(), to.begin(), to.end());
      of_plan.insert(of_plan.end(), to.begin(), to.end());
      ASSERT_EQ(compile(of_gguf).status, 0);
      const Finished run = compile(of_plan);
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_THAT(run.err, HasSubstr("its GGUF was rebuilt"));
      EXPECT_TRUE(read_file(again) == read_file(direct));
    }
  }
  EXPECT_THAT(files(),
              ::testing::ElementsAre("again.ktxplan", "direct.ktxplan", "first.ktxplan", "m.gguf"));
}

TEST_F(PlanAgain, MayTakeThePlaceOfTheOldOne) {
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(
      compile({"-q", model_gguf("llama"), rule("all-gpu.yaml"), target("h200"), "-o", plan}).status,
      0);
  EXPECT_TRUE(plan::uses_gpus(plan::PlanFile::open(plan)->view()));
  const Finished run = compile({plan, rule("cpu-only.yaml"), "-o", plan});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(plan::uses_gpus(plan::PlanFile::open(plan)->view()));
  EXPECT_EQ(run_program({ktx_run(), "inspect", plan, "--verify"}).status, 0);
  EXPECT_THAT(files(), ::testing::ElementsAre("m.ktxplan"));
}

TEST_F(PlanAgain, IsCheckedAndEstimatedWithoutWeights) {
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(
      compile({"-q", model_gguf("qwen3moe"), rule("cpu-only.yaml"), target("zen4"), "-o", plan})
          .status,
      0);
  const Finished of_plan = compile({plan, "--estimate", target("rtx-4090")});
  const Finished of_gguf = compile({model_gguf("qwen3moe"), "--estimate", target("rtx-4090")});
  EXPECT_EQ(of_plan.status, 0) << of_plan.err;
  EXPECT_EQ(of_plan.out, of_gguf.out);
  EXPECT_EQ(compile({plan, "--emit=launches", target("rtx-4090")}).out,
            compile({model_gguf("qwen3moe"), "--emit=launches", target("rtx-4090")}).out);
  EXPECT_THAT(files(), ::testing::ElementsAre("m.ktxplan"));
}

TEST_F(PlanAgain, SaysWhatIsMissing) {
  const std::string plan = dir.path("m.ktxplan"), other = dir.path("o.ktxplan");
  ASSERT_EQ(compile({"-q", model_gguf("llama"), rule("cpu-only.yaml"), "-o", plan}).status, 0);
  const Finished no_output = compile({plan});
  EXPECT_EQ(no_output.status, 2);
  EXPECT_THAT(no_output.err, HasSubstr("or place it again for this machine: ktx-compile " + plan));
  const Finished two = compile({model_gguf("llama"), plan});
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.err, HasSubstr("the plan to write is named with -o"));

  const std::string rounded =
      dir.write("rounded.yaml",
                "- {match: {name: \".\"}, replace: {device: cpu, layout: Q8_0, lossy: allow}}\n");
  ASSERT_EQ(compile({"-q", model_gguf("qwen3moe"), rounded, "-o", other}).status, 0);
  const Finished lossy = compile({other, "-o", plan});
  EXPECT_EQ(lossy.status, 1);
  EXPECT_THAT(lossy.err, HasSubstr("a rule had weights rounded"));

  std::string damaged = read_file(plan);
  damaged.resize(damaged.size() / 2);
  dir.write("half.ktxplan", damaged);
  const Finished half = compile({dir.path("half.ktxplan"), "-o", other});
  EXPECT_EQ(half.status, 1);
  EXPECT_THAT(half.err, Not(IsEmpty()));
  for (const std::string& name : files()) EXPECT_FALSE(name.ends_with(".work")) << name;
}

}  // namespace
}  // namespace ktx::testing
