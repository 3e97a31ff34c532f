// Phi-1, 1.5 and 2: one layer norm before attention and a feed-forward part without a gate, which
// both read it; biases everywhere, the head's too.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kLayer[] = {
    linear(Role::OProj, "L.self_attn.dense", "B.attn_output.", When::Always, When::Always),
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
    linear(Role::UpProj, "L.mlp.fc1", "B.ffn_up.", When::Always, When::Always),
    linear(Role::DownProj, "L.mlp.fc2", "B.ffn_down.", When::Always, When::Always),
    layer_norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
};
constexpr ModuleRow kEnd[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    layer_norm(Role::FinalNorm, "model.final_layernorm", "output_norm."),
    linear(Role::Head, "lm_head", "output.", When::Logits, When::Always),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kSdpaAttention, kBiasedQkv, kLayer,
                                                kEnd};

constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kLayerNormModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"partial_rotary_factor", "0.5"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kPhi2 = {
    .architecture = "PhiForCausalLM",
    .model_types = "phi",
    .gguf_arch = "phi2",
    .partial_rotary = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
