// StarCoder 2: layer norms, biases everywhere, and a feed-forward part without a gate.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kNamedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::UpProj, "L.mlp.c_fc", "B.ffn_up.", When::Always, When::Always),
    linear(Role::DownProj, "L.mlp.c_proj", "B.ffn_down.", When::Always, When::Always),
    {Role::Activation, "L.mlp.act", &kSilu},
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,      kSdpaAttention, kBiasedQkv,
                                                kBiasedOutput,    kNamedMlp,      kBiasedLayerNorms,
                                                kBiasedFinalNorm, kModelRotary,   kHead};

constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,           kKvHeadKeys,     kMlpKeys,
                                                kLayerNormModelKeys, kHeadKeys,       kTiedKeys,
                                                kWindowKeys,         kRopeScalingKeys};
constexpr ConfigAlias kAliases[] = {{"norm_epsilon", "layer_norm_eps"}};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
    {"tie_word_embeddings", "true"},
};

}  // namespace

const Family kStarcoder2 = {
    .architecture = "Starcoder2ForCausalLM",
    .model_types = "starcoder2",
    .gguf_arch = "starcoder2",
    .windows = WindowPattern::All,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
