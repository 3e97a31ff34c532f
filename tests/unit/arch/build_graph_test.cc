// The built graphs of the test models, and what happens when tensors or config do
// not fit each other.
#include "lib/arch/build_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/arch/usual_types.h"
#include "lib/families/family.h"
#include "lib/input/gguf_writer.h"
#include "lib/input/tower_source.h"
#include "tests/support/folded_layers.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/synthetic_folders.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tower_gguf.h"

namespace ktx::arch {
namespace {

using ktx::testing::present_models;
using ktx::testing::TempDir;

// A test model, opened; edits of its header make broken ones.
struct Opened {
  input::GgufFile gguf;
  input::HfConfig config;  // merged
};

Opened open(const std::string& gguf_path, const std::string& config_path, DiagSink& diags) {
  auto gguf = input::GgufFile::open(gguf_path);
  EXPECT_TRUE(gguf.ok()) << gguf.error().message;
  if (config_path.empty()) {
    input::HfConfig derived = input::config_from_gguf(*gguf, diags);
    return {gguf.take(), std::move(derived)};
  }
  auto config = input::HfConfig::read(config_path);
  EXPECT_TRUE(config.ok()) << config.error().message;
  input::HfConfig merged = input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
  return {gguf.take(), std::move(merged)};
}

std::string messages(const DiagSink& diags) {
  std::string out;
  for (const Diagnostic& diag : diags.all()) {
    if (diag.severity != Severity::Note) out += diag.message + "\n";
  }
  return out;
}

#define KTX_NEEDS_MODEL(name) \
  if (ktx::testing::test_model_dir(name).empty()) GTEST_SKIP() << "no test model " << name

TEST(BuildGraph, AFormThatIsNotKnownSaysWhichAre) {
  const auto error_of = [](const char* text) {
    const auto config = input::HfConfig::parse(text, "config.json");
    EXPECT_TRUE(config.ok());
    DiagSink diags;
    const auto graph = build_graph(*config, diags, 0);
    return graph.ok() ? std::string("(built)") : graph.error().message;
  };
  EXPECT_EQ(error_of(R"({"model_type": "chatglm", "inner_hidden_size": 16384})"),
            "config.json: this form of 'chatglm' is not known; of this type only configs with "
            "'ffn_hidden_size' are known [KTX-C002]");
}

TEST(BuildGraph, TestModelsEqualTheirGoldens) {
  for (const char* name : present_models()) {
    KTX_NEEDS_MODEL(name);
    SCOPED_TRACE(name);
    DiagSink diags;
    const Opened model = open(ktx::testing::test_model_gguf(name),
                              ktx::testing::test_model_dir(name) + "/config.json", diags);
    const auto graph = build_graph(model.config, &model.gguf, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    ir::verify(*graph, diags);
    EXPECT_EQ(messages(diags), "");
    const std::string text = ir::print(*graph);
    ktx::testing::expect_golden(fmt::format("ir/{}.ktxir", name),
                                ktx::testing::folded_layers(text));
    const auto again = ir::parse(text, "golden");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(ir::print(*again), text);
  }
}

// These families have no trained model.
TEST(BuildGraph, GraphsOfAConfigAloneEqualTheirGoldens) {
  std::vector<std::string> folders = {"olmo2"};
  for (const std::string& name : ktx::testing::synthetic_folders()) {
    folders.push_back("synthetic/" + name);
  }
  for (const std::string& folder : folders) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    if (std::ranges::count(ktx::testing::kSharedModels, name) > 0) continue;  // of its trained one
    SCOPED_TRACE(name);
    DiagSink diags;
    const auto config =
        input::HfConfig::read(fmt::format("{}/tests/models/{}", source_dir(), folder));
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto graph = build_graph(*config, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    ir::verify(*graph, diags);
    EXPECT_EQ(messages(diags), "");
    ktx::testing::expect_golden(fmt::format("ir/{}.ktxir", name),
                                ktx::testing::folded_layers(ir::print(*graph)));
  }
}

// What reads images, made of GGUFs alone.
TEST(BuildGraph, GraphsOfTowersEqualTheirGoldens) {
  const struct {
    const char* projector;
    const char* model;
  } towers[] = {{"gemma3", "gemma3"}, {"pixtral", "llama"}, {"qwen3vl_merger", "qwen35moe"}};
  for (const auto& tower : towers) {
    KTX_NEEDS_MODEL(tower.model);
    SCOPED_TRACE(tower.projector);
    const ktx::testing::TempDir dir;
    const std::string path = dir.path("mmproj.gguf");
    const ktx::testing::TowerOptions options{.heads = 5,
                                             .layers = 1,
                                             .projector = tower.projector,
                                             .part_layers = {0},
                                             .most_pixels = 65536};
    ASSERT_TRUE(ktx::testing::write_tower(path, options).ok());
    auto gguf = input::GgufFile::open(path);
    const auto model = input::GgufFile::open(ktx::testing::test_model_gguf(tower.model));
    ASSERT_TRUE(gguf.ok() && model.ok());
    DiagSink diags;
    const auto source = input::tower_source(gguf.take(), *model, diags);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto graph = build_tower_graph(*source, diags);
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    ir::verify(*graph, diags);
    EXPECT_EQ(messages(diags), "");
    const std::string text = ir::print(*graph);
    ktx::testing::expect_golden(fmt::format("ir/tower_{}.ktxir", tower.projector),
                                ktx::testing::folded_layers(text));
    const auto again = ir::parse(text, "golden");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(ir::print(*again), text);
  }
}

// As published: lists of flags by layer, sizes of the indexer in an object of their own, and a
// model that sees around it.
TEST(BuildGraph, BlockAttentionIsTheSameInTheWordsOfAPublishedConfig) {
  const char* const published =
      R"({"model_type": "minimax_m3_vl", "vision_config": {}, "text_config": {
      "model_type": "minimax_m3", "hidden_act": "swigluoai", "swiglu_alpha": 1.702,
      "swiglu_limit": 7.0, "hidden_size": 128, "head_dim": 32, "num_attention_heads": 6,
      "num_key_value_heads": 2, "num_hidden_layers": 4, "dense_intermediate_size": 160,
      "intermediate_size": 96, "shared_intermediate_size": 64, "n_shared_experts": 1,
      "num_local_experts": 10, "num_experts_per_tok": 3, "scoring_func": "sigmoid",
      "use_routing_bias": true, "routed_scaling_factor": 2.0, "moe_layer_freq": [0, 1, 1, 1],
      "sparse_attention_config": {"sparse_attention_freq": [0, 1, 1, 1],
        "sparse_num_index_heads": 2, "sparse_index_dim": 24, "sparse_block_size": 3,
        "sparse_topk_blocks": 2, "sparse_local_block": 1},
      "rotary_dim": 16, "rope_theta": 5000000, "rms_norm_eps": 1e-6, "vocab_size": 512,
      "max_position_embeddings": 4096, "tie_word_embeddings": false}})";
  DiagSink diags;
  const auto a = input::HfConfig::parse(published, "config.json");
  const auto b = input::HfConfig::read(source_dir() + "/tests/models/synthetic/minimax_m3");
  ASSERT_TRUE(a.ok() && b.ok());
  const auto of_a = build_graph(*a, diags);
  const auto of_b = build_graph(*b, diags);
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << messages(diags);
  EXPECT_EQ(messages(diags), "");
  EXPECT_EQ(ir::print(*of_a), ir::print(*of_b));
}

