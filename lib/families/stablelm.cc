// StableLM: Llama with layer norms, a quarter of each head rotated, and biases of q, k and v in
// some. In StableLM 2 12B one norm is before both parts, and queries and keys are normed, each head
// by weights of its own.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kHeadNorm{"{P}LayerNormPerHead"};
constexpr ModuleRow kHeadNorms[] = {
    weighted(Role::QNorm, "L.self_attn.q_layernorm", &kHeadNorm, "B.attn_q_norm.", When::QkNorm),
    weighted(Role::KNorm, "L.self_attn.k_layernorm", &kHeadNorm, "B.attn_k_norm.", When::QkNorm),
};
constexpr ModuleRow kNorms[] = {
    layer_norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    layer_norm(Role::MlpNorm, "L.post_attention_layernorm", "B.ffn_norm.", When::MlpNorm),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,      kSdpaAttention, kGqaProjections,
                                                kHeadNorms,       kDenseMlp,      kNorms,
                                                kBiasedFinalNorm, kModelRotary,   kHead};

constexpr ConfigKey kOwnKeys[] = {
    {"use_parallel_residual", "", KeyRead::ParallelParts, KeyKind::Flag, KeyWeight::Structural,
     "false", "false"},
    {"use_qkv_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kOwnKeys,    kQkNormKeys, kRopeScalingKeys};
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

const Family kStableLm = {
    .architecture = "StableLmForCausalLM",
    .model_types = "stablelm",
    .gguf_arch = "stablelm",
    .bias = BiasKind::QkvByConfig,
    .qk_norm = QkNormKind::EachHead,
    .partial_rotary = true,
    .layer_norms = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
