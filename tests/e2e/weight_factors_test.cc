// Linears with a factor beside their weights ("X.scale", as NVFP4 files have them): half the
// weights and a factor of two are the model itself.
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

// The F32 weights of linears halved, with a factor of two each. Returns how many.
int halve(const input::GgufFile& gguf, const std::string& path) {
  input::GgufWriter writer;
  int count = 0;
  for (const input::GgufValue& value : gguf.metadata()) writer.copy(value);
  for (const input::GgufTensor& tensor : gguf.tensors()) {
    std::string name(tensor.name);
    if (!is_linear(name) || tensor.dtype != DType::F32) {
      writer.copy(tensor);
      continue;
    }
    std::vector<float> values(static_cast<size_t>(tensor.elems));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    for (float& x : values) x /= 2;
    const auto bytes = std::as_bytes(std::span(values));
    writer.add_tensor(name, DType::F32,
                      {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      {bytes.begin(), bytes.end()});
    const float two = 2;
    const auto factor = std::as_bytes(std::span(&two, 1));
    name.replace(name.rfind(".weight"), 7, ".scale");
    writer.add_tensor(name, DType::F32, {1}, {factor.begin(), factor.end()});
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

TEST_P(WeightFactors, AreAppliedOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
}

// Seven linears a layer and the head; DeepSeek-V3: five of its attention, three of a dense layer or
// of the shared expert; three layers.
INSTANTIATE_TEST_SUITE_P(All, WeightFactors,
                         ::testing::Values(FactorModel{"llama", false, 22},
                                           FactorModel{"llama", true, 16},
                                           FactorModel{"qwen3moe", false, 13},
                                           FactorModel{"deepseek3", false, 22}),
                         [](const auto& info) {
                           return std::string(info.param.name) + (info.param.fused ? "_fused" : "");
                         });

}  // namespace
}  // namespace ktx::testing
