// DBRX: Llama's attention with clamped queries, keys and values, layer norms without biases, and
// experts in every layer. Its modules have other names in its own code (norm_attn_norm.attn.Wqkv);
// the tree is Mixtral's in transformers.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRows[] = {
    {Role::Attention, "L.self_attn", &kAttention},
    linear(Role::QkvProj, "L.self_attn.Wqkv", "B.attn_qkv."),
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output."),
    {Role::Moe, "L.mlp", &kSparseMoeBlock},
    router("L.mlp.gate", &kLinearRouter),
    experts("L.mlp.experts", &kExpertsOrList),
    weighted(Role::AttentionNorm, "L.input_layernorm", &kTorchLayerNorm, "B.attn_norm."),
    weighted(Role::MlpNorm, "L.post_attention_layernorm", &kTorchLayerNorm, "B.attn_output_norm."),
    weighted(Role::FinalNorm, "model.norm", &kTorchLayerNorm, "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kRows, kModelRotary, kHead};

constexpr ConfigKey kOwnKeys[] = {
    count("num_local_experts", "expert_count"),
    amount("clip_qkv", "attention.clamp_kqv", "0", "0"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys,         kMlpKeys,
                                                kHeadKeys, kLayerNormModelKeys, kTiedKeys,
                                                kOwnKeys,  kUsedExpertKeys};
constexpr ConfigAlias kAliases[] = {
    {"d_model", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"max_seq_len", "max_position_embeddings"},
    {"attn_config.kv_n_heads", "num_key_value_heads"},
    {"attn_config.clip_qkv", "clip_qkv"},
    {"attn_config.rope_theta", "rope_theta"},
    {"ffn_config.ffn_hidden_size", "intermediate_size"},
    {"ffn_config.moe_num_experts", "num_local_experts"},
    {"ffn_config.moe_top_k", "num_experts_per_tok"},
};
constexpr ConfigDefault kDefaults[] = {{"layer_norm_eps", "1e-5"}, {"rope_theta", "10000"}};

}  // namespace

const Family kDbrx = {
    .architecture = "DbrxForCausalLM",
    .model_types = "dbrx",
    .gguf_arch = "dbrx",
    .layer_norms = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
