// Mamba-2 (Dao & Gu 2024): layers are state spaces alone, without attention and feed-forward parts.
//
// A GGUF counts 0 heads and a feed-forward part of width 0, and says no context but 2^20, which
// converters write for models without positions.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kBlock{"{P}Block"};
constexpr ClassRow kMixer{"{P}Mixer"};
constexpr ClassRow kMixerNorm{"MambaRMSNormGated"};

#define KTX_MAMBA2_LAYER "backbone.layers.{layer}"
constexpr ModuleRow kBackbone[] = {
    {Role::Model, "backbone", &kModel},
    embedding("backbone.embeddings"),
    {Role::LayerList, "backbone.layers", &kModuleList},
    {Role::Layer, KTX_MAMBA2_LAYER, &kBlock},
    norm(Role::AttentionNorm, KTX_MAMBA2_LAYER ".norm", "B.attn_norm."),
    {Role::StateSpace,
     KTX_MAMBA2_LAYER ".mixer",
     &kMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS(KTX_MAMBA2_LAYER ".mixer", &kMixerNorm),
    norm(Role::FinalNorm, "backbone.norm_f", "output_norm."),
};
#undef KTX_MAMBA2_LAYER
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot, kBackbone, kHead};

constexpr std::span<const ConfigKey> kKeys[] = {kMambaSizeKeys, kTiedKeys, kStateSpaceKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_heads", "mamba_n_heads"},         {"head_dim", "mamba_d_head"},
    {"state_size", "mamba_d_state"},        {"n_groups", "mamba_n_groups"},
    {"conv_kernel", "mamba_d_conv"},        {"use_conv_bias", "mamba_conv_bias"},
    {"layer_norm_epsilon", "rms_norm_eps"}, {"use_bias", "mamba_proj_bias"},
};
constexpr ConfigDefault kDefaults[] = {
    {"mamba_n_heads", "128"},
    {"mamba_d_head", "64"},
    {"mamba_d_state", "128"},
    {"mamba_n_groups", "8"},
    {"mamba_d_conv", "4"},
    {"rms_norm_eps", "1e-5"},
    {"max_position_embeddings", "1048576"},
};

}  // namespace

const Family kMamba2 = {
    .architecture = "Mamba2ForCausalLM",
    .model_types = "mamba2",
    .gguf_arch = "mamba2",
    .one_part = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
