// docs/examples/read_plan.py, which knows docs/plan-format.md alone, reads what the compiler
// writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tests/unit/plan/plan_bytes.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;

Finished read_plan(const std::vector<std::string>& args) {
  std::vector<std::string> command = {"/usr/bin/env", "python3",
                                      source_dir() + "/docs/examples/read_plan.py"};
  command.insert(command.end(), args.begin(), args.end());
  return run_program(command);
}

Json parsed(const Finished& run) {
  EXPECT_EQ(run.status, 0) << run.err;
  return Json::parse(run.out, nullptr, false);
}

void expect_same(const std::string& plan) {
  const Json ours = parsed(run_program({ktx_run(), "inspect", plan, "--json"}));
  const Json theirs = parsed(read_plan({plan}));
  EXPECT_EQ(theirs["format"], ours["format"]);
  EXPECT_EQ(theirs["file_bytes"], ours["file_bytes"]);
  EXPECT_EQ(theirs["header_hash"], ours["header_hash"]);
  EXPECT_EQ(theirs["root"], ours.value("root", Json()));  // none before 3.7
  EXPECT_EQ(theirs["facts"], ours["facts"]);
  EXPECT_EQ(theirs["target"], ours["target"]);
  EXPECT_EQ(theirs["provenance"], ours["provenance"]);
  ASSERT_EQ(theirs["sections"].size(), ours["sections"].size());
  for (size_t i = 0; i < ours["sections"].size(); ++i) {
    for (const char* field : {"name", "offset", "size", "hash"}) {
      EXPECT_EQ(theirs["sections"][i][field], ours["sections"][i][field]);
    }
  }
  ASSERT_EQ(theirs["segments"].size(), ours["segments"].size());
  for (size_t i = 0; i < ours["segments"].size(); ++i) {
    EXPECT_EQ(theirs["segments"][i]["device"], ours["segments"][i]["device"]);
    EXPECT_EQ(theirs["segments"][i]["offset"], ours["segments"][i]["offset"]);
    EXPECT_EQ(theirs["segments"][i]["blob_count"], ours["segments"][i]["weights"]);
  }
  ASSERT_EQ(theirs["blobs"].size(), ours["weights"].size());
  for (size_t i = 0; i < ours["weights"].size(); ++i) {
    for (const char* field : {"name", "rows", "cols", "matrices", "offset", "size", "hash"}) {
      EXPECT_EQ(theirs["blobs"][i][field], ours["weights"][i][field]);
    }
  }
  EXPECT_GT(theirs["steps"].size(), 10u);
}

TEST(PythonReader, ReadsPlansOfEveryModelAndPlacement) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  for (const char* model : present_models()) {
    SCOPED_TRACE(model);
    for (const std::vector<std::string>& options :
         {std::vector<std::string>{},
          std::vector<std::string>{"--target=" + source_dir() + "/targets/h200.yaml"}}) {
      std::vector<std::string> command = {ktx_compile(), "-q", test_model_gguf(model), "-o", plan};
      command.insert(command.end(), options.begin(), options.end());
      const Finished run = run_program(command);
      ASSERT_EQ(run.status, 0) << run.err;
      expect_same(plan);
    }
  }
}

// A self-test, a drafter, weights divided by columns, experts on the CPU and streamed, rounded
// weights, two hosts; and each as formats 3.4 to 3.6 had it.
TEST(PythonReader, ReadsPlansOfEveryKind) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan"), gpu = source_dir() + "/tests/gpu/",
                    rules = source_dir() + "/rules/";
  const std::string rounded =
      dir.write("rounded.yaml",
                "version: 1\nrules:\n"
                "  - {match: {name: \"lm_head\"}, replace: {layout: Q8_0, lossy: allow}}\n");
  const std::string hosts = dir.write(
      "hosts.yaml",
      "network: {gbit: 10, latency_us: 50}\nhosts:\n"
      "  - {name: a, cpu: {isa: avx2, cores: 4}}\n  - {name: b, cpu: {isa: avx2, cores: 4}}\n");
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--selftest", "1"},
           {"--draft", model_gguf("qwen3moe")},
           {"--target=" + gpu + "two-h200.yaml", rules + "split-gpus.yaml"},
           {"--target=h200", rules + "moe-experts-on-cpu.yaml", "--prefer=stream-experts=4"},
           {rounded},
           {"--target=" + hosts}}) {
    SCOPED_TRACE(options.back());
    std::vector<std::string> command = {ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan};
    command.insert(command.end(), options.begin(), options.end());
    const Finished run = run_program(command);
    ASSERT_EQ(run.status, 0) << run.err;
    expect_same(plan);
    auto bytes = plan::read_bytes(plan);
    for (const uint16_t minor : {4, 5, 6}) {
      if (plan::prefix(bytes).min_reader_minor > minor) continue;
      const auto old = plan::as_format(bytes, minor);
      dir.write("m.ktxplan", {reinterpret_cast<const char*>(old.data()), old.size()});
      expect_same(plan);
    }
  }
}

TEST(PythonReader, GivesTheBytesOfAWeight) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan"), out = dir.path("weight");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan}).status, 0);
  const Json blob = parsed(read_plan({plan}))["blobs"][0];
  ASSERT_EQ(read_plan({plan, "--weight", blob["name"], out}).status, 0);
  EXPECT_EQ(read_file(out),
            read_file(plan).substr(blob["offset"].get<size_t>(), blob["size"].get<size_t>()));
}

// No traceback: a message with the file's name.
TEST(PythonReader, RefusesWhatIsNoPlan) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan}).status, 0);
  const std::string whole = read_file(plan);
  std::vector<std::string> wrong = {"", "KTXPLAN\x1a", whole.substr(0, 1000),
                                    whole.substr(0, whole.size() - 1),
                                    std::string(whole.size(), 'x')};
  std::string far = whole;
  far.replace(64 + 8, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");  // the place of the first section
  wrong.push_back(far);
  for (size_t i = 0; i < wrong.size(); ++i) {
    const Finished run = read_plan({dir.write("wrong.ktxplan", wrong[i])});
    EXPECT_EQ(run.status, 1) << i;
    EXPECT_EQ(run.out, "") << i;
    EXPECT_THAT(run.err, ::testing::HasSubstr("wrong.ktxplan: ")) << i;
    EXPECT_EQ(run.err.find("Traceback"), std::string::npos) << run.err;
  }
}

TEST(PythonReader, IsShort) {
  const std::string text = read_file(source_dir() + "/docs/examples/read_plan.py");
  EXPECT_LT(std::ranges::count(text, '\n'), 200);
}

}  // namespace
}  // namespace ktx::testing
