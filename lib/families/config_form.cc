#include "lib/families/config_form.h"

namespace ktx::families {
namespace {

constexpr int64_t kAny = INT64_MAX;

// Granite 4 without state-space layers: what it calls shared is the dense part where there are no
// experts.
constexpr ConfigSign kGraniteDense[] = {
    {.key = "layer_types", .text = "full_attention"},
    {.key = "position_embedding_type", .text = "rope"},
    {.key = "num_local_experts"},
};
constexpr ConfigSign kGraniteShared[] = {
    {.key = "layer_types", .text = "full_attention"},
    {.key = "position_embedding_type", .text = "rope"},
    {.key = "num_local_experts", .min = 1, .max = kAny},
    {.key = "shared_intermediate_size", .min = 1, .max = kAny},
};
constexpr ConfigSign kGraniteExperts[] = {
    {.key = "layer_types", .text = "full_attention"},
    {.key = "position_embedding_type", .text = "rope"},
    {.key = "num_local_experts", .min = 1, .max = kAny},
};
constexpr ConfigAlias kGraniteDenseWidth[] = {{"shared_intermediate_size", "intermediate_size"}};

// ChatGLM 2 and 3 and GLM-4 of 2024, in the words of their own code.
constexpr ConfigSign kGlmSigns[] = {{.key = "ffn_hidden_size", .min = 1, .max = kAny}};
constexpr ConfigAlias kGlmKeys[] = {
    {"num_layers", "num_hidden_layers"},
    {"ffn_hidden_size", "intermediate_size"},
    {"kv_channels", "head_dim"},
    {"multi_query_group_num", "num_key_value_heads"},
    {"layernorm_epsilon", "rms_norm_eps"},
    {"padded_vocab_size", "vocab_size"},
    {"seq_length", "max_position_embeddings"},
    {"add_qkv_bias", "attention_bias"},
};

constexpr ConfigSign kExpertLayers[] = {{.key = "layer_types", .text = "moe", .among = true}};
constexpr ConfigSign kExpertBlocks[] = {{.key = "layers_block_type", .text = "moe", .among = true}};

// A Gemma 3 that embeds texts.
constexpr ConfigSign kBothWays[] = {{.key = "use_bidirectional_attention", .min = 1, .max = 1}};

// A shared part of width 0 is none.
constexpr ConfigSign kNoShared[] = {
    {.key = "shared_intermediate_size"},
    {.key = "shared_expert_intermediate_size"},
};

constexpr ConfigSign kEarlierStreams[] = {{.key = "attn_res_block_size", .min = 1, .max = kAny}};

// Falcon 40B and 180B, which say nothing of the number of norms; 11B says that it has one.
constexpr ConfigSign kFalcon40[] = {
    {.key = "new_decoder_architecture", .min = 1, .max = 1},
    {.key = "num_ln_in_parallel_attn"},
};
constexpr ConfigSign kFalcon40Said[] = {
    {.key = "new_decoder_architecture", .min = 1, .max = 1},
    {.key = "num_ln_in_parallel_attn", .min = 2, .max = 2},
};
constexpr ConfigSign kFalcon11[] = {{.key = "new_decoder_architecture", .min = 1, .max = 1}};
constexpr ConfigAlias kFalconHeads[] = {{"num_kv_heads", "num_key_value_heads"}};

// PLaMo, of whose heads so many share a key; what it calls key heads are all of them.
constexpr ConfigSign kSharedHeads[] = {{.key = "n_shared_head", .min = 1, .max = kAny}};
constexpr ConfigAlias kSharedHeadKeys[] = {
    {"n_shared_head", "num_key_value_heads", "num_attention_heads",
     [](double shared, double heads) { return heads / shared; }}};

// Baichuan 13B, whose scores fall with the distance.
constexpr ConfigSign kDeepBaichuan[] = {{.key = "num_hidden_layers", .min = 33, .max = kAny}};

// jina-embeddings-v2.
constexpr ConfigSign kAlibi[] = {{.key = "position_embedding_type", .text = "alibi"}};

// The model type is that of Ling 2.0 as well.
constexpr ConfigSign kLing1[] = {{.key = "architectures", .text = "BailingMoeForCausalLM"}};

constexpr ConfigForm kForms[] = {
    {.model_type = "granitemoehybrid",
     .signs = kGraniteDense,
     .becomes = "granite",
     .aliases = kGraniteDenseWidth},
    {.model_type = "granitemoehybrid", .signs = kGraniteShared, .becomes = "granitemoeshared"},
    {.model_type = "granitemoehybrid", .signs = kGraniteExperts, .becomes = "granitemoe"},
    {.model_type = "granitemoeshared", .signs = kNoShared, .becomes = "granitemoe"},
    {.model_type = "nemotron_h", .signs = kExpertLayers, .becomes = "nemotron_h_moe"},
    {.model_type = "nemotron_h", .signs = kExpertBlocks, .becomes = "nemotron_h_moe"},
    {.model_type = "kimi_linear", .signs = kEarlierStreams, .becomes = "kimi_k3"},
    {.model_type = "gemma3_text", .signs = kBothWays, .becomes = "gemma3_embedding"},
    {.model_type = "bert", .signs = kAlibi, .becomes = "jina_bert_v2"},
    {.model_type = "bailing_moe", .signs = kLing1, .becomes = "bailing_moe_v1"},
    {.model_type = "falcon", .signs = kFalcon40, .becomes = "falcon_40b"},
    {.model_type = "falcon", .signs = kFalcon40Said, .becomes = "falcon_40b"},
    {.model_type = "falcon", .signs = kFalcon11, .becomes = "falcon", .aliases = kFalconHeads},
    {.model_type = "plamo", .signs = kSharedHeads, .becomes = "plamo", .aliases = kSharedHeadKeys},
    {.model_type = "baichuan", .signs = kDeepBaichuan, .becomes = "baichuan_13b"},
    {.model_type = "stablelm_epoch", .becomes = "stablelm"},
    {.model_type = "Yi", .becomes = "llama"},
    {.model_type = "glm4v_text", .becomes = "glm4"},
    {.model_type = "glm4v_moe_text", .becomes = "glm4_moe"},
    {.model_type = "Glm4vMoe_text", .becomes = "glm4_moe"},
    {.model_type = "chatglm", .signs = kGlmSigns, .becomes = "glm", .aliases = kGlmKeys},
    {.model_type = "xlm-roberta", .becomes = "xlm-roberta", .behind_padding = true},
    {.model_type = "roberta", .becomes = "roberta", .behind_padding = true},
    {.model_type = "camembert", .becomes = "camembert", .behind_padding = true},
};

}  // namespace

std::span<const ConfigForm> config_forms() {
  return kForms;
}

std::string_view layer_kind(std::string_view kind) {
  if (kind == "mamba") return "linear_attention";
  if (kind == "attention") return "full_attention";
  if (kind.ends_with("_sparse")) return "sparse_attention";  // behind a family's name
  return kind;
}

}  // namespace ktx::families
