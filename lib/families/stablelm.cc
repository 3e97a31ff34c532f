// StableLM: Llama with layer norms, a quarter of each head rotated, and biases of q, k and v in
// some. In StableLM 2 12B one norm is before both parts, and queries and keys are normed, each head
// by weights of its own.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
constexpr ClassRow kHeadNorm{"{P}LayerNormPerHead"};
constexpr ModuleRow kHeadNorms[] = {
    {Role::QNorm,
     "L.self_attn.q_layernorm",
     &kHeadNorm,
     When::QkNorm,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.self_attn.k_layernorm",
     &kHeadNorm,
     When::QkNorm,
     {{"weight", "B.attn_k_norm.weight"}}},
};
constexpr ModuleRow kNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}, {"bias", "B.attn_norm.bias"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kTorchLayerNorm,
     When::MlpNorm,
     {{"weight", "B.ffn_norm.weight"}, {"bias", "B.ffn_norm.bias"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,     kStem,  kSelfAttention,   kGqaProjections, kHeadNorms,
    kDenseMlp, kNorms, kBiasedFinalNorm, kModelRotary,    kHead,
};

constexpr ConfigKey kOwnKeys[] = {
    {"use_parallel_residual", "", KeyRead::ParallelParts, KeyKind::Flag, KeyWeight::Structural,
     "false", "false"},
    {"use_qkv_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
constexpr const char* kModelTypes[] = {"stablelm"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kOwnKeys,    kQkNormKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"norm_eps", "layer_norm_eps"},
    {"rope_pct", "partial_rotary_factor"},
    {"qk_layernorm", "use_qk_norm"},
};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"use_qk_norm", "false"},
    {"partial_rotary_factor", "0.25"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kStableLm;
const Family kStableLm = {
    .architecture = "StableLmForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "stablelm",
    .prefix = "StableLm",
    .module_k = "transformers.models.stablelm.modeling_stablelm",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .qk_norm = QkNormKind::EachHead,
    .partial_rotary = true,
    .layer_norms = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