// Pairs that turn by line, column and time take turns, also where there are none by line.
TEST(BuildGraph, PairsByColumnAloneTakeTurns) {
  const auto config = input::HfConfig::parse(
      R"({"model_type": "qwen3_vl_text", "architectures": ["Qwen3VLForConditionalGeneration"],
      "hidden_act": "silu", "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 1,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 512,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "attention_bias": false,
      "rope_theta": 1000.0, "tie_word_embeddings": false, "rope_scaling": {
        "rope_type": "default", "mrope_interleaved": true, "mrope_section": [8, 0, 4]}})",
      "config.json");
  ASSERT_TRUE(config.ok());
  DiagSink diags;
  const auto graph = build_graph(*config, diags);
  ASSERT_TRUE(graph.ok()) << messages(diags);
  EXPECT_THAT(ir::print(*graph), ::testing::HasSubstr("] columns 4 woven true"));
}

// As published: sizes of delta nets in an object of their own, another name of what is chosen, and
// all of it beside a part that sees.
TEST(BuildGraph, PoolsOfPositionsAreTheSameAsPublished) {
  const std::string folder = source_dir() + "/tests/models/synthetic/glm5_next";
  auto text = nlohmann::json::parse(ktx::testing::read_file(folder + "/config.json"));
  for (const char* key :
       {"linear_conv_kernel_dim", "linear_head_dim", "linear_lower_bound", "linear_num_heads"}) {
    text.erase(key);
  }
  text["linear_attn_config"] = {{"gate_lower_bound", -5.0},
                                {"head_dim", 40},
                                {"num_heads", 3},
                                {"short_conv_kernel_size", 4}};
  text["layer_types"] = {"linear_attention", "deepseek_sparse_attention",
                         "deepseek_sparse_attention"};
  text["model_type"] = "glm5_next_text";
  const nlohmann::json saved = {{"model_type", "glm5_next"}, {"text_config", text}};
  DiagSink diags;
  const auto a = input::HfConfig::parse(saved.dump(), "config.json");
  const auto b = input::HfConfig::read(folder);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto of_a = build_graph(*a, diags);
  const auto of_b = build_graph(*b, diags);
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << messages(diags);
  EXPECT_EQ(messages(diags), "");
  EXPECT_EQ(ir::print(*of_a), ir::print(*of_b));
}

