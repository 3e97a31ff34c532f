// ERNIE 4.5: Llama's graph with pairs of neighbours rotated. With experts, every n-th layer behind
// the first dense ones has experts, chosen by softmax scores with a correction bias, and shared
// ones beside them.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouterClass{"{P}TopKRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router,
     "L.mlp.gate",
     &kRouterClass,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,          kSelfAttention, kGqaProjections, kDenseMlp,    kExperts,
    kExpertParts, kSharedExperts, kLayerNorms,    kFinalNorm,      kModelRotary, kHead,
};
constexpr std::span<const ModuleRow> kTreeDense[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};

constexpr const char* kModelTypes[] = {"ernie4_5_moe"};
constexpr const char* kModelTypesDense[] = {"ernie4_5"};
constexpr ConfigKey kLayerKeys[] = {
    {"decoder_sparse_step", "interleave_moe_layer_step", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "1", "1"},
};
constexpr ConfigKey kScoringKeys[] = {
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "softmax", "softmax"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,        kKvHeadKeys,        kMlpKeys,         kModelKeys,        kHeadKeys,
    kTiedKeys,        kAttentionBiasKeys, kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kSharedCountKeys,   kFirstDenseKeys,  kLayerKeys,        kScoringKeys,
};
constexpr std::span<const ConfigKey> kKeysDense[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,
    kHeadKeys, kTiedKeys,   kAttentionBiasKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliasesDense[] = {{"use_bias", "attention_bias"}};
constexpr ConfigDefault kDefaultsDense[] = {
    {"attention_bias", "false"}, {"head_dim", "128"},      {"tie_word_embeddings", "true"},
    {"rms_norm_eps", "1e-5"},    {"rope_theta", "500000"},
};
constexpr ConfigAlias kAliases[] = {
    {"moe_num_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"moe_k", "num_experts_per_tok"},
    {"moe_num_shared_experts", "n_shared_experts"},
    {"moe_layer_start_index", "first_k_dense_replace"},
    {"moe_layer_interval", "decoder_sparse_step"},
    {"use_bias", "attention_bias"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},       {"first_k_dense_replace", "1"},
    {"decoder_sparse_step", "1"},      {"n_routed_experts", "64"},
    {"n_shared_experts", "2"},         {"num_experts_per_tok", "6"},
    {"moe_intermediate_size", "1536"}, {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"softmax\""},   {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},    {"tie_word_embeddings", "true"},
    {"rms_norm_eps", "1e-5"},          {"rope_theta", "500000"},
};

}  // namespace

extern const Family kErnie45Moe;
const Family kErnie45Moe = {
    .architecture = "Ernie4_5_MoeForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "ernie4_5-moe",
    .prefix = "Ernie4_5_Moe",
    .module_k = "transformers.models.ernie4_5_moe.modeling_ernie4_5_moe",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDenseThenStep,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
    .more_classes = "K.{P}Statics",
};

extern const Family kErnie45;
const Family kErnie45 = {
    .architecture = "Ernie4_5ForCausalLM",
    .model_types = kModelTypesDense,
    .gguf_arch = "ernie4_5",
    .prefix = "Ernie4_5",
    .module_k = "transformers.models.ernie4_5.modeling_ernie4_5",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .keys = kKeysDense,
    .defaults = kDefaultsDense,
    .aliases = kAliasesDense,
    .tree = kTreeDense,
};

}  // namespace ktx::families
