// ktx-run inspect of two plans (--diff), and where a plan came from (--provenance, --cyclonedx).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/support/strings.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class InspectPlans : public ::testing::Test {
 protected:
  std::string compile(const std::string& gguf, std::vector<std::string> options = {}) {
    const std::string plan = dir_.path("m" + std::to_string(plans_++) + ".ktxplan");
    std::vector<std::string> command = {ktx_compile(), "-q", gguf, "-o", plan};
    command.insert(command.end(), options.begin(), options.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    return plan;
  }
  Json diff(const std::string& a, const std::string& b) {
    const Finished run = run_program({ktx_run(), "inspect", "--diff", a, b, "--json"});
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  }
  // The row of a list, by what it is about.
  static Json row(const Json& rows, const std::string& what) {
    for (const Json& each : rows) {
      if (each["what"] == what) return {each["first"], each["second"]};
    }
    return nullptr;
  }

  TempDir dir_;
  int plans_ = 0;
};

TEST_F(InspectPlans, PlansOfTheSameModelSayTheSame) {
  const std::string plan = compile(model_gguf("llama"));
  const Json same = diff(plan, compile(model_gguf("llama")));
  EXPECT_EQ(same["equal"], true);
  EXPECT_EQ(same["tensors"], same["equal_tensors"]);
  const Finished text = run_program({ktx_run(), "inspect", "--diff", plan, plan});
  EXPECT_THAT(text.out, HasSubstr("tensors have the same values\nthe plans say the same\n"));
}

// Lines of weights (in a plan they stand by device, and those that it only carries are on none),
// and all others.
std::pair<std::set<std::string>, std::vector<std::string>> lines_of(const std::string& text) {
  std::set<std::string> weights;
  std::vector<std::string> others;
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with("blob ")) {
      others.emplace_back(line);
    } else if (line.find(" device=none") == line.npos) {
      weights.emplace(line);
    }
  }
  return {weights, others};
}

TEST_F(InspectPlans, EmitPrintsTheProgramAsTheCompilerDid) {
  const std::vector<std::vector<std::string>> placements = {
      {},
      {source_dir() + "/rules/moe-experts-on-cpu.yaml",
       "--target=" + source_dir() + "/targets/h200.yaml"}};
  for (const std::vector<std::string>& options : placements) {
    const std::string plan = compile(model_gguf("qwen3moe"), options);
    std::vector<std::string> command = {ktx_compile(), "-q", model_gguf("qwen3moe"),
                                        "--emit=step-ir"};
    command.insert(command.end(), options.begin(), options.end());
    const Finished compiled = run_program(command);
    const Finished read = run_program({ktx_run(), "inspect", plan, "--emit=step-ir"});
    ASSERT_EQ(read.status, 0) << read.err;
    const auto [weights, others] = lines_of(read.out);
    EXPECT_EQ(weights, lines_of(compiled.out).first);
    EXPECT_EQ(others, lines_of(compiled.out).second);
    // What was printed is a program again.
    const std::string file = dir_.path("steps.ktxir");
    std::ofstream(file) << read.out;
    EXPECT_EQ(run_program({ktx_compile(), file}).out, read.out);
  }
}

TEST_F(InspectPlans, EmitPrintsTheModuleGraph) {
  const std::string plan = compile(model_gguf("llama"));
  const Finished read = run_program({ktx_run(), "inspect", plan, "--emit=module-ir"});
  EXPECT_EQ(read.status, 0) << read.err;
  EXPECT_EQ(read.out,
            run_program({ktx_compile(), "-q", model_gguf("llama"), "--emit=module-ir"}).out);
}

// Other places and layouts of the same weights: unpacked, they are the same.
TEST_F(InspectPlans, PlacementAndLayoutsDifferWhereWeightsDoNot) {
  const std::string a = compile(model_gguf("qwen3moe"));
  const std::string b =
      compile(model_gguf("qwen3moe"), {source_dir() + "/rules/moe-experts-on-cpu.yaml",
                                       "--target=" + source_dir() + "/targets/h200.yaml"});
  const Json found = diff(a, b);
  EXPECT_EQ(found["equal"], false);
  EXPECT_EQ(found["tensors"], found["equal_tensors"]);
  EXPECT_TRUE(found["weights"].empty());
  EXPECT_EQ(row(found["placement"], "model.layers.0-2.self_attn.q_proj"), (Json{"cpu", "cuda:0"}));
  EXPECT_EQ(row(found["layouts"], "blk.0-2.ffn_up_exps.weight"), nullptr);  // stays on the CPU
  EXPECT_EQ(row(found["layouts"], "blk.0-2.attn_q.weight"),
            (Json{"cpu Q4_K panel16", "cuda:0 Q4_K marlin"}));
  EXPECT_EQ(row(found["facts"], "target name"), (Json{"host", "h200"}));
}

TEST_F(InspectPlans, RoundedWeightsAreNamedByLayers) {
  const std::string rules = dir_.write("r.yaml",
                                       "- match: {name: \"\\\\.mlp\\\\.up_proj$\"}\n"
                                       "  replace: {layout: int4_g128, lossy: allow}\n");
  const Json found = diff(compile(model_gguf("llama")), compile(model_gguf("llama"), {rules}));
  EXPECT_EQ(found["equal_tensors"].get<int>() + 3, found["tensors"].get<int>());
  EXPECT_EQ(row(found["weights"], "blk.0-2.ffn_up.weight"), (Json{"as in the GGUF", "rounded"}));
  EXPECT_EQ(row(found["facts"], "model lossy"), (Json{"false", "true"}));
  EXPECT_TRUE(row(found["facts"], "from rules 1")[0] == "");
}

