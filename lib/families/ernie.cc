// ERNIE 4.5: Llama's graph with pairs of neighbours rotated. With experts, every n-th layer behind
// the first dense ones has experts, chosen by softmax scores with a correction bias, and shared
// ones beside them.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    corrected_router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                kExperts,    kExpertParts,  kSharedExperts,
                                                kLayerNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTreeDense[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                     kLayerNorms, kTreeEnd};

constexpr ConfigKey kLayerKeys[] = {
    count("decoder_sparse_step", "interleave_moe_layer_step", "1", "1"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kLlamaKeys,       kAttentionBiasKeys, kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kSharedCountKeys,   kFirstDenseKeys,  kLayerKeys,        kSoftmaxKeys};
constexpr std::span<const ConfigKey> kKeysDense[] = {kLlamaKeys, kAttentionBiasKeys,
                                                     kRopeScalingKeys};
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

const Family kErnie45Moe = {
    .architecture = "Ernie4_5_MoeForCausalLM",
    .model_types = "ernie4_5_moe",
    .gguf_arch = "ernie4_5-moe",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::FirstDenseThenStep, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
    .more_classes = "K.{P}Statics",
};

const Family kErnie45 = {
    .architecture = "Ernie4_5ForCausalLM",
    .model_types = "ernie4_5",
    .gguf_arch = "ernie4_5",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTreeDense, kKeysDense, kDefaultsDense, kAliasesDense},
};

}  // namespace ktx::families
