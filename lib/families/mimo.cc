// MiMo-V2 Flash, V2.5 and V2.5-Pro: value heads are narrower than those of queries and keys, and
// have a factor. Five of six layers have a window, twice as many key heads and sinks, and a rotary
// base of their own. Experts are as DeepSeek V3's without groups and shared ones.
//
// Configs as published say how many positions before its own a token sees (sliding_window_size);
// files have that number, which is one less than the window here.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention,
     "L.self_attn",
     &kAttention,
     When::Always,
     {{"sinks", "B.attn_sinks.weight", When::Sinks}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,      kSelfAttention, kGqaProjections, kDenseMlp,    kMoeExperts, kExpertParts,
    kCorrectedRouter, kLayerNorms,    kFinalNorm,      kTwoRotaries, kHead};

constexpr ConfigKey kOwnKeys[] = {
    count("v_head_dim", "attention.value_length"),
    positive("attention_value_scale", "attention.value_scale", "1", "1"),
    {"sliding_window", "attention.sliding_window", KeyRead::OneMore, KeyKind::Natural,
     KeyWeight::Plain, "", ""},
    {"layer_types", "attention.sliding_window_pattern", KeyRead::LayerTypes, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"add_swa_attention_sink_bias", "", KeyRead::LocalSinks, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
    {"add_full_attention_sink_bias", "", KeyRead::FullSinks, KeyKind::Flag, KeyWeight::Plain,
     "false", "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,          kKvHeadKeys,
                                                kMlpKeys,           kModelKeys,
                                                kHeadKeys,          kTiedKeys,
                                                kAttentionBiasKeys, kOwnKeys,
                                                kLocalRopeKeys,     kRopeScalingKeys,
                                                kRoutedExpertKeys,  kUsedExpertKeys,
                                                kExpertWidthKeys,   kAlwaysNormalisedKeys,
                                                kScaleKeys,         kFirstDenseKeys,
                                                kGroupKeys,         kSigmoidKeys};
constexpr ConfigAlias kAliases[] = {
    {"layernorm_epsilon", "rms_norm_eps"},
    {"swa_rope_theta", "rope_local_base_freq"},
    {"num_local_experts", "n_routed_experts"},
    {"moe_layer_freq", ""},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"attention_bias", "false"},
    {"attention_out_bias", "false"},
    {"head_dim", "192"},
    {"v_head_dim", "128"},
    {"attention_value_scale", "1"},
    {"n_routed_experts", "256"},
    {"num_experts_per_tok", "8"},
    {"first_k_dense_replace", "1"},
    {"routed_scaling_factor", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "5000000"},
    {"rope_local_base_freq", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kMimoV2 = {
    .architecture = "MiMoV2FlashForCausalLM",
    .model_types = "mimo_v2_flash mimo_v2",
    .gguf_arch = "mimo2",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .windows = WindowPattern::Period,
    .window_period = 6,
    .window_kv_factor = 2,
    .experts = {LayerPattern::FirstDense, "n_routed_experts", "moe_intermediate_size",
                SharedKind::None, RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
