// What configs may say: defaults, variants, and values nothing can be computed with.
#include "lib/arch/hyper_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/arch/build_graph.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace ktx::arch {
namespace {

using nlohmann::json;

json llama() {
  return {{"model_type", "llama"},    {"hidden_size", 256},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"intermediate_size", 512},
          {"vocab_size", 100},        {"max_position_embeddings", 4096}};
}
json qwen3_moe() {
  json c = llama();
  c.update({{"model_type", "qwen3_moe"},
            {"num_experts", 8},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 64},
            {"head_dim", 64}});
  return c;
}
json deepseek(const char* type) {
  json c = llama();
  c.update({{"model_type", type},
            {"kv_lora_rank", 64},
            {"q_lora_rank", nullptr},
            {"qk_nope_head_dim", 32},
            {"qk_rope_head_dim", 16},
            {"v_head_dim", 32},
            {"n_routed_experts", 8},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 64},
            {"first_k_dense_replace", 1},
            {"n_group", 1},
            {"topk_group", 1}});
  return c;
}

struct Read {
  std::optional<HyperParams> params;
  std::string messages;
};

Read read(json config, const json& changes = json::object()) {
  config.update(changes);
  for (auto it = config.begin(); it != config.end();) {
    it = *it == "absent" ? config.erase(it) : std::next(it);
  }
  const auto parsed = input::HfConfig::parse(config.dump(), "config.json");
  EXPECT_TRUE(parsed.ok());
  DiagSink diags;
  const families::Family* arch = families::find_model_type(parsed->model_type());
  EXPECT_NE(arch, nullptr);
  Read out{read_hyper_params(*arch, *parsed, diags), ""};
  for (const Diagnostic& diag : diags.all()) out.messages += diag.message + "\n";
  return out;
}

TEST(HyperParams, HeadDimIsHiddenByHeadsUnlessGiven) {
  EXPECT_EQ(read(llama()).params->shape(0).head_dim, 64);
  EXPECT_EQ(read(llama(), {{"head_dim", 128}}).params->shape(0).head_dim, 128);
  EXPECT_EQ(read(llama(), {{"head_dim", nullptr}}).params->shape(0).head_dim, 64);
  EXPECT_EQ(read(llama(), {{"num_key_value_heads", "absent"}}).params->shape(0).kv_heads, 4);
}

// The code of these models makes it so where the config has null or nothing.
TEST(HyperParams, AFeedForwardWidthThatIsNotSaidIsFourTimesTheHiddenOne) {
  const json gpt2 = {{"model_type", "gpt2"}, {"n_embd", 96},       {"n_layer", 2}, {"n_head", 4},
                     {"vocab_size", 100},    {"n_positions", 640}, {"n_inner", 40}};
  const json falcon = {{"model_type", "falcon"},   {"hidden_size", 96}, {"num_hidden_layers", 2},
                       {"num_attention_heads", 4}, {"vocab_size", 100}, {"ffn_hidden_size", 40}};
  const json mpt = {{"model_type", "mpt"}, {"d_model", 96},     {"n_layers", 2},
                    {"n_heads", 4},        {"vocab_size", 100}, {"max_seq_len", 640},
                    {"expansion_ratio", 2}};
  const auto width = [](const json& config, const json& changes) {
    const Read out = read(config, changes);
    return out.params ? out.params->shape(0).mlp_width : -1;
  };
  for (const char* type : {"gpt2", "gpt_bigcode", "jais", "kclgpt"}) {
    EXPECT_EQ(width(gpt2, {{"model_type", type}}), 40) << type;
    EXPECT_EQ(width(gpt2, {{"model_type", type}, {"n_inner", nullptr}}), 384) << type;
    EXPECT_EQ(width(gpt2, {{"model_type", type}, {"n_inner", "absent"}}), 384) << type;
  }
  EXPECT_THAT(read(gpt2, {{"n_embd", 1 << 30}, {"n_inner", nullptr}}).messages,
              ::testing::HasSubstr("' is 4294967296, expected 1 to 16777216"));
  EXPECT_EQ(width(falcon, json::object()), 40);
  EXPECT_EQ(width(falcon, {{"ffn_hidden_size", nullptr}}), 384);
  EXPECT_EQ(width(mpt, json::object()), 192);
  EXPECT_EQ(width(mpt, {{"expansion_ratio", "absent"}}), 384);
  const json bloom = {{"model_type", "bloom"}, {"n_embed", 96},     {"n_layer", 2},
                      {"n_head", 4},           {"vocab_size", 100}, {"seq_length", 640}};
  EXPECT_EQ(width(bloom, json::object()), 384);
}

TEST(HyperParams, FalconsKeyHeadsWhereNothingSaysThem) {
  json config = {{"model_type", "falcon"},
                 {"hidden_size", 96},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"vocab_size", 100}};
  EXPECT_EQ(read(config).params->shape(0).kv_heads, 1);
  config["new_decoder_architecture"] = true;  // 40B and 180B
  EXPECT_EQ(read(config).params->shape(0).kv_heads, 4);
  EXPECT_EQ(read(config, {{"num_kv_heads", 2}}).params->shape(0).kv_heads, 2);
}

