#include "lib/input/gguf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/diag_text.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::input {
namespace {

using namespace ktx::testing;
using ::testing::HasSubstr;

class GgufConfig : public ::testing::Test {
 protected:
  // Merges config.json text with the GGUF at hand.
  HfConfig merge(std::string_view config, Trust trust = Trust::Neither,
                 bool all_differences = false) {
    diags_ = {};
    const auto gguf = open();
    const auto parsed = HfConfig::parse(config, "config.json");
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    return merge_configs(*parsed, gguf, trust, diags_, all_differences);
  }
  HfConfig derive() {
    diags_ = {};
    const auto gguf = open();
    return config_from_gguf(gguf, diags_);
  }
  GgufFile open() {
    auto gguf = GgufFile::open(dir_.write("m.gguf", tiny_.bytes()));
    EXPECT_TRUE(gguf.ok()) << gguf.error().message;
    return gguf.take();
  }
  void set(const std::string& pair) { tiny_.pairs.push_back(pair); }
  void tensor(std::string name, std::vector<uint64_t> dims) {
    uint64_t size = 4;
    for (const uint64_t dim : dims) size *= dim;
    tiny_.tensors.push_back({std::move(name), std::move(dims), 0, size});
  }
  // A qwen3moe of two layers.
  void SetUp() override {
    set(gguf_str("general.architecture", "qwen3moe"));
    set(gguf_u32("qwen3moe.block_count", 2));
    set(gguf_u32("qwen3moe.embedding_length", 64));
    set(gguf_u32("qwen3moe.feed_forward_length", 128));
    set(gguf_u32("qwen3moe.attention.head_count", 4));
    set(gguf_u32("qwen3moe.attention.head_count_kv", 2));
    set(gguf_u32("qwen3moe.attention.key_length", 32));
    set(gguf_u32("qwen3moe.context_length", 4096));
    set(gguf_f32("qwen3moe.rope.freq_base", 1e6f));
    set(gguf_f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f));
    set(gguf_u32("qwen3moe.expert_count", 8));
    set(gguf_u32("qwen3moe.expert_used_count", 3));
    set(gguf_u32("qwen3moe.expert_feed_forward_length", 32));
    tensor("token_embd.weight", {64, 100});
    tensor("output.weight", {64, 100});
    tensor("blk.0.attn_q.weight", {64, 128});
  }
  std::string messages() const { return text_of(diags_); }

  static constexpr const char* kSame = R"({"model_type": "qwen3_moe", "num_hidden_layers": 2,
      "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096,
      "rope_theta": 1000000, "rms_norm_eps": 1e-06, "num_experts": 8, "num_experts_per_tok": 3,
      "moe_intermediate_size": 32, "vocab_size": 100, "norm_topk_prob": true,
      "tie_word_embeddings": false, "rope_scaling": null})";
  std::string with(std::string_view from, std::string_view to) const {
    std::string text = kSame;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  }

  TempDir dir_;
  TinyGguf tiny_;
  DiagSink diags_;
};

// Converters disagree what its architecture is called.
TEST_F(GgufConfig, AnArchitectureMayHaveTwoNames) {
  for (const std::string arch : {"glm5next", "glm5-next"}) {
    SCOPED_TRACE(arch);
    tiny_ = {};
    set(gguf_str("general.architecture", arch));
    set(gguf_u32(arch + ".block_count", 2));
    set(gguf_u32(arch + ".attention.indexer.kpool", 8));
    set(gguf_u32(arch + ".rope.dimension_count", 0));
    set(gguf_u32(arch + ".attention.key_length_mla", 48));
    set(gguf_u32(arch + ".leading_dense_block_count", 1));
    tensor("blk.1.indexer.attn_k.weight", {64, 32});
    const HfConfig config = derive();
    EXPECT_EQ(config.model_type(), "glm5_next");
    EXPECT_EQ(config.i64("index_kpool"), 8);
    EXPECT_EQ(config.i64("qk_rope_head_dim"), 0);
    EXPECT_EQ(config.i64("qk_nope_head_dim"), 48);
    EXPECT_EQ(config.i64("first_k_dense_replace"), 1);
  }
}

