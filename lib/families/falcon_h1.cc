// Falcon-H1: each layer has a state space (Mamba-2) beside its attention; both read the same normed
// stream, and their sum is added to it. The factors of its config (attention_in_multiplier and
// others) are in the weights of a GGUF already.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMixer{"{P}Mixer"};

constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp},
    linear(Role::GateProj, "L.feed_forward.gate_proj", "B.ffn_gate."),
    linear(Role::UpProj, "L.feed_forward.up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.feed_forward.down_proj", "B.ffn_down."),
    {Role::Activation, "L.feed_forward.act_fn", &kSilu},
};
constexpr ModuleRow kStateSpaceLayer[] = {
    {Role::StateSpace,
     "L.mamba",
     &kMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS("L.mamba", &kGatedNorm),
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.self_attn"),
};
// Converters name the second norm without a suffix.
constexpr ModuleRow kNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.pre_ff_layernorm", "B.ffn_norm.weight | B.ffn_norm"),
};
constexpr ModuleRow kLastNorm[] = {
    norm(Role::FinalNorm, "model.final_layernorm", "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,    kFeedForward, kStateSpaceLayer,
                                                kSelfAttention, kNorms,       kLastNorm,
                                                kModelRotary,   kHead};

constexpr ConfigKey kNormKeys[] = {
    {"mamba_rms_norm", "", KeyRead::StateSpaceNorm, KeyKind::Flag, KeyWeight::Structural, "",
     "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys,
                                                kStateSpaceKeys, kNormKeys};
constexpr ConfigAlias kAliases[] = {
    {"embedding_multiplier", ""},
    {"mamba_d_ssm", ""},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"}, {"mamba_n_heads", "128"}, {"mamba_d_state", "256"},
    {"mamba_n_groups", "1"},     {"mamba_d_conv", "4"},    {"mamba_rms_norm", "false"},
    {"rms_norm_eps", "1e-5"},    {"rope_theta", "10000"},
};

}  // namespace

const Family kFalconH1 = {
    .architecture = "FalconH1ForCausalLM",
    .model_types = "falcon_h1",
    .gguf_arch = "falcon-h1",
    .bias = BiasKind::Config,
    .beside_attention = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
