// Falcon of 2023 and GPT-NeoX (Pythia, Dolly): attention and a feed-forward part without a gate are
// beside each other, and both read the stream. In Falcon 7B and 11B they share a norm; in Falcon
// 40B, 180B and GPT-NeoX each has one of its own. Layer norms; biases in GPT-NeoX alone, of which
// some models (RedPajama) have the parts one behind the other.
//
// A GGUF has the rows of queries, keys and values one behind the other, the models by heads.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

#define KTX_BLOCK "transformer.h.{layer}"
constexpr ClassRow kProduct{"{P}Linear", "",
                            "torch.nn.modules.linear.Linear torch.nn.Linear Linear"};
constexpr ModuleRow product(Role role, const char* path, const char* tensor) {
  return weighted(role, path, &kProduct, tensor);
}
constexpr ModuleRow kBegin[] = {
    {Role::Model, "transformer", &kModel},
    embedding("transformer.word_embeddings"),
    {Role::LayerList, "transformer.h", &kModuleList},
    {Role::Layer, KTX_BLOCK, &kDecoderLayer},
    {Role::Attention, KTX_BLOCK ".self_attention", &kAttention},
    product(Role::QkvProj, KTX_BLOCK ".self_attention.query_key_value", "B.attn_qkv."),
    product(Role::OProj, KTX_BLOCK ".self_attention.dense", "B.attn_output."),
    {Role::Mlp, KTX_BLOCK ".mlp", &kMlp},
    product(Role::UpProj, KTX_BLOCK ".mlp.dense_h_to_4h", "B.ffn_up."),
    {Role::Activation, KTX_BLOCK ".mlp.act", &kSilu},
    product(Role::DownProj, KTX_BLOCK ".mlp.dense_4h_to_h", "B.ffn_down."),
};
constexpr ModuleRow kOneNorm[] = {
    layer_norm(Role::AttentionNorm, KTX_BLOCK ".input_layernorm", "B.attn_norm."),
};
constexpr ModuleRow kTwoNorms[] = {
    layer_norm(Role::AttentionNorm, KTX_BLOCK ".ln_attn", "B.attn_norm_2."),
    layer_norm(Role::SideMlpNorm, KTX_BLOCK ".ln_mlp", "B.attn_norm."),
};
#undef KTX_BLOCK
constexpr ModuleRow kEnd[] = {
    layer_norm(Role::FinalNorm, "transformer.ln_f", "output_norm."),
    {Role::Rotary, "transformer.rotary_emb", &kRotary},
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot, kBegin, kOneNorm, kEnd, kHead};
constexpr std::span<const ModuleRow> kTree40[] = {kCausalRoot, kBegin, kTwoNorms, kEnd, kHead};

#define KTX_BLOCK "gpt_neox.layers.{layer}"
constexpr ModuleRow biased(Role role, const char* path, const char* tensor) {
  return linear(role, path, tensor, When::Always, When::Always);
}
constexpr ClassRow kNeoXLayer{"{P}Layer"};
constexpr ModuleRow kNeoX[] = {
    {Role::Model, "gpt_neox", &kModel},
    embedding("gpt_neox.embed_in"),
    {Role::LayerList, "gpt_neox.layers", &kModuleList},
    {Role::Layer, KTX_BLOCK, &kNeoXLayer},
    layer_norm(Role::AttentionNorm, KTX_BLOCK ".input_layernorm", "B.attn_norm."),
    layer_norm(Role::SideMlpNorm, KTX_BLOCK ".post_attention_layernorm", "B.ffn_norm.",
               When::SideMlpNorm),
    layer_norm(Role::MlpNorm, KTX_BLOCK ".post_attention_layernorm", "B.ffn_norm.", When::MlpNorm),
    {Role::Attention, KTX_BLOCK ".attention", &kAttention},
    biased(Role::QkvProj, KTX_BLOCK ".attention.query_key_value", "B.attn_qkv."),
    biased(Role::OProj, KTX_BLOCK ".attention.dense", "B.attn_output."),
    {Role::Mlp, KTX_BLOCK ".mlp", &kMlp},
    biased(Role::UpProj, KTX_BLOCK ".mlp.dense_h_to_4h", "B.ffn_up."),
    biased(Role::DownProj, KTX_BLOCK ".mlp.dense_4h_to_h", "B.ffn_down."),
    {Role::Activation, KTX_BLOCK ".mlp.act", &kSilu},
    layer_norm(Role::FinalNorm, "gpt_neox.final_layer_norm", "output_norm."),
    {Role::Rotary, "gpt_neox.rotary_emb", &kRotary},
};
#undef KTX_BLOCK
constexpr std::span<const ModuleRow> kTreeNeoX[] = {kCausalRoot, kNeoX, kHead};

