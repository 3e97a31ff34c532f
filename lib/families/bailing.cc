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
constexpr ModuleRow kRouter[] = {
    corrected_router("L.mlp.gate", &kGate, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalRoot,  kWordStem, kFusedAttention, kDenseMlp,   kSparseMoe,
    kExpertParts, kRouter,   kSharedExperts,  kLayerNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {
    kLlamaKeys,          kAttentionBiasKeys, kQkNormKeys,        kRopeScalingKeys,
    kDeepseekExpertKeys, kScaleKeys,         kSigmoidRoutingKeys};
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
