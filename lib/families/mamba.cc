// Mamba of 2023 and Falcon-Mamba: layers are selective scans alone, without attention and
// feed-forward parts. Falcon-Mamba norms what its steps and vectors are made of, without weights.
//
// A GGUF counts 0 heads and a feed-forward part of width 0, and says no context but 2^20, which
// converters write for models without positions. It says in a flag that there are norms, and not by
// which epsilon.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kBlock{"{P}Block"};
constexpr ClassRow kMixer{"{P}Mixer"};
constexpr ClassRow kPlainNorm{"{P}WeightlessRMSNorm"};

#define KTX_MAMBA_LAYER "backbone.layers.{layer}"
#define KTX_MAMBA_MIXER KTX_MAMBA_LAYER ".mixer"
constexpr ModuleRow kBackbone[] = {
    {Role::Model, "backbone", &kModel},
    embedding("backbone.embeddings"),
    {Role::LayerList, "backbone.layers", &kModuleList},
    {Role::Layer, KTX_MAMBA_LAYER, &kBlock},
    norm(Role::AttentionNorm, KTX_MAMBA_LAYER ".norm", "B.attn_norm."),
    {Role::SelectiveScan,
     KTX_MAMBA_MIXER,
     &kMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip}},
    {Role::SsmConv, KTX_MAMBA_MIXER ".conv1d", &kConv1d, When::StateSpace},
    {Role::Activation, KTX_MAMBA_MIXER ".act", &kSilu, When::StateSpace},
    linear(Role::SsmInProj, KTX_MAMBA_MIXER ".in_proj", "B.ssm_in.", When::StateSpace),
    linear(Role::SsmParamsProj, KTX_MAMBA_MIXER ".x_proj", "B.ssm_x.", When::StateSpace),
    linear(Role::SsmStepProj, KTX_MAMBA_MIXER ".dt_proj", "B.ssm_dt.", When::StateSpace,
           When::Always),
    linear(Role::OProj, KTX_MAMBA_MIXER ".out_proj", "B.ssm_out.", When::StateSpace),
};
constexpr ModuleRow kPlainNorms[] = {
    {Role::SsmStepNorm, KTX_MAMBA_MIXER ".dt_layernorm", &kPlainNorm, When::StateSpace},
    {Role::SsmInputNorm, KTX_MAMBA_MIXER ".b_layernorm", &kPlainNorm, When::StateSpace},
    {Role::SsmOutputNorm, KTX_MAMBA_MIXER ".c_layernorm", &kPlainNorm, When::StateSpace},
};
#undef KTX_MAMBA_MIXER
#undef KTX_MAMBA_LAYER
constexpr ModuleRow kLastNorm[] = {
    norm(Role::FinalNorm, "backbone.norm_f", "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot, kBackbone, kLastNorm, kHead};
constexpr std::span<const ModuleRow> kTreeFalcon[] = {kCausalRoot, kBackbone, kPlainNorms,
                                                      kLastNorm, kHead};

constexpr ConfigKey kMixerNormKeys[] = {
    {"mixer_rms_eps", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1e-6", "1e-6"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kMambaSizeKeys, kSelectiveScanKeys, kTiedKeys};
constexpr std::span<const ConfigKey> kKeysFalcon[] = {kMambaSizeKeys, kMixerNormKeys,
                                                      kSelectiveScanKeys, kTiedKeys};
// The width within a layer wins over the factor (Falcon-Mamba's config says 16 beside 8192 of
// 4096).
constexpr ConfigAlias kAliases[] = {
    {"intermediate_size", "mamba_expand", "hidden_size",
     [](double inner, double hidden) { return inner / hidden; }},
    {"state_size", "mamba_d_state"},
    {"expand", "mamba_expand"},
    {"conv_kernel", "mamba_d_conv"},
    {"use_conv_bias", "mamba_conv_bias"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"use_bias", "mamba_proj_bias"},
    {"time_step_rank", "mamba_dt_rank"},
};
constexpr ConfigDefault kDefaults[] = {
    {"mamba_d_conv", "4"},     {"mamba_d_state", "16"},
    {"mamba_expand", "2"},     {"max_position_embeddings", "1048576"},
    {"rms_norm_eps", "1e-5"},  {"mamba_conv_bias", "true"},
    {"mixer_rms_eps", "1e-6"}, {"tie_word_embeddings", "true"},
};
constexpr GgufSign kSignsFalcon[] = {
    {.key = "ssm.dt_b_c_rms", .min = 1, .max = 1, .always_written = true}};

}  // namespace

const Family kFalconMamba = {
    .architecture = "FalconMambaForCausalLM",
    .model_types = "falcon_mamba",
    .gguf_arch = "mamba",
    .gguf_signs = kSignsFalcon,
    .one_part = true,
    .rows = {kTreeFalcon, kKeysFalcon, kDefaults, kAliases},
};

const Family kMamba = {
    .architecture = "MambaForCausalLM",
    .model_types = "mamba",
    .gguf_arch = "mamba",
    .one_part = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