// One changed weight of the source, in a layout that hides it, is found and named.
TEST_F(InspectPlans, AChangedWeightIsNamed) {
  std::string gguf = read_file(model_gguf("llama"));
  gguf[gguf.size() - 100] ^= 1;  // in the data of the last tensor
  const std::string changed = dir_.write("changed.gguf", gguf);
  std::filesystem::copy(model_dir("llama") + "/config.json", dir_.path("config.json"));
  const std::string a = compile(model_gguf("llama"));
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{},
        std::vector<std::string>{"--target=" + source_dir() + "/targets/h200.yaml"}}) {
    const Json found = diff(a, compile(changed, options));
    EXPECT_EQ(found["equal_tensors"].get<int>() + 1, found["tensors"].get<int>());
    ASSERT_EQ(found["weights"].size(), 1u);
    EXPECT_EQ(found["weights"][0]["first"], "other values");
  }
}

TEST_F(InspectPlans, OfDifferentModelsEachTensorIsReported) {
  const Json found = diff(compile(model_gguf("llama")), compile(model_gguf("qwen3moe")));
  EXPECT_LT(found["equal_tensors"].get<int>(), found["tensors"].get<int>());
  EXPECT_EQ(row(found["facts"], "model architecture"), (Json{"llama", "qwen3moe"}));
  EXPECT_FALSE(row(found["facts"], "tokenizer").is_null());
}

TEST_F(InspectPlans, ProvenanceHasWhatTheGgufSaysAndTheOptions) {
  const std::string plan = compile(model_gguf("llama"), {"--inputs=bf16"});
  const Finished text = run_program({ktx_run(), "inspect", plan, "--provenance"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("made by      ktx "));
  EXPECT_THAT(text.out, HasSubstr("option       --inputs=bf16"));
  EXPECT_THAT(text.out, HasSubstr("from         gguf of "));
  const Finished json = run_program({ktx_run(), "inspect", plan, "--provenance", "--json"});
  const Json found = Json::parse(json.out, nullptr, false);
  EXPECT_EQ(found["architecture"], "llama");
  EXPECT_EQ(found["general"]["architecture"], "llama");
  EXPECT_EQ(found["options"][0], "--inputs=bf16");
  const Finished both = run_program({ktx_run(), "inspect", plan, "--provenance", "--diff", plan});
  EXPECT_EQ(both.status, 2);
}

// The digest of the file that the plan was made from, in any layout; for a rounded plan there is
// none.
TEST_F(InspectPlans, SourcesAreNamedByTheirSha256) {
  for (const char* model : {"qwen3moe", "llama"}) {
    const Finished expected = run_program({"/usr/bin/sha256sum", model_gguf(model)});
    ASSERT_EQ(expected.status, 0);
    for (const std::string& target : {std::string(), source_dir() + "/targets/h200.yaml"}) {
      std::vector<std::string> options;
      if (!target.empty()) options.push_back("--target=" + target);
      const Finished run = run_program(
          {ktx_run(), "inspect", compile(model_gguf(model), options), "--source-sha256"});
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(run.out.substr(0, 64), expected.out.substr(0, 64));
    }
  }
  const std::string rules = dir_.write("r.yaml",
                                       "- match: {name: \"\\\\.mlp\\\\.up_proj$\"}\n"
                                       "  replace: {layout: int4_g128, lossy: allow}\n");
  const Finished refused =
      run_program({ktx_run(), "inspect", compile(model_gguf("llama"), {rules}), "--source-sha256"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("is not in the plan as the source had it"));
}

TEST_F(InspectPlans, BillsOfMaterialsNameTheFileByItsSha256) {
  const std::string plan = compile(model_gguf("llama"));
  const std::string bill = dir_.path("bom.json");
  const Finished run =
      run_program({ktx_run(), "inspect", plan, "--provenance", "--cyclonedx", bill});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json found = Json::parse(read_file(bill), nullptr, false);
  EXPECT_EQ(found["bomFormat"], "CycloneDX");
  EXPECT_EQ(found["specVersion"], "1.6");
  const Json& model = found["metadata"]["component"];
  EXPECT_EQ(model["type"], "machine-learning-model");
  const Finished expected = run_program({"/usr/bin/sha256sum", plan});
  ASSERT_EQ(expected.status, 0);
  EXPECT_EQ(model["hashes"][0]["content"], expected.out.substr(0, 64));
  EXPECT_EQ(found["components"][0]["name"], "gguf");
  EXPECT_EQ(found["dependencies"][0]["dependsOn"][0], found["components"][0]["bom-ref"]);
  // The same plan gives the same bytes; what is no bill stays.
  const Finished again =
      run_program({ktx_run(), "inspect", plan, "--cyclonedx", dir_.path("b.json")});
  EXPECT_EQ(read_file(bill), read_file(dir_.path("b.json")));
  const Finished refused = run_program({ktx_run(), "inspect", plan, "--cyclonedx", plan});
  EXPECT_EQ(refused.status, 1);
}

}  // namespace
}  // namespace ktx::testing