// As published: in a config beside that of a part that sees, with the layers' kinds as a list.
TEST(BuildGraph, NgramsAndGatesAreTheSameAsPublished) {
  const std::string folder = source_dir() + "/tests/models/synthetic/qwen4_exp";
  auto text = nlohmann::json::parse(ktx::testing::read_file(folder + "/config.json"));
  text.erase("full_attention_interval");
  text["layer_types"] = {"linear_attention", "indexed_attention", "linear_attention",
                         "full_attention", "linear_attention"};
  const nlohmann::json saved = {{"model_type", "qwen4_exp"}, {"text_config", text}};
  DiagSink diags;
  const auto a = input::HfConfig::parse(saved.dump(), "config.json");
  const auto b = input::HfConfig::read(folder);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto of_a = build_graph(*a, diags);
  const auto of_b = build_graph(*b, diags);
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << messages(diags);
  EXPECT_EQ(messages(diags), "");
  EXPECT_EQ(ir::print(*of_a), ir::print(*of_b));
}

// As transformers saves it: kinds of layers as texts, and what is rotated as a share of a head.
TEST(BuildGraph, CompressedAttentionIsTheSameInTheWordsOfTransformers) {
  const char* const saved = R"({"model_type": "deepseek_v4", "hidden_act": "silu",
      "layer_types": ["sliding_attention", "compressed_sparse_attention",
        "heavily_compressed_attention", "compressed_sparse_attention"],
      "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe"],
      "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
      "rope_parameters": {
        "main": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.33333333},
        "compress": {"rope_type": "yarn", "rope_theta": 160000, "factor": 16, "beta_fast": 32,
          "beta_slow": 1, "original_max_position_embeddings": 64, "attention_factor": 1.0,
          "partial_rotary_factor": 0.33333333}},
      "partial_rotary_factor": 0.33333333, "hc_eps": 1e-6, "hc_mult": 4, "hc_sinkhorn_iters": 20,
      "head_dim": 48, "hidden_size": 128, "index_head_dim": 32, "index_n_heads": 16, "index_topk": 5,
      "max_position_embeddings": 4096, "moe_intermediate_size": 96, "num_local_experts": 10,
      "n_shared_experts": 1, "num_attention_heads": 6, "num_experts_per_tok": 3,
      "num_hidden_layers": 4, "num_key_value_heads": 1, "o_groups": 3, "o_lora_rank": 40,
      "q_lora_rank": 64, "rms_norm_eps": 1e-6, "routed_scaling_factor": 1.5,
      "scoring_func": "sqrtsoftplus", "sliding_window": 24, "swiglu_limit": 2.0,
      "tie_word_embeddings": false, "vocab_size": 512})";
  DiagSink diags;
  const auto a = input::HfConfig::parse(saved, "config.json");
  const auto b = input::HfConfig::read(source_dir() + "/tests/models/synthetic/deepseek_v4");
  ASSERT_TRUE(a.ok() && b.ok());
  const auto of_a = build_graph(*a, diags);
  const auto of_b = build_graph(*b, diags);
  ASSERT_TRUE(of_a.ok() && of_b.ok()) << messages(diags);
  EXPECT_EQ(messages(diags), "");
  EXPECT_EQ(ir::print(*of_a), ir::print(*of_b));
}

