// Models that tests/models has no weights of, made of a config by the synthetic generator:
// compiled, run in exact precision on the CPU and on a GPU in host memory, and compared with the
// interpreter.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "lib/input/gguf_config.h"
#include "lib/reference/interpreter.h"
#include "lib/runtime/engine/engine.h"
#include "tests/support/diag_text.h"
#include "tests/support/fused_gguf.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/split_gguf.h"
#include "tests/support/synthetic_folders.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {
namespace {

// Heads, key and value heads and widths differ by layer.
constexpr const char* kUnequalLayers = R"({
  "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "head_dim": 32,
  "num_attention_heads": [4, 2, 6], "num_key_value_heads": [1, 2, 3],
  "intermediate_size": [96, 160, 64], "vocab_size": 320, "max_position_embeddings": 256})";

const std::vector<int32_t> kTokens = {7, 300, 12, 12, 255, 1, 64, 33, 290, 8, 15, 15};

// The results for each token: the best id, its logit, and the logit of id 0.
struct Logits {
  size_t best;
  float top, first;
};

// What a script beside the config makes of the same GGUF and kTokens.
std::vector<Logits> read_logits(const std::string& file) {
  std::vector<Logits> all;
  std::ifstream in(file);
  for (Logits one{}; in >> one.best >> one.top >> one.first;) all.push_back(one);
  return all;
}

struct SyntheticModel {
  std::string name;
  std::string config;
  std::vector<Logits> logits = {};  // computed apart from ktx
  bool strong = false;              // by which weights
  std::string types = "f32";
  uint64_t seed = 1;
  size_t pool_bytes = size_t{16} << 20;
};

void PrintTo(const SyntheticModel& model, std::ostream* out) {
  *out << model.name;
}

// The model of a folder of tests/models.
SyntheticModel folder(const std::string& name, const char* below = "synthetic/",
                      bool strong = true) {
  const std::string folder = source_dir() + "/tests/models/" + below + name;
  return {name, read_file(folder + "/config.json"), read_logits(folder + "/logits.txt"), strong};
}

// Encoders have a test of their own, encoder_models_test.cc.
std::vector<SyntheticModel> every_model() {
  std::vector<SyntheticModel> models = {{"UnequalLayers", kUnequalLayers},
                                        folder("olmo2", "", false)};
  for (const std::string& name : synthetic_folders("logits.txt")) models.push_back(folder(name));
  return models;
}

// Shapes of a family that its own folder does not have: a config of tests/models with other values.
// make_logits.py made synthetic/odd/<name>.txt of the result.
SyntheticModel odd(const char* name, const char* folder, const char* changes) {
  auto config =
      nlohmann::json::parse(read_file(source_dir() + "/tests/models/" + folder + "/config.json"));
  config.merge_patch(nlohmann::json::parse(changes));
  const std::string logits = source_dir() + "/tests/models/synthetic/odd/" + name + ".txt";
  return {name, config.dump(), read_logits(logits), true};
}

// The same with a type for each tensor, in sizes whose rows hold whole blocks of all types.
SyntheticModel mixed(const char* name, const char* folder, const char* changes, uint64_t seed) {
  SyntheticModel model = odd(name, folder, changes);
  model.types = "each";
  model.seed = seed;
  model.pool_bytes = size_t{1} << 18;  // of each type
  return model;
}

