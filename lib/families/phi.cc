// Phi-3 and Phi-4: Llama with queries, keys and values in one linear and gate and up in another.
// Their models for long contexts have rotary factors of two lengths (longrope).
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kFusedLayer[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa},
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output."),
    linear(Role::QkvProj, "L.self_attn.qkv_proj", "B.attn_qkv."),
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::GateUpProj, "L.mlp.gate_up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kFusedLayer, kLayerNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kWindowKeys, kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"partial_rotary_factor", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kPhi3 = {
    .architecture = "Phi3ForCausalLM",
    .model_types = "phi3",
    .gguf_arch = "phi3",
    .partial_rotary = true,
    .windows = WindowPattern::All,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