TEST_F(GgufConfig, EqualSidesAreSilent) {
  const HfConfig config = merge(kSame);
  EXPECT_EQ(messages(), "");
  EXPECT_EQ(config.i64("head_dim"), 32);
  EXPECT_EQ(config.find("rms_norm_eps")->origin, ConfigOrigin::Config);
}

TEST_F(GgufConfig, AloneGivesTheSameConfig) {
  const HfConfig both = merge(kSame);
  const HfConfig alone = derive();
  EXPECT_EQ(messages(), "");
  for (const auto& [key, value] : both.values()) {
    ASSERT_TRUE(alone.has(key)) << key;
    EXPECT_EQ(describe(alone.find(key)->value), describe(value.value)) << key;
  }
  EXPECT_EQ(alone.model_type(), "qwen3_moe");
  EXPECT_EQ(alone.f64("rms_norm_eps"), 1e-6);  // not 9.99999997e-07
  EXPECT_EQ(alone.find("norm_topk_prob")->origin, ConfigOrigin::Default);
}

TEST_F(GgufConfig, StructuralDisagreementsAreErrorsThatNameBothValues) {
  const std::pair<const char*, const char*> kCases[] = {
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"},
      {"\"hidden_size\": 64", "\"hidden_size\": 128"},
      {"\"num_attention_heads\": 4", "\"num_attention_heads\": 8"},
      {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4"},
      {"\"head_dim\": 32", "\"head_dim\": 16"},
      {"\"num_experts\": 8", "\"num_experts\": 16"},
      {"\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 2"},
      {"\"moe_intermediate_size\": 32", "\"moe_intermediate_size\": 64"},
      {"\"vocab_size\": 100", "\"vocab_size\": 101"},
      {"\"qwen3_moe\"", "\"qwen2_moe\""},
      {"\"qwen3_moe\"", "\"gemma2\""},
  };
  for (const auto& [from, to] : kCases) {
    merge(with(from, to));
    EXPECT_GE(diags_.errors(), 1) << to;
    EXPECT_THAT(messages(), HasSubstr("config.json: error: ")) << to;
    EXPECT_THAT(messages(), HasSubstr("m.gguf h")) << to;  // has …, or holds …
    EXPECT_THAT(messages(), HasSubstr("--trust=")) << to;
  }
  merge(with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
  EXPECT_THAT(messages(), HasSubstr("num_hidden_layers is 3, but"));
  EXPECT_THAT(messages(), HasSubstr("has 2 (key 'qwen3moe.block_count')"));
}

TEST_F(GgufConfig, TheConfigOfAnotherModelIsOneError) {
  const char* kOther = R"({"model_type": "llama", "num_hidden_layers": 28, "hidden_size": 2048,
      "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 8192,
      "vocab_size": 128256, "rope_theta": 500000})";
  merge(kOther);
  EXPECT_EQ(diags_.all().size(), 1u) << messages();
  EXPECT_THAT(
      messages(),
      HasSubstr("config.json: error: this is the config of another model (llama, 28 layers, "
                "width 2048), and "));
  EXPECT_THAT(messages(), HasSubstr("m.gguf holds qwen3_moe, 2 layers, width 64: 8 of 8 keys"));
  EXPECT_THAT(messages(), HasSubstr("--hf-config-details lists the keys"));
  merge(kOther, Trust::Neither, /*all_differences=*/true);
  EXPECT_GE(diags_.errors(), 5);
  EXPECT_THAT(messages(), HasSubstr("num_hidden_layers is 28, but"));
  EXPECT_THAT(messages(), HasSubstr("vocab_size is 128256, but"));
  merge(kOther, Trust::Config);  // the user has decided
  EXPECT_EQ(diags_.errors(), 0);
}

