// Phi-3 and Phi-4: Llama with queries, keys and values in one linear and gate and up in another.
// Their models for long contexts have rotary factors of two lengths (longrope).
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kFusedLayer[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}}},
    {Role::QkvProj,
     "L.self_attn.qkv_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_qkv.weight"}}},
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::GateUpProj,
     "L.mlp.gate_up_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}}},
    {Role::DownProj, "L.mlp.down_proj", &kLinear, When::Always, {{"weight", "B.ffn_down.weight"}}},
    {Role::Activation, "L.mlp.activation_fn", &kSilu},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kStem, kFusedLayer, kLayerNorms, kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"phi3"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kModelKeys,
    kHeadKeys, kTiedKeys,   kWindowKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"partial_rotary_factor", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kPhi3;
const Family kPhi3 = {
    .architecture = "Phi3ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "phi3",
    .prefix = "Phi3",
    .module_k = "transformers.models.phi3.modeling_phi3",
    .module_t = "",
    .partial_rotary = true,
    .windows = WindowPattern::All,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
