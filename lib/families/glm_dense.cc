// GLM-4-9B, GLM-4-0414 and GLM-Z1, dense: the first half of each head rotated by pairs, gate and up
// in one linear; from 0414 on norms before and behind attention and feed-forward part.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kFusedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::GateUpProj, "L.mlp.gate_up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
};
constexpr ModuleRow kSandwichNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.post_attention_layernorm", "B.ffn_norm."),
    norm(Role::AttentionPostNorm, "L.post_self_attn_layernorm", "B.post_attention_norm."),
    norm(Role::MlpPostNorm, "L.post_mlp_layernorm", "B.post_ffw_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kFusedMlp,
                                                kSandwichNorms, kTreeEnd};

constexpr std::span<const ModuleRow> kTreeGlm[] = {kCausalStem, kGqaAttention, kFusedMlp,
                                                   kLayerNorms, kTreeEnd};

// Files of models that see have the rows of q and k in the order of halves.
constexpr ConfigKey kPairKeys[] = {
    {"rope_interleave", "rope.dimension_sections", KeyRead::NoSections, KeyKind::Flag,
     KeyWeight::Plain, "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kPairKeys, kAttentionBiasKeys,
                                                kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"},       {"head_dim", "128"},     {"num_key_value_heads", "2"},
    {"partial_rotary_factor", "0.5"}, {"rope_theta", "10000"}, {"rms_norm_eps", "1.5625e-7"},
};

}  // namespace

const Family kGlm = {
    .architecture = "GlmForCausalLM",
    .model_types = "glm",
    .gguf_arch = "chatglm",
    .bias = BiasKind::QkvByConfig,
    .interleaved_rope = true,
    .partial_rotary = true,
    .rows = {kTreeGlm, kKeys, kDefaults},
};

const Family kGlm4 = {
    .architecture = "Glm4ForCausalLM",
    .model_types = "glm4",
    .gguf_arch = "glm4",
    .bias = BiasKind::QkvByConfig,
    .interleaved_rope = true,
    .partial_rotary = true,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
