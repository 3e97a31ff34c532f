// Nemotron-H (Nemotron Nano 2) and Nemotron 3: a layer is a state space (Mamba-2), attention
// without positions, or a feed-forward part without a gate; in Nemotron 3 a mixture of such parts,
// routed as in DeepSeek V3, which may read and write a latent (Super, Ultra).
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
constexpr ClassRow kRouter{"{P}TopkRouter"};
constexpr ClassRow kReluSquared{"transformers.activations.ReLUSquaredActivation",
                                "ReLUSquaredActivation"};

constexpr ModuleRow kOwnStem[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embeddings"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kBlock},
};
constexpr ModuleRow kLayerNorm[] = {
    norm(Role::AttentionNorm, "L.norm", "B.attn_norm.", When::Mixer),
    norm(Role::MlpNorm, "L.norm", "B.attn_norm.", When::FeedForward),
};
constexpr ModuleRow kStateSpaceLayer[] = {
    {Role::StateSpace,
     "L.mixer",
     &kMambaMixer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS("L.mixer", &kGatedNorm),
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.mixer", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.mixer"),
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.mixer", &kMlp, When::Dense},
    linear(Role::UpProj, "L.mixer.up_proj", "B.ffn_up.", When::Dense, When::MlpBias),
    linear(Role::DownProj, "L.mixer.down_proj", "B.ffn_down.", When::Dense, When::MlpBias),
    {Role::Activation, "L.mixer.act_fn", &kReluSquared, When::Dense},
};
constexpr ModuleRow kMoeLayer[] = {
    {Role::Moe, "L.mixer", &kMoe, When::Moe},
    {Role::Experts, "L.mixer.experts", &kExpertsModule, When::Moe, {kStackedUp, kStackedDown}},
    corrected_router("L.mixer.gate", &kRouter, When::Moe),
    linear(Role::LatentDownProj, "L.mixer.fc1_latent_proj", "B.ffn_latent_down.",
           When::MoeWithLatent),
    linear(Role::LatentUpProj, "L.mixer.fc2_latent_proj", "B.ffn_latent_up.", When::MoeWithLatent),
    {Role::SharedMlp, "L.mixer.shared_experts", &kMlp, When::Moe},
    linear(Role::UpProj, "L.mixer.shared_experts.up_proj", "B.ffn_up_shexp.", When::Moe),
    linear(Role::DownProj, "L.mixer.shared_experts.down_proj", "B.ffn_down_shexp.", When::Moe),
    {Role::Activation, "L.mixer.shared_experts.act_fn", &kReluSquared, When::Moe},
};
constexpr ModuleRow kLastNorm[] = {
    norm(Role::FinalNorm, "model.norm_f", "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot,      kOwnStem,       kLayerNorm,
                                                kStateSpaceLayer, kSelfAttention, kFeedForward,
                                                kLastNorm,        kHead};

constexpr std::span<const ModuleRow> kTreeMoe[] = {kCausalRoot,      kOwnStem,       kLayerNorm,
                                                   kStateSpaceLayer, kSelfAttention, kFeedForward,
                                                   kMoeLayer,        kLastNorm,      kHead};

constexpr ConfigKey kLayerKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::PartKinds, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
};
constexpr ConfigKey kDenseWidthKeys[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kOwnModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("rms_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-5"),
    count("head_dim", "attention.key_length", "=head_dim", "=head_dim"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,     kDenseWidthKeys, kLayerKeys,
                                                kOwnModelKeys, kTiedKeys,       kAttentionBiasKeys,
                                                kMlpBiasKeys,  kStateSpaceKeys};
constexpr ConfigKey kOwnExpertKeys[] = {
    count("n_routed_experts", "expert_count"),
    count("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    {"moe_latent_size", "moe_latent_size", KeyRead::Int, KeyKind::CountOrNull,
     KeyWeight::Structural, "null", "null"},
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,       kLayerKeys,     kOwnModelKeys,   kTiedKeys,        kAttentionBiasKeys,
    kStateSpaceKeys, kOwnExpertKeys, kUsedExpertKeys, kExpertWidthKeys, kGroupKeys,
    kNormalisedKeys, kScaleKeys,     kSigmoidKeys};
constexpr ConfigAlias kAliases[] = {
    {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"},
    {"layers_block_type", "layer_types"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"mlp_hidden_act", "hidden_act"},
    {"mamba_num_heads", "mamba_n_heads"},
    {"mamba_head_dim", "mamba_d_head"},
    {"ssm_state_size", "mamba_d_state"},
    {"n_groups", "mamba_n_groups"},
    {"conv_kernel", "mamba_d_conv"},
    {"use_conv_bias", "mamba_conv_bias"},
    {"attention_head_dim", "head_dim"},
    {"mamba_proj_bias", ""},  // the models' code reads the next one alone
    {"use_bias", "mamba_proj_bias"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"}, {"mlp_bias", "false"},    {"mamba_n_heads", "128"},
    {"mamba_d_head", "64"},      {"mamba_d_state", "128"}, {"mamba_n_groups", "8"},
    {"mamba_d_conv", "4"},       {"rms_norm_eps", "1e-5"}, {"head_dim", "128"},
    {"hidden_act", "\"relu2\""},
};

constexpr ConfigDefault kDefaultsMoe[] = {
    {"attention_bias", "false"},

    {"mamba_n_heads", "128"},     {"mamba_d_head", "64"},          {"mamba_d_state", "128"},
    {"mamba_n_groups", "8"},      {"mamba_d_conv", "4"},           {"rms_norm_eps", "1e-5"},
    {"head_dim", "128"},          {"hidden_act", "\"relu2\""},     {"n_routed_experts", "8"},
    {"num_experts_per_tok", "2"}, {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},   {"routed_scaling_factor", "1"},  {"n_group", "1"},
    {"topk_group", "1"},
};

}  // namespace

const Family kNemotronH = {
    .architecture = "NemotronHForCausalLM",
    .model_types = "nemotron_h",
    .gguf_arch = "nemotron_h",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .one_part = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kNemotronHMoe = {
    .architecture = "NemotronHForCausalLM",
    .model_types = "nemotron_h_moe",
    .gguf_arch = "nemotron_h_moe",
    .module_k = "transformers.models.nemotron_h.modeling_nemotron_h",
    .bias = BiasKind::Config,
    .one_part = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .experts = {LayerPattern::ByKind, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Width, RouterKind::GroupsByTwoBest},
    .rows = {kTreeMoe, kKeysMoe, kDefaultsMoe, kAliases},
};

}  // namespace ktx::families
