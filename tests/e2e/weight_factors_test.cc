// Linears with a factor beside their weights ("X.scale", as NVFP4 files have them), and experts
// with one each: half the weights and a factor of two are the model itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/fused_gguf.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

bool is_linear(std::string_view name) {
  for (const char* leaf :
       {".attn_q.weight", ".attn_k.weight", ".attn_v.weight", ".attn_qkv.weight",
        ".attn_output.weight", ".attn_q_a.weight", ".attn_q_b.weight", ".attn_kv_a_mqa.weight",
        ".ffn_gate.weight", ".ffn_up.weight", ".ffn_down.weight", ".ffn_gate_shexp.weight",
        ".ffn_up_shexp.weight", ".ffn_down_shexp.weight"}) {
    if (name.ends_with(leaf)) return true;
  }
  return name == "output.weight";
}

bool is_experts(std::string_view name, bool gate_and_up) {
  return name.ends_with(".ffn_down_exps.weight") ||
         (gate_and_up &&
          (name.ends_with(".ffn_gate_exps.weight") || name.ends_with(".ffn_up_exps.weight")));
}

// The F32 weights of linears halved, with a factor of two each, and those of experts divided by
// their own factors. Returns how many tensors.
int halve(const input::GgufFile& gguf, const std::string& path, bool gate_and_up = true) {
  input::GgufWriter writer;
  int count = 0;
  for (const input::GgufValue& value : gguf.metadata()) writer.copy(value);
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    std::string name(tensor.name);
    const bool experts = is_experts(name, gate_and_up);
    if ((!is_linear(name) && !experts) || tensor.dtype != DType::F32) {
      writer.copy(tensor);
      continue;
    }
    std::vector<float> values(static_cast<size_t>(tensor.elems));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    std::vector<float> factors(experts ? static_cast<size_t>(tensor.shape[2]) : 1);
    for (size_t i = 0; i < factors.size(); ++i) {
      factors[i] = 0.5f * static_cast<float>(1 << (2 - i % 3 + (name.find("up") != name.npos)));
    }
    const size_t each = values.size() / factors.size();
    for (size_t i = 0; i < values.size(); ++i) values[i] /= factors[i / each];
    const auto bytes = std::as_bytes(std::span(values));
    writer.add_tensor(name, DType::F32,
                      {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      {bytes.begin(), bytes.end()});
    const auto factor = std::as_bytes(std::span(factors));
    name.replace(name.rfind(".weight"), 7, ".scale");
    writer.add_tensor(name, DType::F32, {static_cast<int64_t>(factors.size())},
                      {factor.begin(), factor.end()});
    ++count;
  }
  EXPECT_TRUE(writer.write(path));
  return count;
}

struct FactorModel {
  const char* name;
  bool fused;
  int factors;
};

void PrintTo(const FactorModel& model, std::ostream* out) {
  *out << model.name;
}

class WeightFactors : public ::testing::TestWithParam<FactorModel> {
 protected:
  void SetUp() override {
    const std::string dir = test_model_dir(GetParam().name);
    const auto config = input::HfConfig::parse(read_file(dir + "/config.json"), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(dir_.path("plain.gguf")));
    auto gguf = input::GgufFile::open(dir_.path("plain.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    if (GetParam().fused) {
      ASSERT_TRUE(fuse_tensors(*gguf, dir_.path("fused.gguf")));
      gguf = input::GgufFile::open(dir_.path("fused.gguf"));
      ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    }
    EXPECT_EQ(halve(*gguf, dir_.path("halved.gguf")), GetParam().factors);
  }

  std::vector<float> logits(const std::string& name, const std::string& rules,
                            runtime::EngineOptions options) {
    const Finished run = run_program({ktx_compile(), "-q", dir_.path(name), "-o",
                                      dir_.path("m.ktxplan"), source_dir() + "/rules/" + rules,
                                      "--target=" + source_dir() + "/targets/h200.yaml"});
    EXPECT_EQ(run.status, 0) << run.err;
    options.threads = 2;
    options.precision = runtime::Precision::Exact;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.error().message;
      return {};
    }
    const std::vector<int32_t> tokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8};
    runtime::Sequence sequence = (*engine)->new_sequence();
    const runtime::BatchItem item{&sequence, tokens, runtime::Want::Last};
    const auto done = (*engine)->forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
    const auto row = (*engine)->logits(0);
    return {row.begin(), row.end()};
  }

  void compare(const std::string& rules, const runtime::EngineOptions& options) {
    const std::vector<float> plain = logits("plain.gguf", rules, options);
    const std::vector<float> halved = logits("halved.gguf", rules, options);
    ASSERT_EQ(halved.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      ASSERT_NEAR(halved[i], plain[i], 1e-5 * (1 + std::abs(plain[i]))) << i;
    }
  }

  const TempDir dir_;
};