class SyntheticModels : public ::testing::TestWithParam<SyntheticModel> {
 protected:
  void SetUp() override {
    auto config = input::HfConfig::parse(GetParam().config, "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto writer = synth::synthesise(*config, {.types = GetParam().types,
                                                    .seed = GetParam().seed,
                                                    .strong = GetParam().strong,
                                                    .pool_bytes = GetParam().pool_bytes});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    ASSERT_TRUE(writer->write(dir_.path("m.gguf")));
    const auto gguf = input::GgufFile::open(dir_.path("m.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    DiagSink diags;
    const auto merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
    const auto graph = arch::build_graph(merged, &*gguf, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    EXPECT_TRUE(diags.all().empty()) << text_of(diags);
    auto model = reference::Interpreter::make(*graph, *gguf);
    ASSERT_TRUE(model.ok()) << model.error().message;
    for (const int32_t token : kTokens) wanted_.push_back(model->next(token));
  }

  // All tokens in one step, then one by one.
  void compare(const std::string& rules, runtime::EngineOptions options,
               const std::string& gguf = "m.gguf",
               const std::string& target = source_dir() + "/targets/h200.yaml") {
    SCOPED_TRACE(rules);
    const Finished run =
        run_program({ktx_compile(), "-q", dir_.path(gguf), "-o", dir_.path("m.ktxplan"),
                     source_dir() + "/rules/" + rules, "--target=" + target});
    ASSERT_EQ(run.status, 0) << run.err;
    options.precision = runtime::Precision::Exact;
    options.threads = 2;
    options.all_logits = true;
    auto engine = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    for (const size_t chunk : {kTokens.size(), size_t{1}}) {
      runtime::Sequence sequence = (*engine)->new_sequence();
      for (size_t at = 0; at < kTokens.size(); at += chunk) {
        const runtime::BatchItem item{&sequence, std::span(kTokens).subspan(at, chunk),
                                      runtime::Want::All};
        const auto done = (*engine)->forward({&item, 1});
        ASSERT_TRUE(done.ok()) << done.error().message;
        for (size_t t = 0; t < chunk; ++t) {
          compare_row((*engine)->logits(static_cast<int64_t>(t)), at + t);
        }
      }
    }
  }

  std::string some_gpus(int count) {
    return dir_.write("some.yaml", fmt::format(R"(name: some
gpus:
  - {{name: A, compute_capability: 9.0, memory_gib: 80, bandwidth_gbps: 3000, pcie_gbps: 50, count: {}}}
cpu: {{isa: avx512, cores: 8, memory_gib: 64, bandwidth_gbps: 100, numa_nodes: 1}}
)",
                                               count));
  }

  void compare_row(std::span<const float> found, size_t t) {
    const std::vector<float>& wanted = wanted_[t];
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(found[i], wanted[i], 1e-4 * (1 + std::abs(wanted[i]))) << t << ": " << i;
    }
  }

  const TempDir dir_;
  std::vector<std::vector<float>> wanted_;  // by token
};

