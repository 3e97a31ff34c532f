// Adapters merged into a plan's weights (ktx-compile --merge): the GGUF that comes out of the plan
// has W + scale * alpha / rank * B A of each tensor, as near as its format can, and every other
// byte of the model.
#include <gtest/gtest.h>

#include <cmath>

#include "lib/input/gguf.h"
#include "lib/plan/plan_reader.h"
#include "tests/support/lora_gguf.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

std::vector<float> floats_of(const input::GgufTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elems));
  dequantize_row(tensor.dtype, tensor.bytes.data(), tensor.elems, out.data());
  return out;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    squares += double{x[i]} * x[i];
  }
  return std::sqrt(error / squares);
}

// Bounds for random weights, which unlike merged ones are not a sum of levels and an adapter.
double largest_error(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return 1e-6;
    case DType::F16:
      return 3e-4;
    case DType::Q8_0:
      return 0.01;
    case DType::Q6_K:
      return 0.03;
    default:
      return 0.1;
  }
}

struct MergedModel {
  const char* name;
  const char* types;
  LoraSpec spec = {};
  const char* rules = "cpu-only.yaml";
};
void PrintTo(const MergedModel& model, std::ostream* out) {
  *out << model.name << ' ' << model.types << ' ' << model.rules;
}

class MergedAdapters : public ::testing::TestWithParam<MergedModel> {
 protected:
  void SetUp() override {
    if (test_model_dir(GetParam().name).empty()) GTEST_SKIP() << "no " << GetParam().name;
    write_model(GetParam().name, GetParam().types);
    const auto gguf = input::GgufFile::open(base_);
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ASSERT_TRUE(write_lora(*gguf, GetParam().spec, adapter_));
    LoraSpec more = GetParam().spec;
    more.seed = 7;
    more.rank = 3;
    ASSERT_TRUE(write_lora(*gguf, more, dir_.path("b.gguf")));
  }
  void write_model(const char* name, const char* types) {
    const auto config =
        input::HfConfig::parse(read_file(test_model_dir(name) + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = types, .strong = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(base_));
  }
  Finished compile(const std::string& model, const std::string& plan,
                   const std::vector<std::string>& more) const {
    std::vector<std::string> line = {ktx_compile(),
                                     model,
                                     "-o",
                                     plan,
                                     source_dir() + "/rules/" + GetParam().rules,
                                     "--target=" + source_dir() + "/targets/h200.yaml"};
    line.insert(line.end(), more.begin(), more.end());
    return run_program(line);
  }
  Finished export_gguf(const std::string& plan, const std::string& gguf) const {
    return run_program({ktx_run(), "inspect", plan, "--export-gguf", gguf});
  }

  const TempDir dir_;
  const std::string base_ = dir_.path("base.gguf"), adapter_ = dir_.path("a.gguf"),
                    plan_ = dir_.path("m.ktxplan");
};

TEST_P(MergedAdapters, AreInTheWeights) {
  const std::vector<std::string> merge = {"--merge", adapter_ + ":0.5", "--merge",
                                          dir_.path("b.gguf") + ":-1", "--lossy"};
  const Finished compiled = compile(base_, plan_, merge);
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  const bool rounds = std::string_view(GetParam().types) != "f32";
  EXPECT_EQ(compiled.err.find("merged, rounded: ") != std::string::npos, rounds) << compiled.err;
  const std::string out = dir_.path("out.gguf");
  const Finished exported = export_gguf(plan_, out);
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_NE(exported.err.find("its weights are not the model's: merged a at scale 0.5"),
            std::string::npos)
      << exported.err;

  const auto gguf = input::GgufFile::open(base_), found = input::GgufFile::open(out);
  ASSERT_TRUE(gguf.ok() && found.ok());
  const std::string reference = dir_.path("reference.gguf");
  ASSERT_TRUE(write_merged(*gguf, {{adapter_, 0.5}, {dir_.path("b.gguf"), -1}}, reference));
  const auto expected = input::GgufFile::open(reference);
  const auto adapter = input::GgufFile::open(adapter_);
  ASSERT_TRUE(expected.ok() && adapter.ok());
  ASSERT_EQ(found->tensors().size(), gguf->tensors().size());
  int merged = 0;
  for (const input::GgufTensor& tensor : gguf->tensors()) {
    const std::string name(tensor.name);
    const input::GgufTensor* const is = found->find(name);
    ASSERT_NE(is, nullptr);
    EXPECT_EQ(is->dtype, tensor.dtype);
    if (!adapter->has(name + ".lora_a")) {
      EXPECT_TRUE(std::ranges::equal(is->bytes, tensor.bytes)) << name;
      continue;
    }
    ++merged;
    const std::vector<float> to_be = floats_of(*expected->find(name));
    EXPECT_LE(relative_error(to_be, floats_of(*is)), largest_error(tensor.dtype))
        << name << " in " << ktx::name(tensor.dtype);
    // The adapters matter.
    EXPECT_GT(relative_error(to_be, floats_of(tensor)), 0.1) << name;
  }
  EXPECT_GT(merged, 0);

  // The plan of that GGUF has the same weights.
  const std::string again = dir_.path("again.ktxplan");
  ASSERT_EQ(compile(out, again, {}).status, 0);
  const auto a = plan::PlanFile::open(plan_), b = plan::PlanFile::open(again);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_EQ((*a)->blobs.size(), (*b)->blobs.size());
  for (size_t i = 0; i < (*a)->blobs.size(); ++i) {
    EXPECT_EQ((*a)->blobs[i].hash, (*b)->blobs[i].hash);
  }
  EXPECT_EQ((*a)->facts.merged, (std::vector<std::string>{"a at scale 0.5", "b at scale -1"}));
  EXPECT_TRUE((*b)->facts.merged.empty());
  EXPECT_NE((*a)->identity, (*b)->identity);
}

INSTANTIATE_TEST_SUITE_P(
    All, MergedAdapters,
    ::testing::Values(
        MergedModel{"llama", "f32"}, MergedModel{"llama", "q4_k_m", {.rank = 16}},
        MergedModel{"llama", "q8_0", {.dtype = DType::BF16}}, MergedModel{"llama", "q4_0"},
        MergedModel{"llama", "q4_k_m", {}, "all-gpu.yaml"},
        MergedModel{"qwen3moe",
                    "q4_k_m",
                    {.tensors = {".attn_q.", "_exps.", ".ffn_gate_inp.", "output.weight"}}},
        MergedModel{"deepseek2", "q8_0", {.tensors = {".attn_q", ".ffn_down", "_exps."}}}));

class MergeRefusals : public MergedAdapters {};

TEST_P(MergeRefusals, SayWhatToDo) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& message) {
    const Finished run = compile(base_, plan_, more);
    EXPECT_NE(run.status, 0);
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
    EXPECT_FALSE(std::filesystem::exists(plan_));
    EXPECT_TRUE(std::filesystem::exists(base_));
  };
  refused({"--merge", adapter_}, "add --lossy, or `lossy: allow` to the rules of their modules");
  refused({"--lossy"}, "--lossy is for the weights that --merge changes");
  refused({"--merge", adapter_, "--lossy", "--consume"}, "--consume does not go with --merge");
  refused({"--merge", adapter_, "--lossy", "--selftest", "1"},
          "no --selftest: an adapter is merged");
  refused({"--merge", base_, "--lossy"}, "general.type is 'model', expected 'adapter'");
  const auto gguf = input::GgufFile::open(base_);
  ASSERT_TRUE(gguf.ok());
  ASSERT_TRUE(write_lora(*gguf, {.tensors = {"token_embd."}}, dir_.path("embedding.gguf")));
  refused({"--merge", dir_.path("embedding.gguf"), "--lossy"},
          "(1 of 1 tensors):\n  token_embd.weight: it is 'weight' of model.embed_tokens");
  // A rule's consent is enough.
  dir_.write("allow.yaml", "version: 1\ndefaults: {lossy: allow}\nrules: []\n");
  const std::string allow = dir_.path("allow.yaml");
  const Finished allowed =
      run_program({ktx_compile(), base_, "-o", plan_, allow, "--merge", adapter_});
  EXPECT_EQ(allowed.status, 0) << allowed.err;

  // What is made of the plan again says so, and nothing of it is taken for the model's.
  const std::string next = dir_.path("next.ktxplan");
  const Finished reuse = compile(base_, next, {"--reuse", plan_});
  EXPECT_NE(reuse.err.find("has an adapter merged into its weights"), std::string::npos)
      << reuse.err;
  const Finished again = compile(plan_, next, {});
  ASSERT_EQ(again.status, 0) << again.err;
  const Finished shown = run_program({ktx_run(), "inspect", next});
  EXPECT_NE(shown.out.find("merged       a at scale 1\n"), std::string::npos) << shown.out;
  const Finished source = run_program({ktx_run(), "inspect", next, "--source-sha256"});
  EXPECT_NE(source.err.find("its weights are not the source's: merged a at scale 1"),
            std::string::npos)
      << source.err;
}

INSTANTIATE_TEST_SUITE_P(All, MergeRefusals, ::testing::Values(MergedModel{"llama", "q4_k_m"}));

}  // namespace
}  // namespace ktx::testing