TEST_F(GgufConfig, TrustDecides) {
  const std::string other = with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  EXPECT_EQ(merge(other, Trust::Config).i64("num_hidden_layers"), 3);
  EXPECT_EQ(diags_.errors(), 0);
  EXPECT_EQ(diags_.warnings(), 1);
  EXPECT_THAT(messages(), HasSubstr("using the config's"));
  EXPECT_EQ(merge(other, Trust::Gguf).i64("num_hidden_layers"), 2);
  EXPECT_EQ(diags_.errors(), 0);
  EXPECT_THAT(messages(), HasSubstr("using the GGUF's"));
  const HfConfig stranger = merge(with("\"qwen3_moe\"", "\"gemma2\""), Trust::Gguf);
  EXPECT_EQ(diags_.errors(), 0);
  EXPECT_EQ(stranger.model_type(), "qwen3_moe");
}

TEST_F(GgufConfig, OtherDisagreementsAreWarnings) {
  EXPECT_EQ(merge(with("1000000", "10000")).f64("rope_theta"), 10000);
  EXPECT_EQ(diags_.errors(), 0);
  EXPECT_EQ(diags_.warnings(), 1);
  EXPECT_THAT(messages(), HasSubstr("rope_theta is 10000, but"));
  EXPECT_EQ(merge(with("1000000", "10000"), Trust::Gguf).f64("rope_theta"), 1e6);
}

TEST_F(GgufConfig, FillsAreReportedOnceForEachSide) {
  const HfConfig config = merge(R"({"model_type": "qwen3_moe", "norm_topk_prob": false})");
  EXPECT_EQ(diags_.errors() + diags_.warnings(), 0) << messages();
  EXPECT_EQ(diags_.all().size(), 2u);
  EXPECT_THAT(messages(), HasSubstr("as the GGUF lacks it: norm_topk_prob = false"));
  EXPECT_THAT(messages(), HasSubstr("as the config lacks it: hidden_size = 64, num_hidden"));
  EXPECT_EQ(config.i64("num_experts"), 8);
  EXPECT_EQ(config.find("num_experts")->origin, ConfigOrigin::Gguf);
}

TEST_F(GgufConfig, WrongTypesAndRangesNameTheKey) {
  merge(with("\"hidden_size\": 64", "\"hidden_size\": \"64\""));
  EXPECT_THAT(messages(), HasSubstr("error: key 'hidden_size' is '64', expected a whole number"));
  merge(with("\"num_attention_heads\": 4", "\"num_attention_heads\": 0"));
  EXPECT_THAT(messages(), HasSubstr("key 'num_attention_heads' is 0, expected"));
  merge(with("1e-06", "-1"));
  EXPECT_THAT(messages(), HasSubstr("key 'rms_norm_eps' is -1, expected a finite number above 0"));
  merge(with("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"), Trust::Config);
  EXPECT_THAT(messages(), HasSubstr("expected a multiple of 'num_key_value_heads'"));
  merge(with("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9"), Trust::Config);
  EXPECT_THAT(messages(), HasSubstr("at most the number of experts, 8"));
}

TEST_F(GgufConfig, WrongGgufValuesNameTheKey) {
  const std::pair<size_t, std::string> kCases[] = {
      {1, gguf_u32("qwen3moe.block_count", 0)},
      {1, gguf_u32("qwen3moe.block_count", 100000)},
      {1, gguf_u32("qwen3moe.block_count", 0xFFFFFFFF)},
      {1, gguf_str("qwen3moe.block_count", "two")},
      {4, gguf_u32("qwen3moe.attention.head_count", 0)},
      {4, gguf_pair("qwen3moe.attention.head_count", 5, le<int32_t>(-4))},
      {4, gguf_array("qwen3moe.attention.head_count", 4, 2, le(4u) + le(0u))},
      {8, gguf_f32("qwen3moe.rope.freq_base", -1)},
      {8, gguf_pair("qwen3moe.rope.freq_base", 6, le<uint32_t>(0x7FC00000))},
      {9, gguf_str("qwen3moe.attention.layer_norm_rms_epsilon", "small")},
  };
  for (const auto& [index, pair] : kCases) {
    const std::string good = std::exchange(tiny_.pairs[index], pair);
    derive();
    EXPECT_GE(diags_.errors(), 1);
    EXPECT_THAT(messages(), HasSubstr("m.gguf: error: "));
    tiny_.pairs[index] = good;
  }
}