TEST(HyperParams, AListHoldsANumberForEachLayer) {
  const json lists = {{"num_attention_heads", {4, 8}},
                      {"num_key_value_heads", {1, 4}},
                      {"intermediate_size", {128, 512}},
                      {"head_dim", 32}};
  const auto params = read(llama(), lists).params;
  ASSERT_TRUE(params);
  EXPECT_EQ(params->shape(0).heads, 4);
  EXPECT_EQ(params->shape(1).heads, 8);
  EXPECT_EQ(params->shape(0).kv_heads, 1);
  EXPECT_EQ(params->shape(1).kv_heads, 4);
  EXPECT_EQ(params->shape(0).mlp_width, 128);
  EXPECT_EQ(params->shape(1).mlp_width, 512);
}

TEST(HyperParams, AListOfEqualNumbersIsOneNumber) {
  EXPECT_EQ(read(qwen3_moe(), {{"num_experts_per_tok", {2, 2}}}).params->router.top_k, 2);
  EXPECT_EQ(read(qwen3_moe(), {{"num_experts_per_tok", {2, 3}}}).messages,
            "'num_experts_per_tok' is 2 in layer 0 and 3 in layer 1, expected an integer, the same "
            "for every layer\n");
  EXPECT_EQ(read(llama(), {{"rope_theta", {5e5, 5e5}}}).params->rope.theta, 5e5);
  EXPECT_EQ(read(llama(), {{"rope_theta", {5e5, 1e6}}}).messages,
            "'rope_theta' is 500000 in layer 0 and 1000000 in layer 1, expected a number, the same "
            "for every layer\n");
}

// As Hunyuan-A13B and GLM-4 of 2024 were published, and Granite 4 without state-space layers.
TEST(HyperParams, FormsInWhichModelsWerePublished) {
  json hunyuan = llama();
  hunyuan.update({{"model_type", "hunyuan_v1_moe"},
                  {"num_experts", 8},
                  {"moe_topk", {4, 4}},
                  {"moe_intermediate_size", {512, 512}},
                  {"num_shared_expert", {1, 1}},
                  {"norm_topk_prob", true}});
  EXPECT_EQ(read(hunyuan).params->router.top_k, 4);
  EXPECT_EQ(read(hunyuan, {{"moe_topk", {1, 2}}}).messages,
            "'moe_topk' is 1 in layer 0 and 2 in layer 1, expected an integer, the same for every "
            "layer\n");
  const json chatglm = {{"model_type", "chatglm"},
                        {"hidden_size", 256},
                        {"num_layers", 2},
                        {"num_attention_heads", 4},
                        {"multi_query_group_num", 2},
                        {"ffn_hidden_size", 512},
                        {"kv_channels", 64},
                        {"layernorm_epsilon", 1.5625e-07},
                        {"padded_vocab_size", 128},
                        {"vocab_size", 100},
                        {"seq_length", 8192},
                        {"rope_ratio", 500},
                        {"add_qkv_bias", true}};
  const auto glm = read(chatglm).params;
  ASSERT_TRUE(glm);
  EXPECT_EQ(glm->vocab, 128);
  EXPECT_EQ(glm->shape(0).kv_heads, 2);
  EXPECT_EQ(glm->shape(0).mlp_width, 512);
  EXPECT_EQ(glm->rotary_dim, 32);
  EXPECT_EQ(glm->rope.theta, 5e6);
  EXPECT_EQ(glm->context, 8192);
  EXPECT_TRUE(glm->qkv_bias);
  EXPECT_FALSE(read(chatglm, {{"add_qkv_bias", false}}).params->qkv_bias);
  EXPECT_EQ(read(chatglm, {{"multi_query_group_num", 0}}).messages,
            "'multi_query_group_num' is 0, expected 1 to 65536\n");
  json granite = llama();
  granite.update({{"model_type", "granitemoehybrid"},
                  {"layer_types", {"attention", "attention"}},
                  {"position_embedding_type", "rope"},
                  {"num_local_experts", 0},
                  {"num_experts_per_tok", 0},
                  {"shared_intermediate_size", 768}});
  EXPECT_EQ(read(granite).params->shape(0).mlp_width, 768);
  const auto experts = read(granite, {{"num_local_experts", 4}, {"num_experts_per_tok", 2}}).params;
  ASSERT_TRUE(experts);
  EXPECT_EQ(experts->experts, 4);
  EXPECT_EQ(experts->router.top_k, 2);
}

TEST(HyperParams, ListsThatFitNoLayersAreErrors) {
  const std::pair<json, const char*> kCases[] = {
      {{{"num_key_value_heads", {2, 2, 2}}},
       "'num_key_value_heads' has 3 numbers, expected one, or one for each of 2 layers"},
      {{{"num_key_value_heads", {2, 3}}},
       "'num_key_value_heads' 3 does not divide 'num_attention_heads' 4 in layer 1"},
      {{{"intermediate_size", {512, 0}}},
       "'intermediate_size' is 0 in layer 1, expected 1 to 16777216"},
      {{{"num_attention_heads", {4, 2}}},
       "'num_attention_heads' differs by layer and there is no 'head_dim'"},
  };
  for (const auto& [changes, message] : kCases) {
    const Read found = read(llama(), changes);
    EXPECT_FALSE(found.params);
    EXPECT_EQ(found.messages, std::string(message) + "\n");
  }
}