// Without config.json the graph is the same: the metadata says enough.
TEST(BuildGraph, GgufAloneGivesTheSameGraph) {
  for (const char* name : present_models()) {
    KTX_NEEDS_MODEL(name);
    SCOPED_TRACE(name);
    DiagSink diags;
    const std::string gguf = ktx::testing::test_model_gguf(name);
    const Opened with = open(gguf, ktx::testing::test_model_dir(name) + "/config.json", diags);
    const Opened without = open(gguf, "", diags);
    const auto a = build_graph(with.config, &with.gguf, diags);
    const auto b = build_graph(without.config, &without.gguf, diags);
    ASSERT_TRUE(a.ok() && b.ok()) << messages(diags);
    EXPECT_EQ(messages(diags), "");
    const std::string text_a = ir::print(*a);
    const std::string text_b = ir::print(*b);
    EXPECT_EQ(text_a, text_b);
  }
}

// A config alone gives the same tree and shapes; types are those a Q4_K_M file
// usually has, which is what the test files are.
TEST(BuildGraph, ConfigAloneForeseesTheTypesOfTheFile) {
  for (const char* name : present_models()) {
    // llama-quantize picks other types for the joined projection of delta nets than for attention.
    if (std::ranges::count(ktx::testing::kDeltaNetModels, std::string_view(name))) continue;
    KTX_NEEDS_MODEL(name);
    SCOPED_TRACE(name);
    DiagSink diags;
    const Opened model = open(ktx::testing::test_model_gguf(name),
                              ktx::testing::test_model_dir(name) + "/config.json", diags);
    const auto config = input::HfConfig::read(ktx::testing::test_model_dir(name) + "/config.json");
    ASSERT_TRUE(config.ok());
    const auto bound = build_graph(model.config, &model.gguf, diags);
    const auto assumed = build_graph(*config, diags);
    ASSERT_TRUE(bound.ok() && assumed.ok());
    EXPECT_EQ(messages(diags), "");
    ASSERT_EQ(bound->modules.size(), assumed->modules.size());
    for (size_t i = 0; i < bound->modules.size(); ++i) {
      const ir::Module& a = bound->modules[i];
      const ir::Module& b = assumed->modules[i];
      ASSERT_EQ(a.path, b.path);
      ASSERT_EQ(a.params.size(), b.params.size()) << a.path;
      for (size_t k = 0; k < a.params.size(); ++k) {
        EXPECT_EQ(a.params[k].sources[0].tensor, b.params[k].sources[0].tensor);
        const std::string& tensor = a.params[k].sources[0].tensor;
        // These two were quantised by another program, with Q6_K for every ffn_down.
        const bool is_usual = !std::string_view(name).starts_with("deepseek2") ||
                              tensor.find("ffn_down") == std::string::npos;
        EXPECT_TRUE(!is_usual || a.params[k].dtype == b.params[k].dtype) << tensor;
        EXPECT_EQ(a.params[k].rows, b.params[k].rows) << a.path;
        EXPECT_EQ(a.params[k].cols, b.params[k].cols) << a.path;
      }
    }
  }
}