TEST_F(GgufConfig, EqualPerLayerArraysAreOneNumber) {
  tiny_.pairs[5] = gguf_array("qwen3moe.attention.head_count_kv", 4, 2, le(2u) + le(2u));
  merge(kSame);
  EXPECT_EQ(messages(), "");
}

TEST_F(GgufConfig, PerLayerArraysAreLists) {
  tiny_.pairs[5] = gguf_array("qwen3moe.attention.head_count_kv", 4, 2, le(1u) + le(2u));
  EXPECT_THAT(*derive().ints("num_key_value_heads"), ::testing::ElementsAre(1, 2));
  merge(with("\"num_key_value_heads\": 2", "\"num_key_value_heads\": [1, 2]"));
  EXPECT_EQ(messages(), "");
  merge(kSame);
  EXPECT_THAT(messages(), HasSubstr("num_key_value_heads is 2, but "));
  EXPECT_THAT(messages(), HasSubstr("has [1, 2] (key 'qwen3moe.attention.head_count_kv')"));
}

TEST_F(GgufConfig, OutputMatrixOfTiedModelsIsNoDisagreement) {
  EXPECT_EQ(merge(with("\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"))
                .boolean("tie_word_embeddings"),
            false);
  EXPECT_EQ(messages(), "");
  tiny_.tensors.erase(tiny_.tensors.begin() + 1);
  EXPECT_EQ(derive().boolean("tie_word_embeddings"), true);
  merge(kSame);
  EXPECT_THAT(messages(), HasSubstr("tie_word_embeddings is false, but"));
}

TEST_F(GgufConfig, ScalingsOfOneSideDoNotMix) {
  set(gguf_str("qwen3moe.rope.scaling.type", "yarn"));
  set(gguf_f32("qwen3moe.rope.scaling.factor", 4));
  HfConfig config = merge(kSame);  // says: none
  EXPECT_THAT(messages(), HasSubstr("rope_scaling.rope_type is 'default', but"));
  EXPECT_FALSE(config.has("rope_scaling.factor"));
  config = merge(kSame, Trust::Gguf);
  EXPECT_EQ(config.string("rope_scaling.rope_type"), "yarn");
  EXPECT_EQ(config.f64("rope_scaling.factor"), 4);
  EXPECT_EQ(config.f64("rope_scaling.beta_fast"), 32);   // its meaning when absent
  config = merge(with(", \"rope_scaling\": null", ""));  // says nothing: filled
  EXPECT_EQ(diags_.warnings(), 0) << messages();
  EXPECT_EQ(config.f64("rope_scaling.factor"), 4);
}