TEST(HyperParams, WindowsWithRopeScalingAreRefused) {
  const Read found = read(llama(), {{"sliding_window", 1024},
                                    {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}}}});
  EXPECT_FALSE(found.params);
  EXPECT_NE(found.messages.find("'sliding_window' with rope scaling 'yarn'"), std::string::npos)
      << found.messages;
}

// EXAONE 4 without windows rotates every layer, with windows only those that have one.
TEST(HyperParams, WindowsMayDecideWhatIsRotated) {
  json exaone = llama();
  exaone.update({{"model_type", "exaone4"}, {"num_hidden_layers", 5}});
  const auto rotated = [&](const json& window) {
    std::string out;
    const Read found = read(exaone, {{"sliding_window", window}});
    for (int32_t layer = 0; layer < 5; ++layer) {
      out += found.params->shape(layer).rotated ? 'r' : '-';
    }
    return out;
  };
  EXPECT_EQ(rotated(nullptr), "rrrrr");
  EXPECT_EQ(rotated(64), "rrr-r");
  EXPECT_EQ(rotated(8192), "rrr-r") << "a window as long as the context";
  exaone["layer_types"] = {"full_attention", "sliding_attention", "full_attention",
                           "full_attention", "sliding_attention"};
  EXPECT_EQ(rotated(64), "-r--r");
  exaone.update({{"model_type", "muse_glimmer_text"}});
  EXPECT_EQ(rotated(64), "-r--r");
  exaone["layer_rope_theta"] = {500000.0, 500000.0, 0, 10000.5, 0};
  EXPECT_EQ(rotated(64), "rr-r-") << "where the config says more";
}

TEST(HyperParams, APartOfAHeadIsRotated) {
  json glm = qwen3_moe();
  glm.update({{"model_type", "glm4_moe"}, {"n_routed_experts", 8}, {"first_k_dense_replace", 1}});
  EXPECT_EQ(read(glm).params->rotary_dim, 32);  // half, when the config says nothing
  EXPECT_EQ(read(glm, {{"partial_rotary_factor", 0.25}}).params->rotary_dim, 16);
  EXPECT_EQ(read(glm, {{"partial_rotary_factor", 0.4}}).messages,
            "25 of the 64 elements of a head are rotated, expected an even number\n");
  json minimax = qwen3_moe();
  minimax.update({{"model_type", "minimax_m2"}, {"num_local_experts", 8}, {"rotary_dim", 24}});
  EXPECT_EQ(read(minimax).params->rotary_dim, 24);
  EXPECT_EQ(
      read(minimax, {{"rotary_dim", "absent"}, {"partial_rotary_factor", 0.5}}).params->rotary_dim,
      32);
  EXPECT_EQ(read(minimax, {{"rotary_dim", 65}}).messages, "'rotary_dim' is 65, expected 2 to 64\n");
}

TEST(HyperParams, BlockAttentionSaysWhatDoesNotFit) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/minimax_m3/config.json"));
  ASSERT_TRUE(read(config).params.has_value());
  EXPECT_TRUE(read(config).params->shape(1).indexer);
  EXPECT_FALSE(read(config).params->shape(0).indexer);
  EXPECT_EQ(read(config, {{"index_n_heads", 3}}).messages,
            "'index_n_heads' is 3 and 'num_key_value_heads' 2: each key head has an index head\n");
  EXPECT_EQ(read(config, {{"index_local_blocks", 3}}).messages,
            "'index_local_blocks' is 3, expected 1 to 2\n");
  EXPECT_EQ(read(config, {{"index_block_size", 257}}).messages,
            "'index_block_size' is 257, expected 1 to 256\n");
  EXPECT_EQ(read(config, {{"index_head_dim", 8}}).messages,
            "'index_head_dim' 8 is below the 16 rotated elements of a head\n");
  EXPECT_EQ(read(config, {{"swiglu_alpha", 1}}).messages,
            "'swiglu_alpha' is 1, expected 1.702: other units are not known\n");
  EXPECT_EQ(
      read(config, {{"layer_types", json::array({"full_attention"})}}).messages,
      "'layer_types' has 1 entries for 4 layers: it says in which ones attention reads chosen "
      "blocks\n");
}

TEST(HyperParams, XieluSaysWhatDoesNotFit) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/apertus/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_NEAR(params->shape(0).xielu.rise, std::log1p(std::exp(0.3)), 1e-6) << "softplus of 0.3";
  EXPECT_NEAR(params->shape(1).xielu.fall, 0.5 + std::log1p(std::exp(0.2)), 1e-6);
  EXPECT_EQ(params->shape(1).xielu.limit, -1e-6F);
  // What the model begins with before it is trained.
  const auto usual =
      read(config, {{"xielu_alpha_p", "absent"}, {"xielu_alpha_n", "absent"}}).params;
  ASSERT_TRUE(usual.has_value());
  EXPECT_NEAR(usual->shape(0).xielu.rise, 0.8, 1e-6);
  EXPECT_NEAR(usual->shape(0).xielu.fall, 0.8, 1e-6);
  EXPECT_EQ(read(config, {{"hidden_act", "silu"}}).messages,
            "'hidden_act' is 'silu', expected xielu: other activations are not known here\n");
  EXPECT_EQ(read(config, {{"xielu_alpha_p", {1.0}}}).messages,
            "'xielu_alpha_p' is no list of a number from -1000 to 1000 for each of 2 layers\n");
}

