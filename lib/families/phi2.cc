// Phi-1, 1.5 and 2: one layer norm before attention and a feed-forward part without a gate, which
// both read it; biases everywhere, the head's too.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
constexpr ModuleRow kLayer[] = {
    {Role::OProj,
     "L.self_attn.dense",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias"}}},
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
    {Role::UpProj,
     "L.mlp.fc1",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias"}}},
    {Role::DownProj,
     "L.mlp.fc2",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias"}}},
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}, {"bias", "B.attn_norm.bias"}}},
};
constexpr ModuleRow kEnd[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    {Role::FinalNorm,
     "model.final_layernorm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "output_norm.weight"}, {"bias", "output_norm.bias"}}},
    {Role::Head,
     "lm_head",
     &kLinear,
     When::Logits,
     {{"weight", "output.weight"}, {"bias", "output.bias"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kStem, kSelfAttention, kBiasedQkv, kLayer, kEnd,
};

constexpr const char* kModelTypes[] = {"phi"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kLayerNormModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"partial_rotary_factor", "0.5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kPhi2;
const Family kPhi2 = {
    .architecture = "PhiForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "phi2",
    .prefix = "Phi",
    .module_k = "transformers.models.phi.modeling_phi",
    .module_t = "",
    .partial_rotary = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