TEST_F(GgufConfig, ListsOfEqualNumbersAreOneNumber) {
  const HfConfig config =
      merge(with("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": [3, 3.0]"));
  EXPECT_EQ(messages(), "");
  EXPECT_EQ(config.i64("num_experts_per_tok"), 3);
  merge(with("\"moe_intermediate_size\": 32", "\"moe_intermediate_size\": [32, 48]"));
  EXPECT_THAT(messages(),
              HasSubstr("key 'moe_intermediate_size' is 32 in layer 0 and 48 in layer 1, expected "
                        "the same number for every layer"));
}

TEST_F(GgufConfig, TheTypeOfTheWholeIsTakenWhereTheFileHasIt) {
  const std::string text = with("\"model_type\": \"qwen3_moe\"",
                                "\"model_type\": \"mistral\", \"outer_model_type\": \"qwen3_moe\"");
  EXPECT_EQ(merge(text).model_type(), "qwen3_moe");
  EXPECT_EQ(messages(), "");
}

TEST_F(GgufConfig, AFactorOfZeroIsNoScaling) {
  set(gguf_str("qwen3moe.rope.scaling.type", "linear"));
  set(gguf_f32("qwen3moe.rope.scaling.factor", 0));
  EXPECT_EQ(derive().string("rope_scaling.rope_type"), "default");
  EXPECT_EQ(diags_.errors(), 0) << messages();
}

TEST_F(GgufConfig, KeysOfAFileHaveTheirNamesInMessages) {
  const HfConfig config = derive();
  EXPECT_TRUE(config.is_of_gguf());
  EXPECT_EQ(config.in_own_words("'num_hidden_layers' and 'head_dim' of 'layer_types'"),
            "'qwen3moe.block_count' and 'qwen3moe.attention.key_length' of 'layer_types'");
  EXPECT_FALSE(merge(kSame).is_of_gguf());
  EXPECT_EQ(merge(kSame).in_own_words("'head_dim'"), "'head_dim'");
}

TEST_F(GgufConfig, UnknownArchitecturesGiveTheirName) {
  tiny_.pairs = {gguf_str("general.architecture", "mamba")};
  EXPECT_EQ(derive().model_type(), "mamba");
  EXPECT_EQ(messages(), "");
}

// Nemotron 3 Super: the lists by layer count its layer for multi-token prediction, too.
TEST_F(GgufConfig, KindsOfLayersAreThoseOfTheModel) {
  const auto numbers = [](const char* key, const std::vector<uint32_t>& values) {
    std::string payload;
    for (const uint32_t value : values) payload += le(value);
    return gguf_array(key, 4, values.size(), payload);
  };
  tiny_.pairs = {gguf_str("general.architecture", "nemotron_h_moe"),
                 gguf_u32("nemotron_h_moe.block_count", 4),
                 gguf_u32("nemotron_h_moe.nextn_predict_layers", 1),
                 gguf_u32("nemotron_h_moe.expert_count", 8),
                 numbers("nemotron_h_moe.attention.head_count_kv", {0, 0, 2, 2}),
                 numbers("nemotron_h_moe.feed_forward_length", {0, 32, 0, 32})};
  tiny_.tensors = {};
  tensor("blk.3.nextn.eh_proj.weight", {128, 64});
  const HfConfig config = derive();
  EXPECT_EQ(config.i64("num_hidden_layers"), 3);
  EXPECT_EQ(config.strings("layer_types"),
            (std::vector<std::string>{"linear_attention", "moe", "full_attention"}));
}

// DeepSeek: the generations share an architecture.
class GgufConfigDeepseek : public GgufConfig {
 protected:
  void SetUp() override {
    set(gguf_str("general.architecture", "deepseek2"));
    set(gguf_u32("deepseek2.block_count", 3));
    set(gguf_u32("deepseek2.embedding_length", 64));
    set(gguf_u32("deepseek2.feed_forward_length", 128));
    set(gguf_u32("deepseek2.attention.head_count", 4));
    set(gguf_u32("deepseek2.attention.head_count_kv", 4));
    set(gguf_u32("deepseek2.attention.key_length", 48));  // the old form: nope + rope
    set(gguf_u32("deepseek2.attention.value_length", 32));
    set(gguf_u32("deepseek2.attention.kv_lora_rank", 16));
    set(gguf_u32("deepseek2.attention.q_lora_rank", 24));
    set(gguf_u32("deepseek2.rope.dimension_count", 16));
    set(gguf_f32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f));
    set(gguf_u32("deepseek2.context_length", 4096));
    set(gguf_u32("deepseek2.expert_count", 8));
    set(gguf_u32("deepseek2.expert_used_count", 2));
    set(gguf_u32("deepseek2.expert_feed_forward_length", 32));
    set(gguf_u32("deepseek2.expert_shared_count", 1));
    set(gguf_f32("deepseek2.expert_weights_scale", 2.5f));
    set(gguf_bool("deepseek2.expert_weights_norm", true));
    set(gguf_u32("deepseek2.leading_dense_block_count", 1));
    tensor("token_embd.weight", {64, 100});
    tensor("output.weight", {64, 100});
    tensor("blk.0.attn_q_a.weight", {64, 24});
    tensor("blk.1.exp_probs_b.bias", {8});
  }
  static constexpr const char* kV3 = R"({"model_type": "deepseek_v3", "num_hidden_layers": 3,
      "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
      "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 16,
      "qk_nope_head_dim": 32, "v_head_dim": 32, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 4096, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "n_shared_experts": 1, "routed_scaling_factor": 2.5,
      "norm_topk_prob": true, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
      "scoring_func": "sigmoid", "topk_method": "noaux_tc", "vocab_size": 100,
      "tie_word_embeddings": false, "rope_theta": 10000, "rope_scaling": null})";
};