TEST(HyperParams, AttentionResidualsSayWhatDoesNotFit) {
  json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/kimi_k3/config.json"));
  config = config["text_config"];
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->source_block, 2);
  EXPECT_TRUE(params->shape(1).delta_net);
  EXPECT_FALSE(params->shape(2).delta_net);
  EXPECT_EQ(params->delta_net.lower_bound, -5);
  EXPECT_EQ(params->glu.limit, 4);
  EXPECT_EQ(params->glu.up_limit, 25);
  EXPECT_EQ(params->latent_norm_eps, 1e-6F) << "the code's, not the config's";
  EXPECT_TRUE(params->latent_norm && params->output_gate);
  json many = config;
  many["num_hidden_layers"] = 31;
  many["linear_attn_config"]["kda_layers"] = {1};
  EXPECT_EQ(read(many).messages,
            "'attn_res_block_size' 2 makes 16 blocks of 31 layers, expected at most 15\n");
  EXPECT_EQ(read(config, {{"hidden_act", "silu"}}).messages,
            "'hidden_act' is 'silu', expected situ: other activations are not known here\n");
  EXPECT_EQ(read(config, {{"mla_use_nope", false}}).messages,
            "'mla_use_nope' is false: rotated latent attention is not known for this family\n");
  EXPECT_EQ(read(config, {{"activation_situ_beta", 0}}).messages.substr(0, 25),
            "'activation_situ_beta' is");
  json none = config;
  none["linear_attn_config"].erase("kda_layers");
  EXPECT_EQ(read(none).messages,
            "'layer_types' is missing, and no 'linear_attn_config.kda_layers' says which layers "
            "have a delta net\n");
}

TEST(HyperParams, CompressedAttentionSaysWhatDoesNotFit) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/deepseek_v4/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->shape(0).every, 0);
  EXPECT_EQ(params->shape(1).every, 4);
  EXPECT_TRUE(params->shape(1).indexer);
  EXPECT_EQ(params->shape(2).every, 128);
  EXPECT_FALSE(params->shape(2).indexer);
  EXPECT_TRUE(params->shape(1).expert_table);
  EXPECT_FALSE(params->shape(2).expert_table);
  EXPECT_EQ(params->local_rope.theta, 10000) << "layers without entries";
  EXPECT_EQ(params->rope.theta, 160000);
  EXPECT_EQ(params->rope.attention_factor, 1.0) << "yarn does not scale cos and sin";
  EXPECT_EQ(read(config, {{"head_dim", 40}}).messages,
            "'head_dim' is 40, expected a multiple of 16\n");
  EXPECT_EQ(read(config, {{"o_groups", 4}}).messages,
            "'o_groups' 4 does not divide 'num_attention_heads' 6\n");
  EXPECT_EQ(read(config, {{"num_key_value_heads", 2}}).messages,
            "'num_key_value_heads' is not 1: heads share one key\n");
  EXPECT_EQ(read(config, {{"qk_rope_head_dim", 48}}).messages,
            "'index_head_dim' 32 is below 'qk_rope_head_dim' 48\n");
  EXPECT_EQ(read(config, {{"hc_mult", 17}}).messages, "'hc_mult' is 17, expected 1 to 16\n");
  EXPECT_EQ(read(config, {{"scoring_func", "sigmoid"}}).messages,
            "'scoring_func' is 'sigmoid', expected sqrtsoftplus\n");
  EXPECT_EQ(read(config, {{"compress_ratios", {0, 4, 8, 4}}}).messages,
            "'layer_types' has 'entries of 8' for layer 2, expected sliding_attention, "
            "compressed_sparse_attention or heavily_compressed_attention\n");
  EXPECT_EQ(read(config, {{"compress_ratios", {0, 4}}}).messages,
            "'layer_types' has 0 entries for 4 layers: it says what attention reads\n");
  EXPECT_EQ(read(config, {{"compress_rate_hca", 64}}).messages,
            "'compress_rate_hca' is 64, expected 128: other entries are in no file\n");
  EXPECT_THAT(read(config, {{"mlp_layer_types", {"moe", "hash_moe", "moe", "moe"}}}).messages,
              ::testing::StartsWith("'mlp_layer_types' has layers with a table of experts behind "
                                    "others: no file has\n"));
}

