// StarCoder 2: layer norms, biases everywhere, and a feed-forward part without a gate.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kAttentionAndMlp[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa},
};
constexpr ModuleRow kNamedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::UpProj,
     "L.mlp.c_fc",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias"}}},
    {Role::DownProj,
     "L.mlp.c_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias"}}},
    {Role::Activation, "L.mlp.act", &kSilu},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,         kStem,     kAttentionAndMlp,  kBiasedQkv,
    kBiasedOutput, kNamedMlp, kBiasedLayerNorms, kBiasedFinalNorm,
    kModelRotary,  kHead,
};

constexpr const char* kModelTypes[] = {"starcoder2"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys,
    kHeadKeys, kTiedKeys,   kWindowKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {{"norm_epsilon", "layer_norm_eps"}};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
    {"tie_word_embeddings", "true"},
};

}  // namespace

extern const Family kStarcoder2;
const Family kStarcoder2 = {
    .architecture = "Starcoder2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "starcoder2",
    .prefix = "Starcoder2",
    .module_k = "transformers.models.starcoder2.modeling_starcoder2",
    .module_t = "",
    .windows = WindowPattern::All,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