// The real case of the issue: without the key other programs run softmax.
TEST_F(GgufConfigDeepseek, TheConfigFillsScoringAndGroups) {
  const HfConfig config = merge(kV3);
  EXPECT_EQ(diags_.errors() + diags_.warnings(), 0) << messages();
  EXPECT_EQ(config.string("scoring_func"), "sigmoid");
  EXPECT_EQ(config.i64("n_group"), 4);
  EXPECT_THAT(messages(), HasSubstr("as the GGUF lacks it: n_group = 4, topk_group = 2"));
}

TEST_F(GgufConfigDeepseek, CorrectionBiasesMeanSigmoid) {
  const HfConfig config = derive();
  EXPECT_EQ(config.model_type(), "deepseek_v3");
  EXPECT_EQ(config.string("scoring_func"), "sigmoid");
  EXPECT_THAT(messages(), HasSubstr("note: 'deepseek2.expert_gating_func' is missing"));
  EXPECT_EQ(config.string("topk_method"), "noaux_tc");
  EXPECT_EQ(config.i64("n_group"), 1);
  EXPECT_EQ(config.i64("qk_nope_head_dim"), 32);
  EXPECT_EQ(config.i64("v_head_dim"), 32);
}

TEST_F(GgufConfigDeepseek, WithoutBiasesItIsV2) {
  tiny_.tensors.pop_back();
  set(gguf_u32("deepseek2.expert_group_count", 4));
  set(gguf_u32("deepseek2.expert_group_used_count", 2));
  const HfConfig config = derive();
  EXPECT_EQ(config.model_type(), "deepseek_v2");
  EXPECT_EQ(config.string("scoring_func"), "softmax");
  EXPECT_EQ(config.string("topk_method"), "group_limited_greedy");
  merge(kV3);
  EXPECT_THAT(messages(), HasSubstr("model_type is 'deepseek_v3', but"));
  EXPECT_GE(diags_.errors(), 1);
}

// Their graphs are the same, so a config may say which of the two it is.
TEST_F(GgufConfigDeepseek, TheConfigNamesTheFamilyAmongThoseThatComputeAlike) {
  std::string config = kV3;
  const size_t at = config.find("deepseek_v3");
  config.replace(at, 11, "glm4_moe_lite");
  EXPECT_EQ(merge(config.c_str()).model_type(), "glm4_moe_lite");
  EXPECT_EQ(diags_.errors(), 0) << messages();
  config.replace(at, 13, "new_name\", \"architectures\": [\"Glm4MoeLiteForCausalLM\"], \"x\": \"");
  EXPECT_EQ(merge(config.c_str()).string("scoring_func"), "sigmoid");
  EXPECT_EQ(diags_.errors(), 0) << messages();
}

TEST_F(GgufConfigDeepseek, TheTokenizersSplittingTellsThemApart) {
  set(gguf_str("tokenizer.ggml.pre", "glm4"));
  EXPECT_EQ(derive().model_type(), "glm4_moe_lite");
}

TEST_F(GgufConfigDeepseek, ReadsTheNewAttentionKeys) {
  tiny_.pairs[5] = gguf_u32("deepseek2.attention.head_count_kv", 1);
  tiny_.pairs[6] = gguf_u32("deepseek2.attention.key_length", 32);    // kv_lora + rope
  tiny_.pairs[7] = gguf_u32("deepseek2.attention.value_length", 16);  // kv_lora
  set(gguf_u32("deepseek2.attention.key_length_mla", 48));
  set(gguf_u32("deepseek2.attention.value_length_mla", 32));
  merge(kV3);
  EXPECT_EQ(diags_.errors() + diags_.warnings(), 0) << messages();
  const HfConfig config = derive();
  EXPECT_EQ(config.i64("num_key_value_heads"), 4);
  EXPECT_EQ(config.i64("qk_nope_head_dim"), 32);
  EXPECT_EQ(config.i64("v_head_dim"), 32);
}