TEST(HyperParams, PoolsOfPositionsSayWhatDoesNotFit) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/glm5_next/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->index_pool, 4);
  EXPECT_EQ(params->index_top_k, 2) << "pools";
  EXPECT_TRUE(params->shape(0).delta_net);
  EXPECT_FALSE(params->shape(0).indexer);
  EXPECT_TRUE(params->shape(1).indexer);
  EXPECT_EQ(params->shape(2).positions_of_layer, 1);
  EXPECT_EQ(params->streams, 3);
  EXPECT_TRUE(params->mean_of_streams);
  EXPECT_EQ(params->glu.limit, 2);
  EXPECT_EQ(params->delta_net.lower_bound, -5);
  const auto unbounded = read(config, {{"linear_lower_bound", nullptr}}).params;
  ASSERT_TRUE(unbounded.has_value());
  EXPECT_EQ(unbounded->delta_net.lower_bound, 0);
  json usual = config;
  for (const char* key : {"layer_types", "indexer_types", "mlp_layer_types"}) usual.erase(key);
  const auto eight = read(usual, {{"num_hidden_layers", 8}}).params;
  ASSERT_TRUE(eight.has_value());
  for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(eight->shape(i).delta_net, i % 4 != 3) << i;
  for (int32_t i = 0; i < 8; ++i) EXPECT_EQ(eight->shape(i).experts, i >= 3) << i;
  EXPECT_EQ(read(config, {{"index_kpool", 1}}).messages, "'index_kpool' is 1, expected 2 to 256\n");
  EXPECT_EQ(read(config, {{"index_kpool", 12}}).messages,
            "'index_kpool' is 12, expected 2, 4, 8, 16, 32 or a multiple of 64\n");
  EXPECT_EQ(read(config, {{"index_topk", 10}}).messages,
            "'index_kpool' 4 does not divide 'index_topk' 10\n");
  EXPECT_EQ(read(config, {{"index_head_dim", 24}}).messages,
            "'index_head_dim' is 24, expected a multiple of 16\n");
  EXPECT_EQ(read(config, {{"q_lora_rank", nullptr}}).messages,
            "'q_lora_rank' is null: an indexer without a query latent is not known\n");
  EXPECT_THAT(read(config, {{"index_kpool_always_select_tail", false}}).messages,
              ::testing::StartsWith("'index_kpool_always_select_tail' is false: "));
  EXPECT_EQ(read(config, {{"indexer_types", {"full", "shared", "full"}}}).messages,
            "layer 1 has no indexer and no layer before it to take positions from\n");
}

// The numbers that a published file has, which follow from its config.
TEST(HyperParams, TheHashOfNgramsFollowsFromTheConfig) {
  const json config =
      json::parse(ktx::testing::read_file(source_dir() + "/tests/configs/Qwen3.8-Flash-Next.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->ngrams.multipliers,
            (std::vector<uint64_t>{23703573157769, 20109073645365, 8052911324071}));
  ASSERT_EQ(params->ngrams.sizes.size(), 16);
  EXPECT_EQ(params->ngrams.sizes.back(), 20000171);
  EXPECT_EQ(params->ngrams.offsets.back(), 300001275);
  EXPECT_EQ(params->ngram_rows, 320001536);
  EXPECT_EQ(params->ngram_width, 160);
  EXPECT_EQ(params->ngrams.end, 248044);
  for (int32_t i = 0; i < 48; ++i) EXPECT_EQ(params->shape(i).ngrams, i == 1) << i;
  for (int32_t i = 0; i < 48; ++i) EXPECT_EQ(params->shape(i).indexer, i % 4 == 3) << i;
  EXPECT_TRUE(params->delta_net.sigmoid_gate);
  EXPECT_EQ(params->stream_rank, 320);
  EXPECT_EQ(params->index_pool, 4);
  EXPECT_EQ(params->index_top_k, 512) << "pools";
}

TEST(HyperParams, NgramsAndPoolsOfAllHeadsSayWhatDoesNotFit) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/qwen4_exp/config.json"));
  ASSERT_TRUE(read(config).params.has_value()) << read(config).messages;
  const auto says = [&](const json& change) { return read(config, change).messages; };
  EXPECT_EQ(
      says({{"ple_layer_ids", {2, 3}}}),
      "'ple_layer_ids' lists several layers: files have one table of n-grams, for one layer\n");
  EXPECT_EQ(says({{"ple_layer_ids", {6}}}), "'ple_layer_ids' is 6, expected 1 to 5\n");
  EXPECT_EQ(says({{"ngram_size", 9}}), "'ngram_size' is 9, expected 2 to 8\n");
  EXPECT_EQ(says({{"ple_embed_dim", 126}}),
            "'ple_embed_dim' 126 is no multiple of the 4 rows of a token\n");
  EXPECT_EQ(says({{"heads_per_ngram", 200}}),
            "'heads_per_ngram' 200 for n-grams of up to 3 tokens makes 400 rows a token, expected "
            "at most 256\n");
  EXPECT_EQ(says({{"eos_token_id", 512}}),
            "'eos_token_id' is 512, expected an id below 512: n-grams end there\n");
  EXPECT_EQ(says({{"output_gate_type", "tanh"}}),
            "'output_gate_type' is 'tanh', expected sigmoid or silu: other gates are not known\n");
  EXPECT_EQ(says({{"indexer_kv_heads", 2}}),
            "'indexer_kv_heads' is not 1: indexers with several keys are not known\n");
  EXPECT_EQ(says({{"indexer_budget", 10}}),
            "'indexer_compress_ratio' 4 does not divide 'indexer_budget' 10\n");
  EXPECT_EQ(says({{"head_dim", 80}}),
            "'indexer_head_dim' 32 is below the 40 rotated elements of a head\n");
  for (const json& nothing : {json(nullptr), json::array(), json("absent")}) {
    const auto none = read(config, {{"ple_layer_ids", nothing}}).params;
    ASSERT_TRUE(none.has_value()) << nothing;
    EXPECT_FALSE(none->shape(2).ngrams) << nothing;
  }
}