TEST_P(SyntheticModels, AreInterpretedAsOthersComputeThem) {
  if (GetParam().logits.empty()) GTEST_SKIP() << "no logits from elsewhere";
  ASSERT_EQ(GetParam().logits.size(), wanted_.size());
  for (size_t t = 0; t < wanted_.size(); ++t) {
    const Logits& logits = GetParam().logits[t];
    const auto best = std::ranges::max_element(wanted_[t]) - wanted_[t].begin();
    EXPECT_EQ(static_cast<size_t>(best), logits.best) << t;
    EXPECT_NEAR(wanted_[t][logits.best], logits.top, 1e-4 * (1 + std::abs(logits.top))) << t;
    EXPECT_NEAR(wanted_[t][0], logits.first, 1e-4 * (1 + std::abs(logits.top))) << t;
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOnTheCpu) {
  for (const Isa isa : usable_isas()) {
    runtime::EngineOptions options;
    options.isa = isa;
    compare("cpu-only.yaml", options);
  }
}

// The angle between all logits and the interpreter's: seeds by which a router chose others had
// 0.92, those of Mixed have 0.98 at least. (Of eight seeds of phimoe, whose sparse mixer leaves out
// experts at a step of their scores, two had 0.97 and six 0.82 to 0.96.)
TEST_P(SyntheticModels, AreNearInDefaultPrecision) {
  if (GetParam().types == "f32") GTEST_SKIP() << "nothing is rounded";
  const std::string plan = dir_.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", dir_.path("m.gguf"), "-o", plan}).status, 0);
  for (const Isa isa : usable_isas()) {
    runtime::EngineOptions options;
    options.isa = isa;
    options.threads = 2;
    options.all_logits = true;
    auto engine = runtime::Engine::open(plan, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    runtime::Sequence sequence = (*engine)->new_sequence();
    const runtime::BatchItem item{&sequence, kTokens, runtime::Want::All};
    ASSERT_TRUE((*engine)->forward({&item, 1}).ok());
    double ab = 0, aa = 0, bb = 0;
    for (size_t t = 0; t < kTokens.size(); ++t) {
      const auto row = (*engine)->logits(static_cast<int64_t>(t));
      for (size_t i = 0; i < row.size(); ++i) {
        ab += double{row[i]} * wanted_[t][i];
        aa += double{row[i]} * row[i];
        bb += double{wanted_[t][i]} * wanted_[t][i];
      }
    }
    EXPECT_GT(ab / std::sqrt(aa * bb), 0.97) << name(isa);
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsFromShards) {
  if (GetParam().types == "f32") GTEST_SKIP() << "of mixed types only";
  const auto gguf = input::GgufFile::open(dir_.path("m.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const int shards = 2 + static_cast<int>(GetParam().seed % 4);
  ASSERT_TRUE(split_gguf(*gguf, dir_.path("m"), shards, shards % 2 == 0));
  compare("cpu-only.yaml", {}, shard_file("m", 1, shards));
  ASSERT_EQ(run_program({ktx_run(), "inspect", dir_.path("m.ktxplan"), "--export-gguf",
                         dir_.path("out.gguf")})
                .status,
            0);
  for (int i = 1; i <= shards; ++i) {
    EXPECT_TRUE(read_file(dir_.path(shard_file("out", i, shards))) ==
                read_file(dir_.path(shard_file("m", i, shards))))
        << i;
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOnAGpu) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  compare("all-gpu.yaml", options);
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOverDevices) {
  HostGpuLog log;
  runtime::EngineOptions options;
  options.open_gpu = HostGpu::opener({}, &log);
  for (const char* rules : {"moe-experts-on-cpu.yaml", "spread-gpus.yaml"}) {
    compare(rules, options, "m.gguf", some_gpus(2));
  }
}

TEST_P(SyntheticModels, GiveTheInterpretersLogitsOfGpusTogether) {
  for (const int gpus : {2, 3, 4}) {
    SCOPED_TRACE(gpus);
    HostGpuLog log;
    runtime::EngineOptions options;
    options.open_gpu = HostGpu::opener({.adds_up = gpus != 2, .reaches_others = gpus == 4}, &log);
    compare("split-gpus.yaml", options, "m.gguf", some_gpus(gpus));
    // The export also restores columns and rows that are divided or shared.
    ASSERT_EQ(run_program({ktx_run(), "inspect", dir_.path("m.ktxplan"), "--export-gguf",
                           dir_.path("out.gguf")})
                  .status,
              0);
    EXPECT_TRUE(read_file(dir_.path("out.gguf")) == read_file(dir_.path("m.gguf")));
  }
}

TEST_P(SyntheticModels, GiveTheSameLogitsFromFusedTensors) {
  const auto gguf = input::GgufFile::open(dir_.path("m.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  if (!gguf->has("blk.0.attn_k.weight")) GTEST_SKIP() << "latent attention, or fused already";
  if (gguf->has("blk.0.ssm_a"))
    GTEST_SKIP() << "delta nets or state spaces, whose projections no file fuses";
  ASSERT_TRUE(fuse_tensors(*gguf, dir_.path("fused.gguf")));
  if (GetParam().name == std::string("mimo_v2_biased")) {
    const Finished run = run_program({ktx_compile(), dir_.path("fused.gguf"), "--check"});
    EXPECT_THAT(run.err,
                ::testing::HasSubstr("'blk.0.attn_qkv.bias' joins biases of unequal widths"));
    return;
  }
  compare("cpu-only.yaml", {}, "fused.gguf");
  ASSERT_EQ(run_program({ktx_run(), "inspect", dir_.path("m.ktxplan"), "--export-gguf",
                         dir_.path("out.gguf")})
                .status,
            0);
  EXPECT_EQ(read_file(dir_.path("out.gguf")), read_file(dir_.path("fused.gguf")));
}

// No file says the limits of steps: a config.json beside it does.
TEST(StepLimits, OfAConfigReachThePlan) {
  const TempDir dir;
  auto json =
      nlohmann::json::parse(read_file(source_dir() + "/tests/models/synthetic/mamba2/config.json"));
  json["time_step_limit"] = {0.04, 0.3};
  const auto config = input::HfConfig::parse(json.dump(), "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto writer = synth::synthesise(*config, {.types = "f32", .strong = true});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->write(dir.path("m.gguf")));
  const auto gguf = input::GgufFile::open(dir.path("m.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  DiagSink diags;
  const auto merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
  const auto graph = arch::build_graph(merged, &*gguf, diags);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  auto model = reference::Interpreter::make(*graph, *gguf);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto limited = read_logits(source_dir() + "/tests/models/synthetic/odd/mamba2_limits.txt");
  ASSERT_EQ(limited.size(), kTokens.size());
  std::vector<std::vector<float>> wanted;
  for (size_t t = 0; t < kTokens.size(); ++t) {
    wanted.push_back(model->next(kTokens[t]));
    EXPECT_NEAR(wanted[t][limited[t].best], limited[t].top, 1e-4 * (1 + std::abs(limited[t].top)));
  }
  const Finished run =
      run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", dir.path("m.ktxplan"),
                   "--hf-config", dir.write("config.json", json.dump())});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const Isa isa : usable_isas()) {
    runtime::EngineOptions options;
    options.isa = isa;
    options.precision = runtime::Precision::Exact;
    options.all_logits = true;
    auto engine = runtime::Engine::open(dir.path("m.ktxplan"), options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    runtime::Sequence sequence = (*engine)->new_sequence();
    const runtime::BatchItem item{&sequence, kTokens, runtime::Want::All};
    ASSERT_TRUE((*engine)->forward({&item, 1}).ok());
    for (size_t t = 0; t < kTokens.size(); ++t) {
      const auto row = (*engine)->logits(static_cast<int64_t>(t));
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_NEAR(row[i], wanted[t][i], 1e-4 * (1 + std::abs(wanted[t][i]))) << t << ": " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SyntheticModels, ::testing::ValuesIn(every_model()),
                         [](const auto& info) { return info.param.name; });

// Every tensor of another type, as files made by importance matrices have them.
INSTANTIATE_TEST_SUITE_P(
    Mixed, SyntheticModels,
    ::testing::Values(
        mixed("gpt_oss", "gpt_oss", R"({"vocab_size": 512, "intermediate_size": 512,
               "num_attention_heads": 12, "num_key_value_heads": 4, "sliding_window": 4})",
              1),
        mixed("glm4_moe", "synthetic/glm4_moe_air", R"({"hidden_size": 256,
               "intermediate_size": 512, "moe_intermediate_size": 256, "head_dim": 32,
               "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 3})",
              2),
        mixed("minimax_m2", "synthetic/minimax_m2", R"({"hidden_size": 256,
               "intermediate_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4,
               "num_experts_per_tok": 5})",
              3),
        mixed("gemma3", "gemma3", R"({"vocab_size": 512, "num_key_value_heads": 4,
               "sliding_window": 3, "head_dim": 128, "query_pre_attn_scalar": 128})",
              4),
        mixed("gemma4", "synthetic/gemma4", R"({"hidden_size": 256, "intermediate_size": 512,
               "num_attention_heads": 8, "num_key_value_heads": 4,
               "num_global_key_value_heads": 1})",
              5),
        mixed("gemma4_moe", "synthetic/gemma4_moe", R"({"hidden_size": 256,
               "intermediate_size": 256, "moe_intermediate_size": 256, "global_head_dim": 128})",
              6),
        mixed("gemma4_e", "synthetic/gemma4_e", R"({"hidden_size": 256,
               "intermediate_size": 256, "num_attention_heads": 8,
               "hidden_size_per_layer_input": 256})",
              1),
        mixed("glm4_moe_lite", "synthetic/glm4_moe_lite", R"({"hidden_size": 256,
               "intermediate_size": 512, "moe_intermediate_size": 256, "q_lora_rank": 256,
               "kv_lora_rank": 256, "num_attention_heads": 4, "num_key_value_heads": 4})",
              7),
        mixed("seed_oss", "synthetic/seed_oss", R"({"intermediate_size": 512, "head_dim": 32})", 8),
        mixed("ernie4_5_moe", "synthetic/ernie4_5_moe", R"({"intermediate_size": 512,
               "moe_intermediate_size": 256, "num_attention_heads": 4})",
              9),
        mixed("deepseek_v4", "synthetic/deepseek_v4", R"({"hidden_size": 256, "head_dim": 64,
               "moe_intermediate_size": 256, "q_lora_rank": 256, "o_lora_rank": 256,
               "num_attention_heads": 12, "compress_ratios": [4, 0, 4, 4]})",
              10),
        mixed("kimi_k3", "synthetic/kimi_k3", R"({"text_config": {"hidden_size": 256,
               "intermediate_size": 256, "moe_intermediate_size": 256, "q_lora_rank": 256,
               "kv_lora_rank": 256, "routed_expert_hidden_size": 256, "v_head_dim": 64,
               "num_attention_heads": 4, "num_key_value_heads": 4,
               "linear_attn_config": {"head_dim": 64, "num_heads": 4}}})",
              5),
        mixed("gemma3n", "synthetic/gemma3n", R"({"hidden_size": 256, "intermediate_size": 256,
               "head_dim": 64, "hidden_size_per_layer_input": 256, "laurel_rank": 256})",
              11),
        mixed("phimoe", "synthetic/phimoe", R"({"hidden_size": 256, "intermediate_size": 256,
               "num_attention_heads": 4, "rope_parameters": null})",
              1),
        mixed("jamba", "synthetic/jamba", R"({"hidden_size": 256, "intermediate_size": 256,
               "num_attention_heads": 4, "mamba_dt_rank": 256})",
              13),
        mixed("falcon_mamba", "synthetic/falcon_mamba", R"({"hidden_size": 256,
               "time_step_rank": 256})",
              3),
        mixed("qwen4_exp", "synthetic/qwen4_exp", R"({"hidden_size": 256, "head_dim": 32,
               "moe_intermediate_size": 256, "shared_expert_intermediate_size": 256,
               "hc_lowrank": 256, "num_attention_heads": 8, "linear_num_value_heads": 16,
               "ple_embed_dim": 1024})",
              2),
        mixed("internlm2", "synthetic/internlm2", R"({"hidden_size": 256,
               "intermediate_size": 512, "num_attention_heads": 4})",
              4)),
    [](const auto& info) { return info.param.name; });

