// Nemotron of 2024 (Minitron, Nemotron-4): layer norms whose weights count from 1 (files hold the
// sum), a squared ReLU without a gate, half of each head rotated.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kNorm1p{"{P}LayerNorm1P", "", "torch.nn.modules.normalization.LayerNorm"};
constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
constexpr ModuleRow kNorms1p[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm1p,
     When::Always,
     {{"weight", "B.attn_norm.weight"}, {"bias", "B.attn_norm.bias"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kNorm1p,
     When::Always,
     {{"weight", "B.ffn_norm.weight"}, {"bias", "B.ffn_norm.bias"}}},
    {Role::FinalNorm,
     "model.norm",
     &kNorm1p,
     When::Always,
     {{"weight", "output_norm.weight"}, {"bias", "output_norm.bias"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kStem, kSelfAttention, kGqaProjections, kGatelessMlp, kNorms1p, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"nemotron"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {{"norm_eps", "layer_norm_eps"}};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"}, {"partial_rotary_factor", "0.5"},
    {"rope_theta", "10000"},    {"attention_bias", "false"},
    {"mlp_bias", "false"},
};

}  // namespace

extern const Family kNemotron;
const Family kNemotron = {
    .architecture = "NemotronForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "nemotron",
    .prefix = "Nemotron",
    .module_k = "transformers.models.nemotron.modeling_nemotron",
    .module_t = "",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .partial_rotary = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