TEST(HyperParams, StreamsOfAltUpAndSparseGates) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/gemma3n/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->streams, 4);
  EXPECT_EQ(params->laurel_rank, 24);
  EXPECT_EQ(params->attention_scale, 1) << "scores are not scaled";
  EXPECT_EQ(params->shape(0).sparsity, 0.95f);
  EXPECT_EQ(params->shape(2).sparsity, 0);
  EXPECT_EQ(params->shape(2).keys_of_layer, -1);
  EXPECT_EQ(params->shape(3).keys_of_layer, 1);
  EXPECT_EQ(params->shape(5).keys_of_layer, 2);
  // Where nothing says it, the first ten layers of more.
  json large = config;
  for (const char* key : {"activation_sparsity_pattern", "layer_types"}) large.erase(key);
  const auto usual = read(large, {{"num_hidden_layers", 12}}).params;
  ASSERT_TRUE(usual.has_value());
  EXPECT_EQ(usual->shape(9).sparsity, 0.95f);
  EXPECT_EQ(usual->shape(10).sparsity, 0);
  EXPECT_EQ(usual->shape(4).window, 0) << "every fifth";
  EXPECT_EQ(read(config, {{"altup_active_idx", 4}}).messages,
            "'altup_active_idx' is 4, expected 0 to 3\n");
  EXPECT_EQ(read(config, {{"altup_correct_scale", false}}).messages,
            "'altup_correct_scale' is false: a file has scales, and does not say that\n");
  EXPECT_EQ(read(config, {{"activation_sparsity_pattern", {0.5, 1.0, 0, 0, 0, 0}}}).messages,
            "'activation_sparsity_pattern' is no list of a share, 0 or above and below 1, for each "
            "of 6 layers\n");
}

TEST(HyperParams, ASparseMixerHasOneReach) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/phimoe/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->router.scoring, static_cast<int32_t>(Scoring::SparseMixer));
  EXPECT_EQ(params->rope.short_mscale, 1.243163121016122);
  EXPECT_EQ(read(config, {{"router_jitter_noise", 0.05}}).messages,
            "'router_jitter_noise' is 0.05, expected 0.01: another reach of the router is not "
            "known\n");
}

TEST(HyperParams, LayersWithSelectiveScansByAPeriod) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/jamba/config.json"));
  const auto params = read(config).params;
  ASSERT_TRUE(params.has_value()) << read(config).messages;
  EXPECT_EQ(params->selective_scan.channels, 288);
  EXPECT_EQ(params->selective_scan.step_rank, 10);
  std::string kinds;
  for (const LayerShape& shape : params->shapes) {
    EXPECT_NE(shape.attention, shape.state_space);
    EXPECT_FALSE(shape.rotated);
    kinds += shape.attention ? 'a' : 's';
    kinds += shape.experts ? 'x' : '-';
  }
  EXPECT_EQ(kinds, "s-sxa-sxs-");
  EXPECT_EQ(read(config, {{"mamba_dt_rank", "auto"}}).params->selective_scan.step_rank, 9);
  EXPECT_EQ(read(config, {{"num_experts", 1}}).params->experts, 0) << "a dense model";
  EXPECT_EQ(read(config, {{"mamba_proj_bias", true}}).messages,
            "'mamba_proj_bias' is set: state-space layers whose projections have biases are not "
            "known\n");
}

TEST(HyperParams, StepsOfStateSpacesMayHaveLimits) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/mamba2/config.json"));
  const auto limited = read(config, {{"time_step_limit", {0.5, 2.0}}}).params;
  ASSERT_TRUE(limited.has_value());
  EXPECT_EQ(limited->state_space.step_min, 0.5f);
  EXPECT_EQ(limited->state_space.step_max, 2);
  EXPECT_EQ(read(config).params->state_space.step_max, 0);
  EXPECT_EQ(read(config, {{"time_step_limit", {2.0, 0.5}}}).messages,
            "'time_step_limit' is 2 and 0.5, expected 0 or above, and as much or more\n");
}

TEST(HyperParams, BiasesThatAFamilyHasNotAreRefused) {
  const json config = json::parse(
      ktx::testing::read_file(source_dir() + "/tests/models/synthetic/nemotron_h_moe/config.json"));
  EXPECT_EQ(read(config).messages, "");
  EXPECT_EQ(read(config, {{"mamba_proj_bias", true}}).messages, "") << "which no code reads";
  EXPECT_EQ(read(config, {{"use_bias", true}}).messages,
            "'use_bias' is set: state-space layers whose projections have biases are not known\n");
  EXPECT_EQ(read(config, {{"mlp_bias", true}}).messages,
            "'mlp_bias' is set: feed-forward parts with biases are not known for this family\n");
}

TEST(HyperParams, LayersWithExpertsByTheFamilysPattern) {
  const auto layers = [](const json& config, const json& changes) {
    std::string out;
    const auto found = read(config, changes);
    EXPECT_EQ(found.messages, "");
    for (const LayerShape& shape : found.params->shapes) out += shape.experts ? 'x' : '-';
    return out;
  };
  json ernie = qwen3_moe();
  ernie.update({{"model_type", "ernie4_5_moe"}, {"num_hidden_layers", 7}, {"moe_num_experts", 8}});
  EXPECT_EQ(layers(ernie, json::object()), "-xxxxxx");
  EXPECT_EQ(layers(ernie, {{"moe_layer_start_index", 2}, {"moe_layer_interval", 2}}), "---x-x-");
  EXPECT_EQ(layers(ernie, {{"moe_layer_end_index", 4}}), "-xxxx--");
  EXPECT_EQ(layers(ernie, {{"moe_layer_end_index", -1}}), "-xxxxxx");
  json lite = deepseek("glm4_moe_lite");
  EXPECT_EQ(layers(lite, {{"mlp_layer_types", {"sparse", "dense"}}}), "x-");
}

