// GLM-4-9B, GLM-4-0414 and GLM-Z1, dense: the first half of each head rotated by pairs, gate and up
// in one linear; from 0414 on norms before and behind attention and feed-forward part.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kFusedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::GateUpProj,
     "L.mlp.gate_up_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}}},
    {Role::DownProj, "L.mlp.down_proj", &kLinear, When::Always, {{"weight", "B.ffn_down.weight"}}},
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
};
constexpr ModuleRow kSandwichNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.ffn_norm.weight"}}},
    {Role::AttentionPostNorm,
     "L.post_self_attn_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
    {Role::MlpPostNorm,
     "L.post_mlp_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_ffw_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,          kStem,      kSelfAttention, kGqaProjections, kFusedMlp,
    kSandwichNorms, kFinalNorm, kModelRotary,   kHead,
};

constexpr std::span<const ModuleRow> kTreeGlm[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kFusedMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};

constexpr const char* kModelTypes[] = {"glm4"};
constexpr const char* kModelTypesGlm[] = {"glm"};
// Files of models that see have the rows of q and k in the order of halves.
constexpr ConfigKey kPairKeys[] = {
    {"rope_interleave", "rope.dimension_sections", KeyRead::NoSections, KeyKind::Flag,
     KeyWeight::Plain, "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,       kHeadKeys,
    kTiedKeys, kPairKeys,   kAttentionBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"},       {"head_dim", "128"},     {"num_key_value_heads", "2"},
    {"partial_rotary_factor", "0.5"}, {"rope_theta", "10000"}, {"rms_norm_eps", "1.5625e-7"},
};

}  // namespace

extern const Family kGlm;
const Family kGlm = {
    .architecture = "GlmForCausalLM",
    .model_types = kModelTypesGlm,
    .gguf_arch = "chatglm",
    .prefix = "Glm",
    .module_k = "transformers.models.glm.modeling_glm",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .interleaved_rope = true,
    .partial_rotary = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTreeGlm,
};

extern const Family kGlm4;
const Family kGlm4 = {
    .architecture = "Glm4ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "glm4",
    .prefix = "Glm4",
    .module_k = "transformers.models.glm4.modeling_glm4",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .interleaved_rope = true,
    .partial_rotary = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