// Copies a model's GGUF, tensor by tensor, as `edit` says.
struct Edit {
  bool drop = false;
  std::string name = {};            // else as it is
  std::vector<int64_t> shape = {};  // else as it is
};

std::string rewrite(const std::string& model, const TempDir& dir,
                    const std::function<Edit(const input::GgufTensor&)>& edit,
                    const std::function<void(input::GgufWriter&)>& add = nullptr) {
  const auto gguf = input::GgufFile::open(ktx::testing::test_model_gguf(model));
  EXPECT_TRUE(gguf.ok());
  input::GgufWriter writer;
  for (const input::GgufValue& value : gguf->metadata()) writer.copy(value);
  for (const input::GgufTensor& tensor : gguf->tensors()) {
    const Edit change = edit(tensor);
    if (change.drop) continue;
    std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
    if (!change.shape.empty()) shape = change.shape;
    int64_t elems = 1;
    for (int64_t n : shape) elems *= n;
    const size_t bytes = *row_bytes(tensor.dtype, elems);
    std::vector<std::byte> data(tensor.bytes.begin(), tensor.bytes.end());
    data.resize(bytes);
    writer.add_tensor(change.name.empty() ? std::string(tensor.name) : change.name, tensor.dtype,
                      shape, std::move(data));
  }
  if (add) add(writer);
  const std::string path = dir.path(model + ".gguf");
  const Status written = writer.write(path);
  EXPECT_TRUE(written.ok()) << written.error().message;
  return path;
}

Edit keep(const input::GgufTensor&) {
  return {};
}

std::string errors_of(const std::string& gguf, const std::string& model,
                      ir::ModuleGraph* out = nullptr) {
  DiagSink diags;
  const Opened opened = open(gguf, ktx::testing::test_model_dir(model) + "/config.json", diags);
  auto graph = build_graph(opened.config, &opened.gguf, diags);
  if (!graph.ok()) return messages(diags) + graph.error().message;
  if (out != nullptr) {
    *out = graph.take();
    ir::verify(*out, diags);
  }
  return messages(diags);
}

TEST(BuildGraph, MissingTensorIsNamedWithItsPurpose) {
  KTX_NEEDS_MODEL("llama");
  const TempDir dir;
  const std::string path = rewrite("llama", dir, [](const input::GgufTensor& t) {
    return Edit{.drop = t.name == "blk.1.attn_output.weight"};
  });
  EXPECT_EQ(errors_of(path, "llama"),
            "tensor 'blk.1.attn_output.weight' (attention output, [256, 256]) is missing\n");
}

TEST(BuildGraph, MisspeltTensorIsSuggested) {
  KTX_NEEDS_MODEL("llama");
  const TempDir dir;
  const std::string path = rewrite("llama", dir, [](const input::GgufTensor& t) {
    Edit edit;
    if (t.name == "blk.1.attn_output.weight") edit.name = "blk.1.attn_outptu.weight";
    return edit;
  });
  EXPECT_THAT(errors_of(path, "llama"),
              ::testing::HasSubstr("is missing; did you mean 'blk.1.attn_outptu.weight'?\n"));
}

TEST(BuildGraph, WrongShapeNamesFoundAndExpected) {
  KTX_NEEDS_MODEL("qwen3moe");
  const TempDir dir;
  const std::string path = rewrite("qwen3moe", dir, [](const input::GgufTensor& t) {
    Edit edit;
    if (t.name == "blk.2.ffn_up_exps.weight") edit.shape = {256, 128, 8};
    return edit;
  });
  EXPECT_EQ(errors_of(path, "qwen3moe"),
            "tensor 'blk.2.ffn_up_exps.weight' (all routed experts of a layer) is [256, 128, 8], "
            "the config says [256, 256, 8]\n");
}

