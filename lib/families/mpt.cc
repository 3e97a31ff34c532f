// MPT: no positions, scores of attention fall with the distance; layer norms without biases, gelu
// without a gate; some models clamp queries, keys and values (StoryWriter).
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

#define KTX_BLOCK "transformer.blocks.{layer}"
constexpr ClassRow kBlock{"{P}Block"};
constexpr ModuleRow kRows[] = {
    {Role::Model, "transformer", &kModel},
    embedding("transformer.wte"),
    {Role::LayerList, "transformer.blocks", &kModuleList},
    {Role::Layer, KTX_BLOCK, &kBlock},
    weighted(Role::AttentionNorm, KTX_BLOCK ".norm_1", &kTorchLayerNorm, "B.attn_norm."),
    {Role::Attention, KTX_BLOCK ".attn", &kAttention},
    linear(Role::QkvProj, KTX_BLOCK ".attn.Wqkv", "B.attn_qkv."),
    linear(Role::OProj, KTX_BLOCK ".attn.out_proj", "B.attn_output."),
    weighted(Role::MlpNorm, KTX_BLOCK ".norm_2", &kTorchLayerNorm, "B.ffn_norm."),
    {Role::Mlp, KTX_BLOCK ".ffn", &kMlp},
    linear(Role::UpProj, KTX_BLOCK ".ffn.up_proj", "B.ffn_up."),
    {Role::Activation, KTX_BLOCK ".ffn.act", &kSilu},
    linear(Role::DownProj, KTX_BLOCK ".ffn.down_proj", "B.ffn_down."),
    weighted(Role::FinalNorm, "transformer.norm_f", &kTorchLayerNorm, "output_norm."),
};
#undef KTX_BLOCK
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot, kRows, kHead};

constexpr ConfigKey kOwnKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-5"),
    positive("alibi_bias_max", "attention.max_alibi_bias", "8", "8"),
    amount("clip_qkv", "attention.clamp_kqv", "0", "0"),
    {"qk_layernorm", "", KeyRead::QkNorm, KeyKind::Flag, KeyWeight::Plain, "false", "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys, kMlpKeys, kOwnKeys,
                                                kTiedKeys};
constexpr ConfigAlias kAliases[] = {
    {"d_model", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"expansion_ratio", "intermediate_size", "hidden_size",
     [](double times, double width) { return times * width; }},
    {"max_seq_len", "max_position_embeddings"},
    {"layer_norm_epsilon", "layer_norm_eps"},
    {"attn_config.kv_n_heads", "num_key_value_heads"},
    {"attn_config.alibi_bias_max", "alibi_bias_max"},
    {"attn_config.clip_qkv", "clip_qkv"},
    {"attn_config.qk_ln", "qk_layernorm"},
    {"attn_config.softmax_scale", "attention_multiplier"},
};
constexpr ConfigDefault kDefaults[] = {{"layer_norm_eps", "1e-5"},
                                       {"alibi_bias_max", "8"},
                                       {"tie_word_embeddings", "true"},
                                       {"intermediate_size", "4*hidden_size"}};

}  // namespace

const Family kMpt = {
    .architecture = "MptForCausalLM",
    .model_types = "mpt",
    .gguf_arch = "mpt",
    .alibi = 8,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
