// Plans for one machine out of plans for another, without the GGUF, over all pairs of four targets;
// and --reuse, which copies packed weights that stay the same. The bytes are those of compiling the
// GGUF each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "lib/plan/plan_reader.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

struct Machine {
  const char* name;
  std::vector<std::string> words;
};

std::vector<Machine> four_targets() {
  const auto target = [](const std::string& name) {
    return "--target=" + source_dir() + "/targets/" + name + ".yaml";
  };
  const auto rule = [](const std::string& name) { return source_dir() + "/rules/" + name; };
  return {{"avx2", {target("desktop-avx2")}},
          {"amx", {target("sapphire-rapids"), "--inputs=bf16"}},
          {"gpu", {target("h200"), rule("all-gpu.yaml")}},
          {"hybrid", {target("rtx-4090"), rule("moe-experts-on-cpu.yaml")}}};
}

class Retarget : public ::testing::TestWithParam<const char*> {
 protected:
  Finished compile(const std::string& model, const Machine& machine, const std::string& plan,
                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {ktx_compile(), model, "-o", plan};
    command.insert(command.end(), machine.words.begin(), machine.words.end());
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command);
  }
  TempDir dir;
};

TEST_P(Retarget, GivesTheBytesOfTheGgufOverAllPairs) {
  const std::vector<Machine> machines = four_targets();
  std::map<std::string, std::string> direct;
  for (const Machine& machine : machines) {
    const std::string plan = dir.path(machine.name);
    const Finished run = compile(model_gguf(GetParam()), machine, plan);
    ASSERT_EQ(run.status, 0) << machine.name << run.err;
    direct[machine.name] = read_file(plan);
  }
  EXPECT_NE(direct["avx2"], direct["gpu"]);
  EXPECT_NE(direct["gpu"], direct["hybrid"]);
  const std::string again = dir.path("again.ktxplan");
  for (const Machine& from : machines) {
    for (const Machine& to : machines) {
      const Finished run = compile(dir.path(from.name), to, again, {"-q"});
      ASSERT_EQ(run.status, 0) << from.name << " to " << to.name << run.err;
      EXPECT_TRUE(read_file(again) == direct[to.name]) << from.name << " to " << to.name;
    }
  }
}

// From the GGUF and from a plan, whatever the plan to reuse was made for.
TEST_P(Retarget, WithReuseGivesTheSameBytes) {
  const std::vector<Machine> machines = four_targets();
  std::map<std::string, std::string> direct;
  for (const Machine& machine : machines) {
    const Finished run = compile(model_gguf(GetParam()), machine, dir.path(machine.name), {"-q"});
    ASSERT_EQ(run.status, 0) << run.err;
    direct[machine.name] = read_file(dir.path(machine.name));
  }
  const std::string again = dir.path("again.ktxplan");
  for (const Machine& old : machines) {
    for (const Machine& to : machines) {
      const std::string model = old.name == to.name ? dir.path(old.name) : model_gguf(GetParam());
      const Finished run = compile(model, to, again, {"--reuse", dir.path(old.name)});
      ASSERT_EQ(run.status, 0) << old.name << " for " << to.name << run.err;
      EXPECT_THAT(run.err, HasSubstr("reused: ")) << run.err;
      EXPECT_TRUE(read_file(again) == direct[to.name]) << old.name << " for " << to.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Retarget, ::testing::Values("llama", "qwen3moe", "deepseek3"),
                         [](const auto& info) { return std::string(info.param); });

class Reuse : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(compile({model_gguf("qwen3moe"), target("sapphire-rapids"), "-o", old}).status, 0);
  }
  static std::string target(const std::string& name) {
    return "--target=" + source_dir() + "/targets/" + name + ".yaml";
  }
  static Finished compile(const std::vector<std::string>& words) {
    std::vector<std::string> command = {ktx_compile()};
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command);
  }
  // The plan with a flipped bit in a weight.
  std::string damaged() {
    std::string bytes = read_file(old);
    const auto opened = plan::PlanFile::open(old);
    EXPECT_TRUE(opened.ok());
    for (const plan::BlobRecord& blob : (*opened)->blobs) {
      if ((*opened)->string(blob.name).starts_with("blk.0.attn_q.weight")) bytes[blob.offset] ^= 4;
    }
    return dir.write("damaged.ktxplan", bytes);
  }
  // The numbers of "reused: 3 of 7 packed weights".
  static std::pair<int, int> counts(const Finished& run) {
    int count = -1, all = -1;
    const size_t at = run.err.find("reused: ");
    if (at != std::string::npos) {
      std::sscanf(run.err.c_str() + at, "reused: %d of %d packed weights", &count, &all);
    }
    return {count, all};
  }
  TempDir dir;
  std::string old = dir.path("old.ktxplan"), plan = dir.path("new.ktxplan");
};