TEST(BuildGraph, MissingHeadOfAnUntiedModelIsAnError) {
  KTX_NEEDS_MODEL("llama");
  const TempDir dir;
  const std::string path = rewrite("llama", dir, [](const input::GgufTensor& t) {
    return Edit{.drop = t.name == "output.weight"};
  });
  EXPECT_NE(
      errors_of(path, "llama").find("tensor 'output.weight' (logits, [256, 2048]) is missing"),
      std::string::npos);
}

TEST(BuildGraph, UnknownTensorIsAWarningAndKnownExtrasAreNot) {
  KTX_NEEDS_MODEL("deepseek3");
  const TempDir dir;
  const auto one = [](input::GgufWriter& writer, const char* name) {
    writer.add_tensor(name, DType::F32, {4}, std::vector<std::byte>(16));
  };
  const std::string path = rewrite("deepseek3", dir, keep, [&](input::GgufWriter& writer) {
    one(writer, "blk.3.nextn.eh_proj.weight");
    one(writer, "blk.3.attn_norm.weight");
    one(writer, "blk.1.attn_sinks.weight");
  });
  ir::ModuleGraph graph;
  EXPECT_EQ(errors_of(path, "deepseek3", &graph),
            "1 tensor that no module uses: 'blk.1.attn_sinks.weight'\n");
  ASSERT_EQ(graph.extra_tensors.size(), 2u);
  EXPECT_EQ(graph.extra_tensors[0].reason, "multi-token prediction head");
}

TEST(BuildGraph, UnusedBiasIsAnError) {
  KTX_NEEDS_MODEL("qwen3moe");
  const TempDir dir;
  const std::string path = rewrite("qwen3moe", dir, keep, [&](input::GgufWriter& writer) {
    writer.add_tensor("blk.0.ffn_gate_inp.bias", DType::F32, {8}, std::vector<std::byte>(32));
  });
  EXPECT_NE(errors_of(path, "qwen3moe").find("'blk.0.ffn_gate_inp.bias' is a bias"),
            std::string::npos);
}

TEST(BuildGraph, ConfigOfAnotherModelIsRefused) {
  KTX_NEEDS_MODEL("llama");
  const auto config = input::HfConfig::read(ktx::testing::test_model_dir("qwen2") + "/config.json");
  const auto gguf = input::GgufFile::open(ktx::testing::test_model_gguf("llama"));
  ASSERT_TRUE(config.ok() && gguf.ok());
  DiagSink diags;
  const auto graph = build_graph(*config, &*gguf, diags);
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.error().message.find("general.architecture is 'llama'"), std::string::npos)
      << graph.error().message;
}

TEST(BuildGraph, UnknownArchitectureNamesTheNearest) {
  DiagSink diags;
  const auto config = input::HfConfig::parse(R"({"model_type": "qwen3moe"})", "config.json");
  const auto graph = build_graph(*config, diags);
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(graph.error().message.find(
                "config.json: unknown architecture 'qwen3moe'; did you mean 'qwen3_moe'?"),
            std::string::npos)
      << graph.error().message;
  EXPECT_NE(graph.error().message.find("deepseek_v3"), std::string::npos);

  input::HfConfig derived;
  derived.set_file("model.gguf");
  derived.set("model_type", std::string("qwen3mo"), input::ConfigOrigin::Gguf);
  std::set<std::string> known;
  for (const families::Family* family : families::all_families()) {
    if (family->is_model()) known.insert(family->gguf_arch);
  }
  EXPECT_EQ(build_graph(derived, diags).error().message,
            fmt::format("model.gguf: unknown architecture 'qwen3mo'; did you mean 'qwen3moe'?; "
                        "known are {} [KTX-C002]",
                        fmt::join(known, ", ")));
}