// One key head for all, as many as heads, windows of one token and of more than the context, lists
// of layers in no order, fewer layers than a pattern is long, one expert of each token and all of
// them, tied and untied heads.
INSTANTIATE_TEST_SUITE_P(
    Odd, SyntheticModels,
    ::testing::Values(
        odd("gpt_oss_window_of_one", "gpt_oss", R"({"sliding_window": 1, "vocab_size": 512,
             "num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 32})"),
        odd("gpt_oss_wide_window", "gpt_oss", R"({"sliding_window": 9999, "vocab_size": 512,
             "num_attention_heads": 5, "num_key_value_heads": 5, "num_experts_per_tok": 6,
             "hidden_size": 192, "intermediate_size": 96, "tie_word_embeddings": true})"),
        odd("gpt_oss_list", "gpt_oss", R"({"sliding_window": 3, "vocab_size": 512,
             "num_hidden_layers": 3, "num_experts_per_tok": 1, "hidden_size": 192, "head_dim": 80,
             "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]})"),
        odd("gemma3_two_layers", "gemma3", R"({"sliding_window": 2, "vocab_size": 512,
             "num_hidden_layers": 2, "layer_types": ["sliding_attention", "sliding_attention"],
             "num_key_value_heads": 1})"),
        odd("gemma3_list", "gemma3",
            R"({"sliding_window": 5, "vocab_size": 512, "head_dim": 96, "query_pre_attn_scalar": 96,
             "num_hidden_layers": 4, "hidden_size": 192, "final_logit_softcapping": 20.0,
             "layer_types": ["full_attention", "sliding_attention", "full_attention",
                             "sliding_attention"],
             "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}}})"),
        odd("glm4_moe_all_sparse", "synthetic/glm4_moe_air", R"({"first_k_dense_replace": 0,
             "num_key_value_heads": 6, "use_qk_norm": true, "attention_bias": false,
             "n_shared_experts": 1, "num_experts_per_tok": 12, "head_dim": 64,
             "partial_rotary_factor": 0.25, "tie_word_embeddings": true})"),
        odd("glm4_moe_dense_but_one", "synthetic/glm4_moe_air", R"({"first_k_dense_replace": 3,
             "num_key_value_heads": 1, "num_experts_per_tok": 1, "routed_scaling_factor": 2.5,
             "num_nextn_predict_layers": 0, "n_group": 4, "topk_group": 2})"),
        odd("minimax_m2_whole_rotary", "synthetic/minimax_m2", R"({"rotary_dim": 64,
             "num_attention_heads": 5, "num_key_value_heads": 5, "num_hidden_layers": 1,
             "num_experts_per_tok": 1, "tie_word_embeddings": true})"),
        odd("glm4_moe_lite_all_sparse", "synthetic/glm4_moe_lite", R"({
             "num_attention_heads": 5, "num_key_value_heads": 5, "v_head_dim": 32,
             "qk_nope_head_dim": 32, "first_k_dense_replace": 0,
             "mlp_layer_types": ["sparse", "sparse", "sparse"], "num_experts_per_tok": 12})"),
        odd("seed_oss_plain", "synthetic/seed_oss", R"({"attention_bias": false,
             "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": true})"),
        // Heads and states that are no multiple of a vector, one group and one for each head, short
        // convolutions.
        odd("granitehybrid_narrow_heads", "synthetic/granitehybrid", R"({"mamba_n_groups": 1,
             "mamba_n_heads": 64, "mamba_d_head": 3, "mamba_d_state": 7, "mamba_d_conv": 2,
             "num_experts_per_tok": 6,
             "num_key_value_heads": 6, "tie_word_embeddings": true})"),
        odd("nemotron_h_group_a_head", "synthetic/nemotron_h_moe", R"({"mamba_num_heads": 5,
             "mamba_head_dim": 37, "n_groups": 5, "ssm_state_size": 33, "conv_kernel": 3,
             "num_key_value_heads": 1, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1})"),
        odd("falcon_h1_normed", "synthetic/falcon_h1", R"({"mamba_n_groups": 5,
             "mamba_rms_norm": true, "mamba_norm_before_gate": false, "mamba_d_conv": 2,
             "mamba_d_state": 17, "num_key_value_heads": 6})"),
        odd("mamba2_one_group", "synthetic/mamba2", R"({"n_groups": 1, "num_heads": 2,
             "head_dim": 96, "state_size": 130, "conv_kernel": 2, "use_conv_bias": false,
             "tie_word_embeddings": true, "num_hidden_layers": 2})"),
        odd("mamba2_groups", "synthetic/mamba2", R"({"n_groups": 4, "num_heads": 12,
             "head_dim": 16, "state_size": 5})"),
        odd("lfm2_two_taps", "synthetic/lfm2", R"({"conv_L_cache": 2, "num_key_value_heads": 6,
             "tie_word_embeddings": false})"),
        odd("gemma3n_second_of_two", "synthetic/gemma3n", R"({"altup_num_inputs": 2,
             "altup_active_idx": 1, "num_kv_shared_layers": 0, "num_hidden_layers": 4,
             "layer_types": ["full_attention", "sliding_attention", "full_attention",
                             "sliding_attention"],
             "activation_sparsity_pattern": [0.25, 0.0, 0.9, 0.5], "num_key_value_heads": 4,
             "sliding_window": 1, "laurel_rank": 7, "intermediate_size": [96, 224, 64, 112]})"),
        odd("phimoe_two_experts", "synthetic/phimoe", R"({"num_local_experts": 2,
             "num_key_value_heads": 3, "sliding_window": null, "num_hidden_layers": 2})"),
        odd("jamba_dense", "synthetic/jamba", R"({"num_experts": 1, "num_experts_per_tok": 1,
             "attn_layer_offset": 0, "attn_layer_period": 2, "mamba_d_state": 5,
             "mamba_d_conv": 2, "mamba_expand": 3, "mamba_dt_rank": 9, "mamba_conv_bias": false,
             "num_key_value_heads": 6, "tie_word_embeddings": true})"),
        odd("jamba_each", "synthetic/jamba", R"({"expert_layer_period": 1, "expert_layer_offset": 0,
             "num_experts_per_tok": 6, "attn_layer_period": 5, "attn_layer_offset": 4,
             "num_key_value_heads": 1, "mamba_d_state": 33})"),
        odd("mamba_few_numbers", "synthetic/mamba", R"({"expand": 3, "state_size": 3,
             "time_step_rank": 3, "conv_kernel": 2, "use_conv_bias": false,
             "num_hidden_layers": 2})"),
        odd("falcon_mamba_wide", "synthetic/falcon_mamba", R"({"expand": 16,
             "intermediate_size": 168, "hidden_size": 56, "state_size": 33, "time_step_rank": 19,
             "conv_kernel": 3})"),
        odd("cohere2_biased", "synthetic/cohere2", R"({"attention_bias": true})"),
        odd("mimo_v2_biased", "synthetic/mimo_v2", R"({"attention_bias": true})"),
        odd("internlm2_biased", "synthetic/internlm2", R"({"bias": true, "num_key_value_heads": 6,
             "rope_theta": 10000.0})"),
        odd("xverse", "synthetic/internlm2", R"({"model_type": "xverse",
             "architectures": ["XverseForCausalLM"], "hidden_size": 80, "intermediate_size": 120,
             "num_attention_heads": 5, "num_key_value_heads": 5})"),
        odd("pangu_embedded", "synthetic/internlm2", R"({"model_type": "PanguEmbedded",
             "architectures": ["PanguEmbeddedForCausalLM"], "bias": true,
             "num_attention_heads": 4})"),
        odd("jais2_plain", "synthetic/jais2", R"({"attention_bias": false, "mlp_bias": false,
             "num_key_value_heads": 1, "num_attention_heads": 3, "head_dim": 40})"),
        odd("glm5_next_pairs", "synthetic/glm5_next", R"({"hc_mult": 2, "index_kpool": 2,
             "index_topk": 6, "linear_lower_bound": -2.5, "num_hidden_layers": 4,
             "layer_types": ["linear_attention", "indexed_attention", "indexed_attention",
                             "linear_attention"],
             "indexer_types": ["shared", "full", "shared", "full"],
             "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "n_group": 2,
             "topk_group": 1, "linear_conv_kernel_dim": 2})"),
        odd("kimi_k3_block_a_layer", "synthetic/kimi_k3", R"({"text_config": {
             "attn_res_block_size": 1, "q_lora_rank": null, "mla_use_output_gate": false,
             "num_hidden_layers": 4, "linear_attn_config": {"kda_layers": [2, 4], "head_dim": 33,
             "full_attn_layers": [1, 3], "num_heads": 5, "short_conv_kernel_size": 3},
             "num_attention_heads": 5, "num_key_value_heads": 5, "num_experts_per_token": 1,
             "num_expert_group": 4, "topk_group": 2, "first_k_dense_replace": 0}})"),
        odd("kimi_k3_one_block", "synthetic/kimi_k3", R"({"text_config": {
             "attn_res_block_size": 93, "routed_expert_hidden_size": null,
             "latent_moe_use_norm": false, "activation_situ_linear_beta": null,
             "activation_situ_beta": 0.75, "num_shared_experts": 1, "num_experts_per_token": 12,
             "moe_renormalize": false, "tie_word_embeddings": true, "v_head_dim": 24,
             "linear_attn_config": {"gate_lower_bound": null}}})"),
        odd("bloom_twelve_heads", "synthetic/bloom", R"({"n_head": 12, "n_layer": 3,
             "intermediate_size": 288, "hidden_size": 72, "tie_word_embeddings": false})"),
        odd("gpt_bigcode", "synthetic/gpt2", R"({"model_type": "gpt_bigcode", "n_head": 3,
             "architectures": ["GPTBigCodeForCausalLM"],
             "activation_function": "gelu_pytorch_tanh"})"),
        odd("codeshell", "synthetic/gpt2", R"({"model_type": "kclgpt", "n_head": 6,
             "architectures": ["CodeShellForCausalLM"], "num_query_groups": 2,
             "activation_function": "gelu_pytorch_tanh", "tie_word_embeddings": false})"),
        odd("jais", "synthetic/gpt2", R"({"model_type": "jais", "n_head": 6, "n_layer": 3,
             "architectures": ["JAISLMHeadModel"], "activation_function": "swiglu",
             "alibi_bias_max": 16})"),
        odd("falcon_40b", "synthetic/falcon",
            R"({"new_decoder_architecture": true, "num_kv_heads": 2,
             "num_hidden_layers": 3, "tie_word_embeddings": false})"),
        odd("falcon_11b", "synthetic/falcon",
            R"({"new_decoder_architecture": true, "num_kv_heads": 3,
             "num_ln_in_parallel_attn": 1})"),
        odd("gpt_neox_serial", "synthetic/gpt_neox",
            R"({"use_parallel_residual": false, "rotary_pct": 1.0,
             "num_attention_heads": 6, "num_hidden_layers": 3})"),
        odd("mpt_unclamped", "synthetic/mpt", R"({"n_heads": 12, "n_layers": 3,
             "attn_config": {"alibi_bias_max": 8, "clip_qkv": null}})"),
        odd("olmo_unclamped", "synthetic/olmo", R"({"clip_qkv": null, "num_key_value_heads": 6,
             "num_hidden_layers": 3, "tie_word_embeddings": true})"),
        odd("olmoe_clamped", "synthetic/olmoe", R"({"clip_qkv": 1.5})"),
        odd("apertus_scaled", "synthetic/apertus",
            R"({"num_key_value_heads": 1, "rope_parameters": {"factor": 8.0,
             "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3",
             "original_max_position_embeddings": 256}})"),
        odd("bitnet_silu", "synthetic/bitnet", R"({"hidden_act": "silu", "num_key_value_heads": 6,
             "num_hidden_layers": 3})"),
        odd("smallthinker_everywhere", "synthetic/smallthinker",
            R"({"scoring_func": "softmax", "num_hidden_layers": 4,
             "sliding_window_size": null, "sliding_window_layout": null, "rope_layout": null,
             "moe_num_active_primary_experts": 1, "num_key_value_heads": 6})"),
        odd("qwen", "synthetic/internlm2",
            R"({"model_type": "qwen", "architectures": ["QWenLMHeadModel"],
             "intermediate_size": 272, "num_attention_heads": 3, "num_key_value_heads": null,
             "layer_norm_epsilon": 1e-6, "rms_norm_eps": null, "rope_theta": null})"),
        odd("baichuan", "synthetic/internlm2",
            R"({"model_type": "baichuan", "num_key_value_heads": null,
             "architectures": ["BaichuanForCausalLM"], "rope_theta": null})"),
        odd("baichuan_13b", "synthetic/internlm2",
            R"({"model_type": "baichuan", "num_hidden_layers": 33,
             "architectures": ["BaichuanForCausalLM"], "rope_theta": null, "hidden_size": 80,
             "num_attention_heads": 5, "num_key_value_heads": null})"),
        odd("refact", "synthetic/internlm2",
            R"({"model_type": "gpt_refact", "num_key_value_heads": null,
             "architectures": ["GPTRefactForCausalLM"], "rope_theta": null})"),
        odd("orion", "synthetic/internlm2",
            R"({"model_type": "orion", "architectures": ["OrionForCausalLM"]})"),
        odd("plamo", "synthetic/internlm2",
            R"({"model_type": "plamo", "architectures": ["PlamoForCausalLM"],
             "n_shared_head": 3, "num_key_value_heads": 6, "rope_theta": null})"),
        odd("maincoder", "synthetic/internlm2", R"({"model_type": "maincoder", "head_dim": 32,
             "architectures": ["MaincoderForCausalLM"]})"),
        odd("deepseek_one_expert", "synthetic/deepseek", R"({"first_k_dense_replace": 0,
             "num_experts_per_tok": 1, "n_shared_experts": 1, "num_key_value_heads": 1,
             "num_hidden_layers": 2, "tie_word_embeddings": true})"),
        odd("bailing_moe_v1_biased", "synthetic/bailing_moe_v1", R"({"use_qkv_bias": true,
             "first_k_dense_replace": 1, "num_experts_per_tok": 10, "num_key_value_heads": 4,
             "num_shared_experts": 2})"),
        odd("qwen4_exp_four", "synthetic/qwen4_exp", R"({"hc_count": 2,
             "indexer_compress_ratio": 2, "indexer_budget": 6, "indexer_n_heads": 5,
             "ngram_size": 4, "heads_per_ngram": 1, "ple_embed_dim": 96, "ple_layer_ids": [1],
             "ple_conv_kernel_size": 2, "eos_token_id": 255, "num_key_value_heads": 3,
             "linear_num_value_heads": 4, "linear_num_key_heads": 1})"),
        odd("ernie4_5_moe_each", "synthetic/ernie4_5_moe", R"({"moe_layer_start_index": 0,
             "moe_layer_interval": 1, "num_hidden_layers": 5,
             "moe_num_shared_experts": 1, "num_key_value_heads": 6, "moe_k": 8,
             "tie_word_embeddings": false})")),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ktx::testing