constexpr ConfigKey kNeoXKeys[] = {
    {"use_parallel_residual", "use_parallel_residual", KeyRead::Flag, KeyKind::Flag,
     KeyWeight::Structural, "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,           kOneKeyHeadKeys, kMlpKeys,
                                                kLayerNormModelKeys, kHeadKeys,       kTiedKeys};
constexpr std::span<const ConfigKey> kKeys40[] = {kSizeKeys,           kKvHeadKeys, kMlpKeys,
                                                  kLayerNormModelKeys, kHeadKeys,   kTiedKeys};
constexpr std::span<const ConfigKey> kKeysNeoX[] = {kSizeKeys,           kKvHeadKeys,     kMlpKeys,
                                                    kLayerNormModelKeys, kHeadKeys,       kTiedKeys,
                                                    kNeoXKeys,           kRopeScalingKeys};
constexpr ConfigAlias kOldNames[] = {
    {"n_layer", "num_hidden_layers"},         {"n_head", "num_attention_heads"},
    {"layer_norm_epsilon", "layer_norm_eps"}, {"activation", "hidden_act"},
    {"ffn_hidden_size", "intermediate_size"},
};
constexpr ConfigAlias kUnusedHeads[] = {{"num_kv_heads", ""}, {"n_head_kv", ""}};
constexpr ConfigAlias kKeyHeads[] = {{"num_kv_heads", "num_key_value_heads"},
                                     {"n_head_kv", "num_key_value_heads"}};
constexpr auto kAliases = join(kOldNames, kUnusedHeads);
constexpr auto kAliases40 = join(kOldNames, kKeyHeads);
constexpr ConfigAlias kAliasesNeoX[] = {{"rotary_pct", "partial_rotary_factor"},
                                        {"rotary_emb_base", "rope_theta"}};
constexpr ConfigDefault kDefaults40[] = {
    {"layer_norm_eps", "1e-5"},
    {"max_position_embeddings", "2048"},
    {"rope_theta", "10000"},
    {"tie_word_embeddings", "true"},
    {"intermediate_size", "4*hidden_size"},
};
constexpr ConfigDefault kOneKeyHead[] = {{"num_key_value_heads", "1"}};
constexpr auto kDefaults = join(kDefaults40, kOneKeyHead);
constexpr ConfigDefault kDefaultsNeoX[] = {
    {"layer_norm_eps", "1e-5"},
    {"partial_rotary_factor", "0.25"},
    {"rope_theta", "10000"},
    {"use_parallel_residual", "true"},
};
constexpr GgufSign kTwo[] = {{.tensor = "attn_norm_2.weight"}};

}  // namespace

const Family kFalcon = {
    .architecture = "FalconForCausalLM",
    .model_types = "falcon RefinedWebModel",
    .gguf_arch = "falcon",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kFalcon40 = {
    .architecture = "FalconForCausalLM",
    .model_types = "falcon_40b RefinedWeb",
    .gguf_arch = "falcon",
    .gguf_signs = kTwo,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .rows = {kTree40, kKeys40, kDefaults40, kAliases40},
};

const Family kGptNeoX = {
    .architecture = "GPTNeoXForCausalLM",
    .model_types = "gpt_neox",
    .gguf_arch = "gptneox",
    .partial_rotary = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .rows = {kTreeNeoX, kKeysNeoX, kDefaultsNeoX, kAliasesNeoX},
};

}  // namespace ktx::families