TEST(BuildGraph, OldRouterBiasNameAndStackedHeadsAreRead) {
  KTX_NEEDS_MODEL("deepseek3");
  const TempDir dir;
  const std::string path = rewrite("deepseek3", dir, [](const input::GgufTensor& t) {
    Edit edit;
    if (t.name.ends_with("exp_probs_b.bias")) edit.name = t.name.substr(0, t.name.size() - 5);
    if (t.name.ends_with("attn_k_b.weight")) edit.shape = {64, 4 * 256};
    return edit;
  });
  ir::ModuleGraph graph;
  EXPECT_EQ(errors_of(path, "deepseek3", &graph), "");
  EXPECT_EQ(graph.find("model.layers.1.mlp.gate")->param("correction_bias")->sources[0].tensor,
            "blk.1.exp_probs_b");
  const ir::Param* k_b = graph.find("model.layers.1.self_attn.kv_b_proj")->param("k_b");
  EXPECT_EQ(k_b->matrices, 4);
  EXPECT_EQ(k_b->rows, 256);
  EXPECT_EQ(k_b->cols, 64);
}

TEST(BuildGraph, UnsplitKvBIsPreferredAndTheSplitOneExtra) {
  KTX_NEEDS_MODEL("deepseek2");
  const TempDir dir;
  const std::string path = rewrite("deepseek2", dir, keep, [&](input::GgufWriter& writer) {
    for (int layer = 0; layer < 3; ++layer) {
      writer.add_tensor(fmt::format("blk.{}.attn_kv_b.weight", layer), DType::F16, {256, 4 * 128},
                        std::vector<std::byte>(256 * 4 * 128 * 2));
    }
  });
  ir::ModuleGraph graph;
  EXPECT_EQ(errors_of(path, "deepseek2", &graph), "");
  const ir::Module* kv_b = graph.find("model.layers.2.self_attn.kv_b_proj");
  ASSERT_EQ(kv_b->params.size(), 1u);
  EXPECT_EQ(kv_b->params[0].rows, 512);
  EXPECT_EQ(kv_b->params[0].dtype, DType::F16);
  EXPECT_EQ(graph.extra_tensors.size(), 6u);
}

// Mixtral files of 2023 have a tensor per expert; some converters write q, k and v
// as one, or gate and up.
TEST(BuildGraph, OneTensorPerExpertIsJoined) {
  KTX_NEEDS_MODEL("mixtral");
  const TempDir dir;
  const std::string path = rewrite(
      "mixtral", dir,
      [](const input::GgufTensor& t) { return Edit{.drop = t.name.ends_with("_exps.weight")}; },
      [](input::GgufWriter& writer) {
        for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
          for (int i = 0; i < 24; ++i) {
            writer.add_tensor(fmt::format("blk.{}.{}.{}.weight", i / 8, name, i % 8), DType::F16,
                              {256, 256}, std::vector<std::byte>(256 * 256 * 2));
          }
        }
      });
  ir::ModuleGraph graph;
  EXPECT_EQ(errors_of(path, "mixtral", &graph), "");
  const ir::Param* up = graph.find("model.layers.1.block_sparse_moe.experts")->param("up");
  ASSERT_EQ(up->sources.size(), 8u);
  EXPECT_EQ(up->sources[5].tensor, "blk.1.ffn_up.5.weight");
  EXPECT_EQ(up->matrices, 8);
}

