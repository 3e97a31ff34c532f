#include "lib/input/hf_config.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace ktx::input {
namespace {

using ktx::testing::TempDir;
using ::testing::HasSubstr;

HfConfig parse(std::string_view text) {
  auto config = HfConfig::parse(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config.take() : HfConfig();
}

std::string error_of(std::string_view text) {
  const auto config = HfConfig::parse(text, "config.json");
  return config.ok() ? "(it parsed)" : config.error().message;
}

TEST(HfConfig, TypedKeys) {
  const HfConfig config = parse(R"({"a": 4096, "b": 1e-6, "c": true, "d": "x", "e": null,
      "f": {"g": {"h": 40.0}}, "i": [1, 2.5], "j": ["x", "y"], "k": [], "l": [{"m": 1}, 2],
      "n": [1, "x", null]})");
  EXPECT_EQ(config.i64("a"), 4096);
  EXPECT_EQ(config.f64("a"), 4096.0);
  EXPECT_EQ(config.f64("b"), 1e-6);
  EXPECT_EQ(config.i64("b"), std::nullopt);
  EXPECT_EQ(config.boolean("c"), true);
  EXPECT_EQ(config.i64("c"), std::nullopt);
  EXPECT_EQ(config.string("d"), "x");
  EXPECT_TRUE(config.has("e"));
  EXPECT_TRUE(config.is_null("e"));
  EXPECT_FALSE(config.i64("e") || config.string("e") || config.boolean("e"));
  EXPECT_FALSE(config.has("nothing") || config.is_null("nothing"));
  EXPECT_EQ(config.i64("f.g.h"), 40);
  EXPECT_EQ(config.floats("i"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(config.ints("i"), std::nullopt);
  EXPECT_EQ(config.strings("j"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.strings("k")->size(), 0u);
  EXPECT_EQ(config.ints("k")->size(), 0u);
  EXPECT_EQ(config.i64("l.0.m"), 1);
  EXPECT_EQ(config.i64("l.1"), 2);
  EXPECT_EQ(config.string("n.1"), "x");
  EXPECT_TRUE(config.is_null("n.2"));
}

TEST(HfConfig, FoldsTransformers5IntoTheNormalForm) {
  const HfConfig four = parse(R"({"model_type": "qwen3_moe", "num_experts": 8, "rope_theta": 1e4,
      "torch_dtype": "float16", "rope_scaling": {"type": "yarn", "factor": 4.0}})");
  const HfConfig five = parse(R"({"model_type": "qwen3_moe", "num_local_experts": 8,
      "dtype": "float16", "rope_parameters":
      {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "attention_factor": null}})");
  ASSERT_EQ(four.values().size(), five.values().size());
  for (const auto& [key, value] : four.values()) {
    ASSERT_TRUE(five.has(key)) << key;
    EXPECT_EQ(describe(value.value), describe(five.find(key)->value)) << key;
  }
  EXPECT_EQ(five.string("rope_scaling.rope_type"), "yarn");
  EXPECT_EQ(five.i64("num_experts"), 8);
  EXPECT_EQ(parse(R"({"model_type": "mixtral", "num_experts": 4})").i64("num_local_experts"), 4);
}

TEST(HfConfig, NoScalingIsDefault) {
  for (const char* text :
       {R"({"rope_scaling": null})", R"({"rope_parameters": {"rope_type": "default"}})",
        R"({"rope_scaling": {"type": "none", "factor": 2}})", R"({"rope_parameters": null})"}) {
    const HfConfig config = parse(text);
    EXPECT_EQ(config.string("rope_scaling.rope_type"), "default") << text;
    EXPECT_EQ(config.values().size(), 1u) << text;
  }
  EXPECT_FALSE(parse("{}").has("rope_scaling.rope_type"));  // absent says nothing
}

TEST(HfConfig, TheLanguageModelOfOneThatSeesIsLifted) {
  const HfConfig config = parse(R"({"model_type": "sees_v1", "architectures": ["SeesV1"],
      "text_config": {"model_type": "qwen3", "hidden_size": 64, "architectures": ["Qwen3ForCausalLM"],
      "rope_scaling": {"type": "mrope", "mrope_section": [1, 2, 3]}},
      "vision_config": {"hidden_size": 32}})");
  EXPECT_EQ(config.model_type(), "qwen3");
  EXPECT_EQ(config.i64("hidden_size"), 64);
  EXPECT_EQ(config.strings("architectures"), std::vector<std::string>{"Qwen3ForCausalLM"});
  EXPECT_EQ(config.string("rope_scaling.rope_type"), "default");
  EXPECT_FALSE(config.has("text_config.hidden_size"));
  // A name that is known stays.
  EXPECT_EQ(
      parse(R"({"model_type": "llama", "text_config": {"model_type": "x", "hidden_size": 8}})")
          .model_type(),
      "llama");
}

TEST(HfConfig, AnAlphaOfTheRotationIsAnotherBase) {
  HfConfig config = parse(R"({"head_dim": 128, "rope_theta": 10000,
      "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}})");
  EXPECT_NEAR(*config.f64("rope_theta"), 11158839.9, 0.1);
  EXPECT_EQ(config.string("rope_scaling.rope_type"), "default");
  config.normalise();
  EXPECT_NEAR(*config.f64("rope_theta"), 11158839.9, 0.1);
}

TEST(HfConfig, AKeyIsComputedFromAnotherNameOfIt) {
  const auto mini = [](const std::string& keys) {
    return parse(R"({"model_type": "minicpm", "scale_depth": 1.4, "dim_model_base": 256)" + keys +
                 "}");
  };
  const HfConfig whole = mini(R"(, "num_hidden_layers": 16, "hidden_size": 2304)");
  EXPECT_EQ(whole.f64("residual_multiplier"), 1.4 / 4);
  EXPECT_EQ(whole.f64("logits_scaling"), 9);
  EXPECT_FALSE(whole.has("scale_depth") || whole.has("dim_model_base"));
  const HfConfig less = mini(R"(, "hidden_size": 2304)");
  EXPECT_FALSE(less.has("residual_multiplier")) << "nothing is computed without the layers";
  const HfConfig wrong = parse(R"({"model_type": "minicpm", "scale_depth": -1,
      "num_hidden_layers": 16})");
  EXPECT_EQ(wrong.f64("residual_multiplier"), -1) << "what is wrong is named as it was written";
}

