// Qwen3-Next and Qwen3.5 (also 3.6): three of four layers have a gated delta net instead of
// attention; its state has a fixed size. The fourth has attention with a gate behind each query
// head. Qwen3.5 exists with experts and dense.
//
// Qwen3-Next's in_proj_qkvz is two tensors in a GGUF, which may have different types: in its tree
// it is in_proj_qkv and in_proj_z, as in Qwen3.5. Norms of both multiply by 1 + w; a GGUF holds
// that sum. Converters sort Qwen3.5's value heads so that equal key heads are not neighbours.
#include "lib/families/delta_net_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kExpertList{
    "torch.nn.modules.container.ModuleList",
    "torch.nn.ModuleList ModuleList {P}Experts K.{P}Experts T.{P}Experts"};

constexpr ModuleRow kJoinedGates[] = {
    linear(Role::DeltaBaProj, "L.linear_attn.in_proj_ba", "B.ssm_ba.", When::DeltaNet),
};
constexpr ModuleRow kMoeRows[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    router("L.mlp.gate", &kLinearRouter, When::Moe),
    experts("L.mlp.experts", &kExpertList, When::Moe),
};
constexpr std::span<const ModuleRow> kTreeNext[] = {
    kCausalStem,        kDeltaNetRows,       kJoinedGates, kDeltaNetOutput, kFullAttention,
    kFullAttentionQkv,  kFullAttentionRest,  kDenseMlp,    kMoeRows,        kExpertParts,
    kGatedSharedExpert, kPostAttentionNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTree35Moe[] = {
    kCausalStem,    kDeltaNetRows,      kSplitGates,         kDeltaNetOutput,
    kFullAttention, kFullAttentionQkv,  kFullAttentionRest,  kMoeRows,
    kExpertParts,   kGatedSharedExpert, kPostAttentionNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTree35[] = {
    kCausalStem,       kDeltaNetRows,      kSplitGates, kDeltaNetOutput,     kFullAttention,
    kFullAttentionQkv, kFullAttentionRest, kDenseMlp,   kPostAttentionNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeysNext[] = {
    kSizeKeys,        kKvHeadKeys,           kUnusedMlpKeys,  kModelKeys,      kHeadKeys,
    kTiedKeys,        kRopeScalingKeys,      kNumExpertsKeys, kUsedExpertKeys, kExpertWidthKeys,
    kSharedWidthKeys, kAlwaysNormalisedKeys, kDeltaNetKeys};
constexpr std::span<const ConfigKey> kKeys35Moe[] = {kSizeKeys,
                                                     kKvHeadKeys,
                                                     kModelKeys,
                                                     kHeadKeys,
                                                     kTiedKeys,
                                                     kRopeScalingKeys,
                                                     kNumExpertsKeys,
                                                     kUsedExpertKeys,
                                                     kExpertWidthKeys,
                                                     kSharedWidthKeys,
                                                     kAlwaysNormalisedKeys,
                                                     kDeltaNetKeys,
                                                     kSectionKeys};
constexpr std::span<const ConfigKey> kKeys35[] = {kLlamaKeys, kRopeScalingKeys, kDeltaNetKeys,
                                                  kSectionKeys};
constexpr ConfigDefault kOwnDefaultsNext[] = {
    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},
};
constexpr auto kDefaultsNext = join(kDeltaNetDefaults, kWideExpertDefaults, kOwnDefaultsNext);
// Its code always normalises.
constexpr ConfigDefault kOwnDefaults35Moe[] = {
    {"num_experts", "256"},
    {"num_experts_per_tok", "8"},
    {"norm_topk_prob", "true"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "512"},
};
constexpr auto kDefaults35Moe = join(kDeltaNetDefaults, kOwnDefaults35Moe);

}  // namespace

const Family kQwen3Next = {
    .architecture = "Qwen3NextForCausalLM",
    .model_types = "qwen3_next",
    .gguf_arch = "qwen3next",
    .module_k = "ktransformers.models.modeling_qwen3_next",
    .module_t = "transformers.models.qwen3_next.modeling_qwen3_next",
    .partial_rotary = true,
    .gated_attention = true,
    .experts = {LayerPattern::SparseStep, "num_experts", "moe_intermediate_size", SharedKind::Width,
                RouterKind::SoftmaxByConfig},
    .rows = {kTreeNext, kKeysNext, kDefaultsNext, kNumLocalExpertsAliases},
    .predicts = true,
};

const Family kQwen35Moe = {
    .architecture = "Qwen3_5MoeForCausalLM",
    .model_types = "qwen3_5_moe_text qwen3_5_moe",
    .gguf_arch = "qwen35moe",
    .module_k = "transformers.models.qwen3_5_moe.modeling_qwen3_5_moe",
    .partial_rotary = true,
    .gated_attention = true,
    .tiled_value_heads = true,
    .experts = {LayerPattern::AllMoe, "num_experts", "moe_intermediate_size", SharedKind::Width,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree35Moe, kKeys35Moe, kDefaults35Moe, kNumLocalExpertsAliases},
    .predicts = true,
};

const Family kQwen35 = {
    .architecture = "Qwen3_5ForCausalLM",
    .model_types = "qwen3_5_text qwen3_5",
    .gguf_arch = "qwen35",
    .module_k = "transformers.models.qwen3_5.modeling_qwen3_5",
    .partial_rotary = true,
    .gated_attention = true,
    .tiled_value_heads = true,
    .rows = {kTree35, kKeys35, kDeltaNetDefaults},
    .predicts = true,
};

}  // namespace ktx::families