// NVFP4 files may hold a factor per tensor beside the weights; without it the model is a wrong one.
TEST(BuildGraph, FactorsAreThoseOfLinears) {
  KTX_NEEDS_MODEL("qwen3moe");
  const TempDir dir;
  const auto with = [&dir](const char* tensor, std::vector<float> values) {
    return rewrite("qwen3moe", dir, keep, [&](input::GgufWriter& writer) {
      const auto bytes = std::as_bytes(std::span(values));
      writer.add_tensor(tensor, DType::F32, {static_cast<int64_t>(values.size())},
                        {bytes.begin(), bytes.end()});
    });
  };
  EXPECT_EQ(errors_of(with("blk.0.attn_q.input_scale", {0}), "qwen3moe"), "");
  EXPECT_EQ(errors_of(with("blk.0.attn_q.scale", {0.25f}), "qwen3moe"), "");
  EXPECT_THAT(errors_of(with("blk.0.attn_q.scale", {0}), "qwen3moe"),
              ::testing::HasSubstr("'blk.0.attn_q.scale' holds 0, expected a positive number"));
  EXPECT_THAT(errors_of(with("blk.0.attn_q.scale", {NAN}), "qwen3moe"),
              ::testing::HasSubstr("'blk.0.attn_q.scale' holds nan"));
  EXPECT_THAT(
      errors_of(with("blk.0.attn_q.scale", {1, 2}), "qwen3moe"),
      ::testing::HasSubstr("(factor of 'blk.0.attn_q.weight') is F32 [2], expected one F32"));
  EXPECT_THAT(
      errors_of(with("blk.0.ffn_up_exps.scale", {1, 2}), "qwen3moe"),
      ::testing::HasSubstr("tensor 'blk.0.ffn_up_exps.scale' (all routed experts of a layer) is "
                           "[2], the config says [8]"));
  EXPECT_THAT(errors_of(with("blk.0.ffn_gate_inp.scale", {2}), "qwen3moe"),
              ::testing::HasSubstr("tensor 'blk.0.ffn_gate_inp.scale' holds factors of "
                                   "'blk.0.ffn_gate_inp.weight', which ktx does not apply"));
}

// Phi-3's and MiniCPM's models for long contexts.
TEST(BuildGraph, FactorsOfLongRopeAreErrorsWhereAnotherScalingIsSaid) {
  KTX_NEEDS_MODEL("qwen3moe");
  const TempDir dir;
  const std::string path = rewrite("qwen3moe", dir, keep, [](input::GgufWriter& writer) {
    writer.add_tensor("rope_factors_long.weight", DType::F32, {32}, std::vector<std::byte>(128));
  });
  EXPECT_THAT(errors_of(path, "qwen3moe"),
              ::testing::HasSubstr("'rope_factors_long.weight' holds rotary factors of longrope"));
}

TEST(BuildGraph, FusedTensorsAreCutByRows) {
  KTX_NEEDS_MODEL("qwen3moe");
  const TempDir dir;
  const std::string path = rewrite(
      "qwen3moe", dir,
      [](const input::GgufTensor& t) {
        return Edit{.drop = t.name == "blk.0.attn_q.weight" || t.name == "blk.0.attn_k.weight" ||
                            t.name == "blk.0.attn_v.weight" ||
                            t.name == "blk.0.ffn_gate_exps.weight" ||
                            t.name == "blk.0.ffn_up_exps.weight"};
      },
      [](input::GgufWriter& writer) {
        writer.add_tensor("blk.0.attn_qkv.weight", DType::F16, {256, 512},
                          std::vector<std::byte>(256 * 512 * 2));
        writer.add_tensor("blk.0.ffn_gate_up_exps.weight", DType::F16, {256, 512, 8},
                          std::vector<std::byte>(256 * 512 * 8 * 2));
      });
  ir::ModuleGraph graph;
  EXPECT_EQ(errors_of(path, "qwen3moe", &graph), "");
  const ir::Param* v = graph.find("model.layers.0.self_attn.v_proj")->param("weight");
  EXPECT_EQ(v->sources[0].first_row, 256 + 128);
  EXPECT_EQ(v->sources[0].row_count, 128);
  const ir::Param* up = graph.find("model.layers.0.mlp.experts")->param("up");
  ASSERT_EQ(up->sources.size(), 8u);
  EXPECT_EQ(up->sources[1].first_row, 512 + 256);
}

}  // namespace
}  // namespace ktx::arch