TEST(HfConfig, NormaliseTwiceIsOnce) {
  HfConfig config = parse(R"({"model_type": "deepseek_v3", "kv_lora_rank": 512, "head_dim": 64,
      "q_lora_rank": null, "rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 40}})");
  const auto once = config.values().size();
  config.normalise();
  EXPECT_EQ(config.values().size(), once);
  EXPECT_FALSE(config.has("head_dim"));  // of deepseek it is another name of qk_rope_head_dim
  EXPECT_TRUE(config.is_null("q_lora_rank"));
}

TEST(HfConfig, ReportsThePlaceOfBrokenJson) {
  EXPECT_THAT(error_of("{\n  \"a\": 1,\n  b\n}"), HasSubstr("config.json:3:3: not a usable JSON"));
  EXPECT_THAT(error_of(""), HasSubstr("config.json:1:1: "));
  EXPECT_THAT(error_of("[1]"), HasSubstr("an array, expected an object"));
  EXPECT_THAT(error_of("7"), HasSubstr("a single value, expected an object"));
  EXPECT_THAT(error_of("{\"a\": 1e999}"), HasSubstr("config.json:1:"));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("config.json:1:"));
  EXPECT_THAT(error_of("{\"a\": Infinit}"), HasSubstr("config.json:1:7: "));
  EXPECT_THAT(error_of("{\"a\": NaN, \"b\": -Infinity,\n b}"), HasSubstr("config.json:2:2: "));
}