TEST(HyperParams, RoutingOfEachFamily) {
  EXPECT_EQ(read(qwen3_moe()).params->router.normalize, 0);  // HF's default
  EXPECT_EQ(read(qwen3_moe(), {{"norm_topk_prob", true}}).params->router.normalize, 1);
  // V2 scales only what it does not normalise; V3 always.
  const json scaled = {{"norm_topk_prob", true}, {"routed_scaling_factor", 4.0}};
  EXPECT_EQ(read(deepseek("deepseek_v2"), scaled).params->router.scale, 1.0F);
  EXPECT_EQ(read(deepseek("deepseek_v2"), {{"routed_scaling_factor", 4.0}}).params->router.scale,
            4.0F);
  EXPECT_EQ(read(deepseek("deepseek_v3"), scaled).params->router.scale, 4.0F);
  const auto groups = read(deepseek("deepseek_v2"), {{"n_group", 4}, {"topk_group", 2}});
  EXPECT_EQ(groups.params->router.groups, 4);  // no topk_method: groups say it
  EXPECT_FALSE(groups.params->correction_bias);
  EXPECT_TRUE(read(deepseek("deepseek_v3")).params->correction_bias);
  EXPECT_FALSE(read(deepseek("deepseek_v3"), {{"topk_method", "greedy"}}).params->correction_bias);
}

TEST(HyperParams, SharedExpertsAreOneWidePart) {
  EXPECT_EQ(read(deepseek("deepseek_v2"), {{"n_shared_experts", 2}}).params->shared_width, 128);
  EXPECT_EQ(read(deepseek("deepseek_v2")).params->shared_width, 0);
}

TEST(HyperParams, RefusesWhatCannotBeComputedWith) {
  const struct {
    json config;
    json changes;
    const char* message;
  } kCases[] = {
      {llama(), {{"num_attention_heads", 0}}, "'num_attention_heads' is 0, expected 1 to 65536"},
      {llama(),
       {{"num_attention_heads", "four"}},
       "'num_attention_heads' is 'four', expected an integer"},
      {llama(), {{"hidden_size", "absent"}}, "'hidden_size' is missing; LlamaForCausalLM needs it"},
      {llama(),
       {{"num_key_value_heads", 3}},
       "'num_key_value_heads' 3 does not divide 'num_attention_heads' 4"},
      {llama(),
       {{"num_attention_heads", 6}},
       "'num_attention_heads' 6 does not divide 'hidden_size' 256"},
      {llama(), {{"head_dim", 63}}, "'head_dim' is 63, expected an even number"},
      {llama(),
       {{"num_hidden_layers", 10001}},
       "'num_hidden_layers' is 10001, expected 1 to 10000"},
      {llama(), {{"num_hidden_layers", -1}}, "'num_hidden_layers' is -1"},
      {llama(), {{"rms_norm_eps", 0}}, "'rms_norm_eps' is 0"},
      {llama(), {{"rope_theta", -5}}, "'rope_theta' is -5"},
      {llama(), {{"hidden_act", "tanh"}}, "'hidden_act' is 'tanh', expected silu"},
      {llama(), {{"clip_qkv", 8}}, "'clip_qkv' is set"},
      {llama(), {{"alibi", true}}, "'alibi' is set"},
      {llama(), {{"scale_attn_weights", false}}, "'scale_attn_weights' is false"},
      {qwen3_moe(), {{"hidden_act", "gelu"}}, "'hidden_act' is 'gelu', expected silu"},
      {llama(),
       {{"rope_scaling", {{"rope_type", "llama4"}, {"factor", 2}}}},
       "'rope_scaling.rope_type' is 'llama4', known for LlamaForCausalLM are default, linear, "
       "dynamic, yarn, llama3, longrope; did you mean 'llama3'?"},
      {llama(), {{"rope_scaling", {{"rope_type", "linear"}}}}, "'rope_scaling.factor' is missing"},
      {llama(),
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}}},
       "'rope_scaling.factor' is 0"},
      {llama(), {{"partial_rotary_factor", 0.5}}, "'partial_rotary_factor' is 0.5, expected 1"},
      {qwen3_moe(),
       {{"num_experts_per_tok", 9}},
       "'num_experts_per_tok' 9 is above 'num_experts' 8"},
      {qwen3_moe(), {{"num_experts", 65537}}, "'num_experts' is 65537, expected 0 to 65536"},
      {qwen3_moe(), {{"mlp_only_layers", "all"}}, "'mlp_only_layers' is no list of layer numbers"},
      {qwen3_moe(), {{"decoder_sparse_step", 0}}, "'decoder_sparse_step' is 0"},
      {deepseek("deepseek_v2"), {{"moe_layer_freq", 0}}, "'moe_layer_freq' is 0"},
      {deepseek("deepseek_v3"),
       {{"n_group", 3}, {"topk_group", 1}},
       "'n_group' 3 does not divide 'n_routed_experts' 8"},
      {deepseek("deepseek_v3"),
       {{"n_group", 4}, {"topk_group", 5}},
       "'topk_group' is 5, expected 1 to 'n_group' 4"},
      {deepseek("deepseek_v3"),
       {{"n_group", 4}, {"topk_group", 1}, {"num_experts_per_tok", 3}},
       "'num_experts_per_tok' 3 is above the 2 experts of 'topk_group' 1"},
      {deepseek("deepseek_v3"),
       {{"n_group", 8}, {"topk_group", 4}},
       "'n_group' 8 leaves 1 expert per group"},
      {deepseek("deepseek_v3"),
       {{"qk_rope_head_dim", 15}},
       "'qk_rope_head_dim' is 15, expected an even number"},
      {deepseek("deepseek_v3"), {{"kv_lora_rank", 0}}, "'kv_lora_rank' is 0"},
      {deepseek("deepseek_v3"), {{"topk_method", "greedly"}}, "did you mean 'greedy'?"},
      {deepseek("deepseek_v3"),
       {{"scoring_func", "relu"}},
       "'scoring_func' is 'relu', expected softmax or sigmoid"},
      {deepseek("deepseek_v32"), json::object(),
       "'q_lora_rank' is null: an indexer without a query latent"},
      {deepseek("deepseek_v32"),
       {{"index_head_dim", 8}},
       "'index_head_dim' 8 is below 'qk_rope_head_dim' 16"},
      {deepseek("glm_moe_dsa"), {{"index_topk", 0}}, "'index_topk' is 0, expected 1 to 65536"},
  };
  for (const auto& one : kCases) {
    const Read found = read(one.config, one.changes);
    EXPECT_FALSE(found.params.has_value()) << one.message;
    EXPECT_NE(found.messages.find(one.message), std::string::npos)
        << "expected " << one.message << "\nfound " << found.messages;
  }
}

