// Ling and Ring 2.0 (BailingMoeV2): the first layers dense, then DeepSeek V3's routing by groups
// with shared experts. Queries, keys and values are one linear, their heads are normed, and a part
// of each is rotated. Module names are those of the code beside the models' weights.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kGate{"{P}Gate"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kWordStem[] = {
    {Role::Model, "model", &kModel},
    {Role::Embedding,
     "model.word_embeddings",
     &kEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kFusedAttention[] = {
    {Role::Attention, "L.attention", &kAttentionFlashSdpa},
    {Role::QkvProj,
     "L.attention.query_key_value",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_qkv.weight"}, {"bias", "B.attn_qkv.bias", When::QkvBias}}},
    {Role::QNorm,
     "L.attention.query_layernorm",
     &kNorm,
     When::QkNorm,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.attention.key_layernorm",
     &kNorm,
     When::QkNorm,
     {{"weight", "B.attn_k_norm.weight"}}},
    {Role::OProj,
     "L.attention.dense",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias", When::AttentionBias}}},
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kRouter[] = {
    {Role::Router,
     "L.mlp.gate",
     &kGate,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,   kWordStem,      kFusedAttention, kDenseMlp,  kExperts,     kExpertParts,
    kRouter, kSharedExperts, kLayerNorms,     kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"bailing_moe_v2", "bailing_moe"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,       kKvHeadKeys,        kMlpKeys,        kModelKeys,       kHeadKeys,
    kTiedKeys,       kAttentionBiasKeys, kQkNormKeys,     kRopeScalingKeys, kRoutedExpertKeys,
    kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys, kSharedCountKeys, kScaleKeys,
    kFirstDenseKeys, kGroupKeys,         kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_experts", "n_routed_experts"},         {"num_local_experts", "n_routed_experts"},
    {"num_shared_experts", "n_shared_experts"},  {"score_function", "scoring_func"},
    {"use_qkv_bias", "attention_bias"},          {"use_bias", "attention_out_bias"},
    {"moe_shared_expert_intermediate_size", ""},  // of one shared expert: that of any
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"attention_out_bias", "false"},
    {"use_qk_norm", "true"},
    {"partial_rotary_factor", "1"},
    {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},
    {"n_shared_experts", "0"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kBailingMoeV2;
const Family kBailingMoeV2 = {
    .architecture = "BailingMoeV2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "bailingmoe2",
    .prefix = "BailingMoeV2",
    .module_k = "modeling_bailing_moe_v2",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