// Python writes them, and transformers 5 as objects.
TEST(HfConfig, ReadsTheNumbersThatJsonDoesNotHave) {
  const HfConfig config = parse(R"({"a": Infinity, "b": -Infinity, "c": [0.0, Infinity],
      "d": NaN, "e": "NaN \" Infinity", "Infinity": 1, "f": {"__float__": "-Infinity"},
      "g": [0.5, {"__float__": "Infinity"}], "h": {"__float__": "7"}})");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(config.f64("a"), infinity);
  EXPECT_EQ(config.f64("b"), -infinity);
  EXPECT_EQ(config.floats("c"), (std::vector<double>{0, infinity}));
  EXPECT_TRUE(std::isnan(config.f64("d").value_or(0)));
  EXPECT_EQ(config.string("e"), "NaN \" Infinity");
  EXPECT_EQ(config.i64("Infinity"), 1);
  EXPECT_EQ(config.f64("f"), -infinity);
  EXPECT_EQ(config.f64("g.1"), infinity);
  EXPECT_EQ(config.string("h.__float__"), "7");
  EXPECT_EQ(config.i64("a"), std::nullopt);
}

TEST(HfConfig, FormsAsFirstPublishedBecomeTheirFamilys) {
  const char* kGranite = R"({"model_type": "granitemoehybrid", "layer_types": ["attention",
      "attention"], "position_embedding_type": "rope", "num_local_experts": EXPERTS,
      "intermediate_size": 8, "shared_intermediate_size": SHARED})";
  const auto granite = [&](const char* experts, const char* shared) {
    std::string text = kGranite;
    text.replace(text.find("EXPERTS"), 7, experts).replace(text.find("SHARED"), 6, shared);
    return parse(text);
  };
  EXPECT_EQ(granite("0", "24").model_type(), "granite");
  EXPECT_EQ(granite("0", "24").i64("intermediate_size"), 24);
  EXPECT_EQ(granite("4", "24").model_type(), "granitemoeshared");
  EXPECT_EQ(granite("4", "24").i64("shared_expert_intermediate_size"), 24);
  EXPECT_EQ(granite("4", "0").model_type(), "granitemoe");
  // With state-space layers, or without rotation, it is none of them.
  for (const char* other :
       {R"({"model_type": "granitemoehybrid", "layer_types": ["attention", "mamba"],
            "position_embedding_type": "rope"})",
        R"({"model_type": "granitemoehybrid", "position_embedding_type": "rope"})",
        R"({"model_type": "granitemoehybrid", "layer_types": ["attention"],
            "position_embedding_type": "nope"})"}) {
    EXPECT_EQ(parse(other).model_type(), "granitemoehybrid");
  }
  HfConfig glm = parse(R"({"model_type": "chatglm", "ffn_hidden_size": 24, "num_layers": 3,
      "num_hidden_layers": 3, "padded_vocab_size": 64, "vocab_size": 60, "rope_ratio": 500})");
  EXPECT_EQ(glm.model_type(), "glm");
  EXPECT_EQ(glm.i64("vocab_size"), 64);
  EXPECT_EQ(glm.i64("num_hidden_layers"), 3);
  EXPECT_EQ(glm.f64("rope_theta"), 5e6);
}

TEST(HfConfig, OneModelTypeIsSeveralFamiliesByWhatElseItSays) {
  const auto falcon = [](const char* more) {
    return parse(std::string(R"({"model_type": "falcon", "num_kv_heads": 8)") + more + "}");
  };
  EXPECT_EQ(falcon("").model_type(), "falcon");
  EXPECT_FALSE(falcon("").has("num_key_value_heads")) << "one, whatever it says";
  EXPECT_EQ(falcon(R"(, "new_decoder_architecture": true)").model_type(), "falcon_40b");
  EXPECT_EQ(falcon(R"(, "new_decoder_architecture": true)").i64("num_key_value_heads"), 8);
  const auto one_norm =
      falcon(R"(, "new_decoder_architecture": true, "num_ln_in_parallel_attn": 1)");
  EXPECT_EQ(one_norm.model_type(), "falcon");
  EXPECT_EQ(one_norm.i64("num_key_value_heads"), 8);
  for (const int layers : {32, 40}) {
    const auto baichuan =
        parse(R"({"model_type": "baichuan", "num_hidden_layers": )" + std::to_string(layers) + "}");
    EXPECT_EQ(baichuan.model_type(), layers == 32 ? "baichuan" : "baichuan_13b");
  }
  HfConfig plamo = parse(R"({"model_type": "plamo", "n_shared_head": 8, "num_attention_heads": 40,
      "num_key_value_heads": 40})");
  EXPECT_EQ(plamo.i64("num_key_value_heads"), 5);
  plamo.normalise();
  EXPECT_EQ(plamo.i64("num_key_value_heads"), 5) << "once";
}