// What a config.json may leave out a GGUF has to say, and messages name its keys.
TEST(HyperParams, WhatAFileLacksIsNotGuessed) {
  const auto of_gguf = [](json config, const char* without) {
    config.erase(without);
    auto parsed = input::HfConfig::parse(config.dump(), "m.gguf");
    EXPECT_TRUE(parsed.ok());
    parsed->set_of_gguf();
    DiagSink diags;
    const auto params =
        read_hyper_params(*families::find_model_type(parsed->model_type()), *parsed, diags);
    std::string messages;
    for (const Diagnostic& diag : diags.all()) messages += diag.message + "\n";
    EXPECT_EQ(params.has_value(), messages.empty());
    return messages;
  };
  json whole = llama();
  whole["rms_norm_eps"] = 1e-5;
  EXPECT_EQ(of_gguf(whole, ""), "");
  EXPECT_EQ(of_gguf(whole, "rms_norm_eps"),
            "'llama.attention.layer_norm_rms_epsilon' is missing; LlamaForCausalLM needs it\n");
  EXPECT_EQ(of_gguf(whole, "num_hidden_layers"),
            "'llama.block_count' is missing; LlamaForCausalLM needs it\n");
  json v3 = deepseek("deepseek_v3");
  v3["rms_norm_eps"] = 1e-6;
  EXPECT_EQ(of_gguf(v3, ""), "");
  EXPECT_EQ(of_gguf(v3, "num_experts_per_tok"),
            "'deepseek2.expert_used_count' is missing; DeepseekV3ForCausalLM needs it\n");
  json cohere = llama();
  cohere.update({{"model_type", "cohere"}, {"layer_norm_eps", 1e-5}, {"logit_scale", 0.25}});
  EXPECT_EQ(of_gguf(cohere, ""), "");
  EXPECT_EQ(of_gguf(cohere, "logit_scale"),
            "'command-r.logit_scale' is missing; CohereForCausalLM needs it\n");
  EXPECT_EQ(read(cohere, {{"logit_scale", "absent"}}).params->logit_scale, 0.0625F);
  whole["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(
      of_gguf(whole, ""),
      "'llama.rope.dimension_count' is 32, expected 64: LlamaForCausalLM rotates whole heads\n");
  EXPECT_EQ(read(whole, {{"rms_norm_eps", "absent"}, {"partial_rotary_factor", "absent"}}).messages,
            "");
}

TEST(HyperParams, AllMistakesAreReportedAtOnce) {
  const Read found =
      read(llama(), {{"hidden_size", "absent"}, {"vocab_size", 0}, {"rms_norm_eps", "x"}});
  EXPECT_NE(found.messages.find("hidden_size"), std::string::npos);
  EXPECT_NE(found.messages.find("vocab_size"), std::string::npos);
  EXPECT_NE(found.messages.find("rms_norm_eps"), std::string::npos);
}

TEST(HyperParams, SlidingWindowIsAWarning) {
  EXPECT_NE(read(llama(), {{"sliding_window", 1024}}).messages.find("'sliding_window' 1024"),
            std::string::npos);
  EXPECT_EQ(read(qwen3_moe(), {{"sliding_window", 1024}}).messages, "");
}

}  // namespace
}  // namespace ktx::arch