TEST_F(Reuse, CopiesWhatStaysAndPacksTheRest) {
  const auto [all, of_all] = counts(compile(
      {model_gguf("qwen3moe"), target("sapphire-rapids"), "--ctx=2k", "--reuse", old, "-o", plan}));
  EXPECT_GT(all, 20);
  EXPECT_EQ(all, of_all);
  const std::string rule = dir.write(
      "rule.yaml",
      "- {match: {name: \"^model\\\\.layers\\\\.0\\\\.mlp\\\\.experts$\"}, replace: {layout: rows}}\n");
  const auto [some, of_some] = counts(compile(
      {model_gguf("qwen3moe"), rule, target("sapphire-rapids"), "--reuse", old, "-o", plan}));
  EXPECT_EQ(some, all - 3);  // gate, up and down are no longer packed
  EXPECT_EQ(of_some, all - 3);
  const auto [none, of_none] =
      counts(compile({model_gguf("qwen3moe"), target("h200"), "--reuse", old, "-o", plan}));
  EXPECT_EQ(none, 0);
  EXPECT_GT(of_none, 20);
}

// Where one tensor has other values, as a fine-tune has, the others are copied.
TEST_F(Reuse, PacksTensorsWithOtherValues) {
  std::string bytes = read_file(model_gguf("qwen3moe"));
  const auto opened = plan::PlanFile::open(old);
  ASSERT_TRUE(opened.ok());
  for (const plan::GgufTensorRecord& tensor : (*opened)->gguf_tensors) {
    if ((*opened)->string(tensor.name) == "blk.1.attn_q.weight") bytes[tensor.offset + 77] ^= 1;
  }
  const std::string tuned = dir.write("tuned.gguf", bytes), direct = dir.path("direct.ktxplan");
  ASSERT_EQ(compile({tuned, target("sapphire-rapids"), "-o", direct}).status, 0);
  const Finished run = compile({tuned, target("sapphire-rapids"), "--reuse", old, "-o", plan});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto [some, all] = counts(run);
  EXPECT_EQ(some, all - 1);
  EXPECT_TRUE(read_file(plan) == read_file(direct));
  EXPECT_FALSE(read_file(plan) == read_file(old));
}

TEST_F(Reuse, RefusesPlansOfOtherModels) {
  const Finished other =
      compile({model_gguf("llama"), target("sapphire-rapids"), "--reuse", old, "-o", plan});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("old.ktxplan: a plan of another model: it has"));
  EXPECT_THAT(other.err, HasSubstr("give a plan of this model, or omit --reuse"));

  // The same tensors, each with another value.
  std::string bytes = read_file(model_gguf("qwen3moe"));
  const auto opened = plan::PlanFile::open(old);
  ASSERT_TRUE(opened.ok());
  for (const plan::GgufTensorRecord& tensor : (*opened)->gguf_tensors) bytes[tensor.offset] ^= 1;
  const Finished tuned = compile(
      {dir.write("tuned.gguf", bytes), target("sapphire-rapids"), "--reuse", old, "-o", plan});
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.err, HasSubstr("in the same layout have other values"));

  EXPECT_EQ(compile({model_gguf("qwen3moe"), "--reuse", dir.path("none"), "-o", plan}).status, 1);
  EXPECT_EQ(compile({model_gguf("qwen3moe"), "--reuse", model_gguf("llama"), "-o", plan}).status,
            1);
  EXPECT_THAT(read_file(old), HasSubstr("KTXPLAN"));
}

// What is copied is hashed: a flipped bit does not get into the new plan.
TEST_F(Reuse, RefusesDamagedWeights) {
  const Finished run = compile(
      {model_gguf("qwen3moe"), target("sapphire-rapids"), "--reuse", damaged(), "-o", plan});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("of the plan to reuse is damaged; compile without it"));
  EXPECT_EQ(read_file(plan), "");
}

// A flipped bit also stays out of plans and GGUFs that are made from the damaged plan alone.
TEST_F(Reuse, DamagedPlansAreNoSource) {
  const std::string source = damaged(), gguf = dir.path("out.gguf");
  const Finished runs[] = {compile({source, target("h200"), "-o", plan}),
                           run_program({ktx_run(), "inspect", source, "--export-gguf", gguf})};
  for (const Finished& run : runs) {
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr("damaged.ktxplan: weight 'blk.0.attn_q.weight"));
    EXPECT_THAT(run.err, HasSubstr(" is damaged; compile again"));
  }
  EXPECT_FALSE(std::filesystem::exists(plan));
  EXPECT_FALSE(std::filesystem::exists(gguf));
}

}  // namespace
}  // namespace ktx::testing