TEST(HfConfig, RobertasPositionsBeginBehindThePadding) {
  for (const char* type : {"xlm-roberta", "roberta", "camembert"}) {
    const std::string name = std::string(R"({"model_type": ")") + type + "\"";
    HfConfig config = parse(name + R"(, "max_position_embeddings": 514, "pad_token_id": 1})");
    EXPECT_EQ(config.i64("max_position_embeddings"), 512);
    config.normalise();
    EXPECT_EQ(config.i64("max_position_embeddings"), 512) << "once";
    EXPECT_EQ(parse(name + R"(, "max_position_embeddings": 8194})").i64("max_position_embeddings"),
              8192);
  }
  EXPECT_EQ(parse(R"({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0})")
                .i64("max_position_embeddings"),
            512);
}

TEST(HfConfig, TheLanguageModelMayStandUnderSeveralNames) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    EXPECT_EQ(parse(std::string(R"({"model_type": "x", ")") + key +
                    R"(": {"model_type": "qwen3", "hidden_size": 64}})")
                  .i64("hidden_size"),
              64);
  }
  EXPECT_EQ(parse(R"({"thinker_config": {"text_config": {"hidden_size": 64}}})").i64("hidden_size"),
            64);
  // Where both types are known, the language model's own is taken.
  const HfConfig both = parse(R"({"model_type": "mistral3", "text_config":
      {"model_type": "mistral4", "hidden_size": 64}})");
  EXPECT_EQ(both.model_type(), "mistral4");
  EXPECT_EQ(both.string("outer_model_type"), "mistral3");
}

TEST(HfConfig, BoundsDepthAndSize) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_THAT(error_of(deep), HasSubstr("deeper than 32"));
  EXPECT_THAT(error_of("{\"a\":" + std::string(100000, '[')), HasSubstr("deeper than 32"));
  std::string many = "{";
  for (int i = 0; i < 100001; ++i) many += "\"k" + std::to_string(i) + "\":1,";
  EXPECT_THAT(error_of(many), HasSubstr("more than 100000 keys"));
}

TEST(HfConfig, EveryTruncationIsAnError) {
  const std::string text = R"({"a": {"b": [1, {"c": "é"}], "d": null}, "e": -1.5e3})";
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(HfConfig::parse(text.substr(0, size), "c").ok()) << size;
  }
  EXPECT_TRUE(HfConfig::parse(text, "c").ok());
}

TEST(HfConfig, ReadsAFileOrAFolder) {
  const TempDir dir;
  dir.write("config.json", R"({"hidden_size": 64})");
  EXPECT_EQ(HfConfig::read(dir.path())->i64("hidden_size"), 64);
  EXPECT_EQ(HfConfig::read(dir.path("config.json"))->i64("hidden_size"), 64);
  const auto missing = HfConfig::read(dir.path("none.json"));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("none.json"));
}

TEST(HfConfig, ReadsTheConfigsOfRealModels) {
  const std::string folder = shared_dir() + "/configs";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto config = HfConfig::read(entry.path());
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_GT(config->i64("hidden_size").value_or(0), 0) << entry.path();
    EXPECT_TRUE(config->f64("rope_theta")) << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 12);
}

}  // namespace
}  // namespace ktx::input
