// StableLM 3B and 2 1.6B: Llama with layer norms, a quarter of each head rotated, and biases of q,
// k and v in some. StableLM 2 12B (one norm for both parts, norms of each head by itself) is not
// known.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,
    kStem,
    kSelfAttention,
    kGqaProjections,
    kDenseMlp,
    kBiasedLayerNorms,
    kBiasedFinalNorm,
    kModelRotary,
    kHead,
};

constexpr ConfigKey kOwnKeys[] = {
    {"use_parallel_residual", "use_parallel_residual", KeyRead::Flag, KeyKind::Flag,
     KeyWeight::Structural, "false", "false"},
    {"use_qkv_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "false"},
    {"qk_layernorm", "", KeyRead::QkNorm, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
constexpr const char* kModelTypes[] = {"stablelm"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kLayerNormModelKeys,
    kHeadKeys, kTiedKeys,   kOwnKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"norm_eps", "layer_norm_eps"},
    {"rope_pct", "partial_rotary_factor"},
};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
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
    .partial_rotary = true,
    .layer_norms = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