TEST_F(GgufConfigDeepseek, LayersOfExtraHeadsDoNotCount) {
  tiny_.pairs[1] = gguf_u32("deepseek2.block_count", 4);
  set(gguf_u32("deepseek2.nextn_predict_layers", 1));
  tensor("blk.3.nextn.eh_proj.weight", {128, 64});
  EXPECT_EQ(derive().i64("num_hidden_layers"), 3);
  tiny_.pairs[1] = gguf_u32("deepseek2.block_count", 3);  // files that count without them
  EXPECT_EQ(derive().i64("num_hidden_layers"), 3);
  tiny_.tensors.clear();  // no tensors to look at
  tiny_.pairs[1] = gguf_u32("deepseek2.block_count", 4);
  EXPECT_EQ(derive().i64("num_hidden_layers"), 3);
}

TEST_F(GgufConfigDeepseek, NoQueryRankIsNull) {
  tiny_.pairs.erase(tiny_.pairs.begin() + 9);
  tiny_.tensors[2].name = "blk.0.attn_q.weight";
  EXPECT_TRUE(derive().is_null("q_lora_rank"));
  merge(kV3);
  EXPECT_THAT(messages(), HasSubstr("q_lora_rank is 24, but"));
  EXPECT_THAT(messages(), HasSubstr("has null"));
}

TEST_F(GgufConfigDeepseek, YarnMultiplierIsATenthOfMscale) {
  set(gguf_str("deepseek2.rope.scaling.type", "yarn"));
  set(gguf_f32("deepseek2.rope.scaling.factor", 40));
  set(gguf_u32("deepseek2.rope.scaling.original_context_length", 4096));
  set(gguf_f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f));
  const HfConfig config = derive();
  EXPECT_EQ(config.f64("rope_scaling.mscale_all_dim"), 0.707);
  EXPECT_EQ(config.f64("rope_scaling.mscale"), 0.707);
  EXPECT_EQ(config.f64("rope_scaling.beta_slow"), 1);
}

// The test models: both sides agree, each alone gives what the other says.
TEST(GgufConfigModels, AgreeWithTheirConfigs) {
  if (!std::filesystem::exists(test_models_dir()))
    GTEST_SKIP() << test_models_dir() << " is missing";
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test_models_dir())) {
    const auto beside = entry.path().parent_path() / "config.json";
    if (entry.path().extension() != ".gguf" || !std::filesystem::exists(beside)) continue;
    SCOPED_TRACE(entry.path());
    const auto gguf = GgufFile::open(entry.path());
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const auto config = HfConfig::read(beside);
    ASSERT_TRUE(config.ok()) << config.error().message;
    DiagSink diags;
    const HfConfig merged = merge_configs(*config, *gguf, Trust::Neither, diags);
    EXPECT_EQ(text_of(diags), "");
    DiagSink alone;
    const HfConfig derived = config_from_gguf(*gguf, alone);
    EXPECT_EQ(text_of(alone), "");
    for (const auto& [key, value] : derived.values()) {
      ASSERT_TRUE(merged.has(key)) << key;
      EXPECT_EQ(describe(merged.find(key)->value), describe(value.value)) << key;
    }
    ++count;
  }
  EXPECT_GE(count, 1);
}

TEST(GgufConfigModels, TheConfigOfAnotherModelIsAnError) {
  const auto gguf = GgufFile::open(test_models_dir() + "/qwen3moe/qwen3moe-q4_k_m.gguf");
  if (!gguf.ok()) GTEST_SKIP() << gguf.error().message;
  for (const char* other : {"llama", "mixtral", "qwen2", "qwen2moe", "deepseek2", "deepseek3"}) {
    const auto config = HfConfig::read(test_models_dir() + "/" + other);
    if (!config.ok()) continue;
    DiagSink diags;
    merge_configs(*config, *gguf, Trust::Neither, diags);
    EXPECT_GE(diags.errors(), 1) << other;
    DiagSink all;
    merge_configs(*config, *gguf, Trust::Neither, all, /*all_differences=*/true);
    EXPECT_GE(all.errors(), diags.errors()) << other;
  }
}

}  // namespace
}  // namespace ktx::input
