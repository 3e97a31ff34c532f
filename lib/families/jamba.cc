// Jamba: state spaces (Mamba-1) with norms of what their steps and vectors are made of, attention
// without positions in every eighth layer, and experts in every second one. Models with one expert
// are dense.
//
// A GGUF marks layers without attention by 0 key heads, and layers with experts by their routers.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kAttentionLayer{"{P}AttentionDecoderLayer"};
constexpr ClassRow kMambaDecoderLayer{"{P}MambaDecoderLayer"};
constexpr ClassRow kMambaMixer{"{P}MambaMixer"};

constexpr ModuleRow kOwnStem[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kAttentionLayer, When::FullAttention},
    {Role::Layer, "model.layers.{layer}", &kMambaDecoderLayer, When::StateSpace},
};
constexpr ModuleRow kMixers[] = {
    {Role::SelectiveScan,
     "L.mamba",
     &kMambaMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip}},
    {Role::SsmConv, "L.mamba.conv1d", &kConv1d, When::StateSpace},
    {Role::Activation, "L.mamba.act", &kSilu, When::StateSpace},
    linear(Role::SsmInProj, "L.mamba.in_proj", "B.ssm_in.", When::StateSpace),
    linear(Role::SsmParamsProj, "L.mamba.x_proj", "B.ssm_x.", When::StateSpace),
    linear(Role::SsmStepProj, "L.mamba.dt_proj", "B.ssm_dt.", When::StateSpace, When::Always),
    linear(Role::OProj, "L.mamba.out_proj", "B.ssm_out.", When::StateSpace),
    norm(Role::SsmStepNorm, "L.mamba.dt_layernorm", "B.ssm_dt_norm.", When::StateSpace),
    norm(Role::SsmInputNorm, "L.mamba.b_layernorm", "B.ssm_b_norm.", When::StateSpace),
    norm(Role::SsmOutputNorm, "L.mamba.c_layernorm", "B.ssm_c_norm.", When::StateSpace),
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.self_attn"),
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp, When::Dense},
    linear(Role::GateProj, "L.feed_forward.gate_proj", "B.ffn_gate.", When::Dense),
    linear(Role::UpProj, "L.feed_forward.up_proj", "B.ffn_up.", When::Dense),
    linear(Role::DownProj, "L.feed_forward.down_proj", "B.ffn_down.", When::Dense),
    {Role::Activation, "L.feed_forward.act_fn", &kSilu, When::Dense},
    {Role::Moe, "L.feed_forward", &kSparseMoeBlock, When::Moe},
    router("L.feed_forward.router", &kTopKRouter, When::Moe),
    experts("L.feed_forward.experts", &kExpertsModule, When::Moe),
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.pre_ff_layernorm", "B.ffn_norm."),
};
constexpr ModuleRow kLastNorm[] = {
    norm(Role::FinalNorm, "model.final_layernorm", "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot,  kOwnStem,  kMixers,
                                                kFeedForward, kLastNorm, kHead};

constexpr ConfigKey kOwnKeys[] = {
    kVocabKey,
    longest_text("262144"),
    positive("rms_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-6"),
    natural("num_experts", "expert_count", "0", "16"),
    natural("num_experts_per_tok", "expert_used_count", "0", "2"),
    {"mlp_layer_types", "", KeyRead::RoutedLayers, KeyKind::Texts, KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kHybridLayerKeys,   kMlpKeys,
                                                kOwnKeys,  kSelectiveScanKeys, kTiedKeys};
constexpr ConfigAlias kAliases[] = {{"num_local_experts", "num_experts"}};
constexpr ConfigDefault kDefaults[] = {
    {"decoder_sparse_step", "1"}, {"mamba_d_conv", "4"},     {"mamba_d_state", "16"},
    {"mamba_expand", "2"},        {"mlp_only_layers", "[]"}, {"num_experts", "16"},
    {"num_experts_per_tok", "2"}, {"rms_norm_eps", "1e-6"},
};

}  // namespace

const Family kJamba = {
    .architecture = "JambaForCausalLM",
    .model_types = "jamba",
    .gguf_arch = "jamba",
    .experts = {LayerPattern::SparseStep, "num_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
