// Nemotron-H (Nemotron Nano 2): a layer is a state space (Mamba-2), attention without positions, or
// a feed-forward part without a gate. Those with experts (Nemotron 3) are not known yet.
//
// A GGUF marks the layers by 0 key heads, and those of a feed-forward part by its width.
//
// A step has no least size: transformers raises it to time_step_min (0.001) in a prompt, but not in
// decode, and the code that the models came with (time_step_limit) in neither.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kBlock{"{P}Block"};
constexpr ClassRow kMambaMixer{"{P}Mamba2Mixer"};
constexpr ClassRow kReluSquared{"transformers.activations.ReLUSquaredActivation",
                                "ReLUSquaredActivation"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kOwnStem[] = {
    {Role::Model, "model", &kModel},
    {Role::Embedding,
     "model.embeddings",
     &kEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kBlock},
};
constexpr ModuleRow kLayerNorm[] = {
    {Role::AttentionNorm, "L.norm", &kNorm, When::Mixer, {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm, "L.norm", &kNorm, When::FeedForward, {{"weight", "B.attn_norm.weight"}}},
};
constexpr ModuleRow kStateSpaceLayer[] = {
    {Role::StateSpace,
     "L.mixer",
     &kMambaMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS("L.mixer"),
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.mixer", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.mixer"),
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.mixer", &kMlp, When::Dense},
    {Role::UpProj,
     "L.mixer.up_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias", When::MlpBias}}},
    {Role::DownProj,
     "L.mixer.down_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias", When::MlpBias}}},
    {Role::Activation, "L.mixer.act_fn", &kReluSquared, When::Dense},
};
constexpr ModuleRow kLastNorm[] = {
    {Role::FinalNorm, "model.norm_f", &kNorm, When::Always, {{"weight", "output_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kOwnStem, kLayerNorm, kStateSpaceLayer, kSelfAttention, kFeedForward, kLastNorm, kHead,
};

constexpr const char* kModelTypes[] = {"nemotron_h"};

constexpr ConfigKey kLayerKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::PartKinds, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
    {"intermediate_size", "feed_forward_length", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kOwnModelKeys[] = {
    {"vocab_size", "vocab_size", KeyRead::Vocab, KeyKind::Count, KeyWeight::Structural, "", ""},
    {"max_position_embeddings", "context_length", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "", ""},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "", "1e-5"},
    {"head_dim", "attention.key_length", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "=head_dim", "=head_dim"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,          kLayerKeys,   kOwnModelKeys,   kTiedKeys,
    kAttentionBiasKeys, kMlpBiasKeys, kStateSpaceKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"layers_block_type", "layer_types"}, {"layer_norm_epsilon", "rms_norm_eps"},
    {"mlp_hidden_act", "hidden_act"},     {"mamba_num_heads", "mamba_n_heads"},
    {"mamba_head_dim", "mamba_d_head"},   {"ssm_state_size", "mamba_d_state"},
    {"n_groups", "mamba_n_groups"},       {"conv_kernel", "mamba_d_conv"},
    {"use_conv_bias", "mamba_conv_bias"}, {"attention_head_dim", "head_dim"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"}, {"mlp_bias", "false"},    {"mamba_n_heads", "128"},
    {"mamba_d_head", "64"},      {"mamba_d_state", "128"}, {"mamba_n_groups", "8"},
    {"mamba_d_conv", "4"},       {"rms_norm_eps", "1e-5"}, {"head_dim", "128"},
    {"hidden_act", "\"relu2\""},
};

}  // namespace

extern const Family kNemotronH;
const Family kNemotronH = {
    .architecture = "NemotronHForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "nemotron_h",
    .prefix = "NemotronH",
    .module_k = "transformers.models.nemotron_h.modeling_nemotron_h",
    .module_t = "",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .one_part = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
