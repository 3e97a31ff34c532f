// Ling of 2025 (BailingMoe): every layer has experts with shared ones, routed by a softmax. A GGUF
// has its queries, keys and values apart, in the order of pairs, and its head normed where the
// config says norm_head.
//
// Ling and Ring 2.0 (BailingMoeV2): the first layers dense, then DeepSeek V3's routing by groups
// with shared experts. Queries, keys and values are one linear, their heads are normed, and a part
// of each is rotated. Module names are those of the code beside the models' weights.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kGate{"{P}Gate"};

constexpr ModuleRow kWordStem[] = {
    {Role::Model, "model", &kModel},
    embedding("model.word_embeddings"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kFusedAttention[] = {
    {Role::Attention, "L.attention", &kAttentionFlashSdpa},
    linear(Role::QkvProj, "L.attention.query_key_value", "B.attn_qkv.", When::Always,
           When::QkvBias),
    norm(Role::QNorm, "L.attention.query_layernorm", "B.attn_q_norm.", When::QkNorm),
    norm(Role::KNorm, "L.attention.key_layernorm", "B.attn_k_norm.", When::QkNorm),
    linear(Role::OProj, "L.attention.dense", "B.attn_output.", When::Always, When::AttentionBias),
};
constexpr ModuleRow kPlainAttention[] = {
    {Role::Attention, "L.attention", &kAttentionFlashSdpa},
    linear(Role::QProj, "L.attention.q_proj", "B.attn_q.", When::Always, When::QkvBias),
    linear(Role::KProj, "L.attention.k_proj", "B.attn_k.", When::Always, When::QkvBias),
    linear(Role::VProj, "L.attention.v_proj", "B.attn_v.", When::Always, When::QkvBias),
    linear(Role::OProj, "L.attention.dense", "B.attn_output.", When::Always, When::AttentionBias),
};
constexpr ModuleRow kPlainRouter[] = {
    router("L.mlp.gate", &kGate, When::Moe),
};
constexpr std::span<const ModuleRow> kTreeV1[] = {
    kCausalRoot,  kWordStem,    kPlainAttention, kDenseMlp,   kSparseMoe,
    kExpertParts, kPlainRouter, kSharedExperts,  kLayerNorms, kTreeEnd};
constexpr ModuleRow kRouter[] = {
    corrected_router("L.mlp.gate", &kGate, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalRoot,  kWordStem, kFusedAttention, kDenseMlp,   kSparseMoe,
    kExpertParts, kRouter,   kSharedExperts,  kLayerNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {
    kLlamaKeys,          kAttentionBiasKeys, kQkNormKeys,        kRopeScalingKeys,
    kDeepseekExpertKeys, kScaleKeys,         kSigmoidRoutingKeys};
constexpr std::span<const ConfigKey> kKeysV1[] = {
    kLlamaKeys,       kAttentionBiasKeys,    kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kAlwaysNormalisedKeys, kSharedCountKeys, kFirstDenseKeys};
constexpr ConfigDefault kDefaultsV1[] = {
    {"attention_bias", "false"}, {"attention_out_bias", "false"}, {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},     {"n_shared_experts", "0"},       {"norm_topk_prob", "true"},
    {"rms_norm_eps", "1e-5"},    {"rope_theta", "600000"},
};
constexpr ConfigAlias kAliases[] = {
    {"num_experts", "n_routed_experts"},         {"num_local_experts", "n_routed_experts"},
    {"num_shared_experts", "n_shared_experts"},  {"score_function", "scoring_func"},
    {"use_qkv_bias", "attention_bias"},          {"use_bias", "attention_out_bias"},
    {"moe_shared_expert_intermediate_size", ""},  // of one shared expert: that of any
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"attention_bias", "false"},    {"attention_out_bias", "false"}, {"use_qk_norm", "true"},
    {"partial_rotary_factor", "1"}, {"first_k_dense_replace", "0"},  {"n_shared_experts", "0"},
    {"routed_scaling_factor", "1"}, {"rms_norm_eps", "1e-6"},        {"rope_theta", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kBailingMoe = {
    .architecture = "BailingMoeForCausalLM",
    .model_types = "bailing_moe_v1",
    .gguf_arch = "bailingmoe",
    .module_k = "modeling_bailing_moe",
    .bias = BiasKind::QkvByConfig,
    .interleaved_rope = true,
    .experts = {LayerPattern::FirstDense, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::SoftmaxByConfig},
    .rows = {kTreeV1, kKeysV1, kDefaultsV1, kAliases},
};

const Family kBailingMoeV2 = {
    .architecture = "BailingMoeV2ForCausalLM",
    .model_types = "bailing_moe_v2 bailing_moe",
    .gguf_arch = "bailingmoe2",
    .module_k = "modeling_bailing_moe_v2",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