TEST_P(WeightFactors, AreAppliedOnTheCpu) {
  compare("cpu-only.yaml", {});
  // And stay in the plan.
  ASSERT_EQ(run_program({ktx_run(), "inspect", dir_.path("m.ktxplan"), "--export-gguf",
                         dir_.path("out.gguf")})
                .status,
            0);
  EXPECT_EQ(read_file(dir_.path("out.gguf")), read_file(dir_.path("halved.gguf")));
}

// Experts with factors of gate and up are computed on the CPU, others on the GPU.
TEST_P(WeightFactors, AreAppliedOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
  const auto gguf =
      input::GgufFile::open(dir_.path(GetParam().fused ? "fused.gguf" : "plain.gguf"));
  ASSERT_TRUE(gguf.ok());
  halve(*gguf, dir_.path("halved.gguf"), false);
  compare("all-gpu.yaml", options);
}

TEST(ExpertFactors, OfGateAndUpKeepExpertsOnTheCpu) {
  const TempDir dir;
  const auto config =
      input::HfConfig::parse(read_file(test_model_dir("qwen3moe") + "/config.json"), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto plain = synth::synthesise(*config, {.types = "q4_k_m"});
  ASSERT_TRUE(plain.ok() && plain->write(dir.path("plain.gguf")));
  const auto gguf = input::GgufFile::open(dir.path("plain.gguf"));
  ASSERT_TRUE(gguf.ok());
  for (const char* of : {"down", "gate", "up"}) {
    input::GgufWriter writer;
    for (const input::GgufValue& value : gguf->metadata()) writer.copy(value);
    for (const input::GgufTensor& tensor : gguf->tensors()) writer.copy(tensor);
    const std::vector<float> ones(8, 1.0f);
    const auto bytes = std::as_bytes(std::span(ones));
    writer.add_tensor("blk.1.ffn_" + std::string(of) + "_exps.scale", DType::F32, {8},
                      {bytes.begin(), bytes.end()});
    ASSERT_TRUE(writer.write(dir.path("m.gguf")));
    const Finished run = run_program(
        {ktx_compile(), "--emit=module-ir", "--stop-after=place-devices", dir.path("m.gguf"),
         source_dir() + "/rules/all-gpu.yaml", "--target=" + source_dir() + "/targets/h200.yaml"});
    EXPECT_EQ(run.status, 0) << run.err;
    const bool kept =
        run.err.find(
            "model.layers.1.mlp.experts: no GPU kernel applies a factor to "
            "each expert's gate and up; it stays on the CPU [KTX-Q001]") != std::string::npos;
    EXPECT_EQ(kept, std::string(of) != "down") << run.err;
  }
}

// Seven linears a layer and the head; DeepSeek-V3: five of its attention, three of a dense layer or
// of the shared expert; three layers. Experts: three tensors a layer.
INSTANTIATE_TEST_SUITE_P(All, WeightFactors,
                         ::testing::Values(FactorModel{"llama", false, 22},
                                           FactorModel{"llama", true, 16},
                                           FactorModel{"qwen3moe", false, 22},
                                           FactorModel{"deepseek3", false, 28}),
                         [](const auto& info) {
                           return std::string(info.param.name) + (info.param.fused ? "_fused" : "");
                         });

}  // namespace
}  // namespace ktx::testing
