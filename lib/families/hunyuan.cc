// Hy3 (HYV3): Qwen3's attention, the first layers dense, then sigmoid routing with a correction
// bias and shared experts.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRouterClass{"{P}TopKRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
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
    kRoot,      kStem,        kSelfAttention, kGqaProjections, kQkNorms,
    kDenseMlp,  kExperts,     kExpertParts,   kSharedExperts,  kLayerNorms,
    kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"hy_v3"};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
// Its files tell the number of shared experts by their width, and dense layers by their tensors.
constexpr ConfigKey kSharedKeys[] = {
    {"n_shared_experts", "expert_shared_feed_forward_length", KeyRead::SharedCount,
     KeyKind::Natural, KeyWeight::Structural, "1", "1"},
};
constexpr ConfigKey kDenseKeys[] = {
    {"first_k_dense_replace", "leading_dense_block_count", KeyRead::FirstDense, KeyKind::Natural,
     KeyWeight::Structural, "1", "1"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,   kKvHeadKeys,     kMlpKeys,           kModelKeys,
    kHeadKeys,   kTiedKeys,       kAttentionBiasKeys, kRopeScalingKeys,
    kExpertKeys, kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys,
    kSharedKeys, kScaleKeys,      kDenseKeys,         kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"num_shared_experts", "n_shared_experts"},
    {"router_scaling_factor", "routed_scaling_factor"},
    {"route_norm", "norm_topk_prob"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},     {"head_dim", "128"},        {"num_experts", "192"},
    {"num_experts_per_tok", "8"},    {"n_shared_experts", "1"},  {"moe_intermediate_size", "1536"},
    {"first_k_dense_replace", "1"},  {"moe_layer_freq", "1"},    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""}, {"norm_topk_prob", "true"}, {"routed_scaling_factor", "2.826"},
    {"rms_norm_eps", "1e-5"},        {"rope_theta", "11158840"},
};

}  // namespace

extern const Family kHyV3;
const Family kHyV3 = {
    .architecture = "HYV3ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "hy_v3",
    .prefix = "HYV3",
    .module_k = "transformers.models.hy_v3.modeling_hy_v3",
    .module_t = "",
    .bias = BiasKind::Config,
    .layers = LayerPattern::FirstDense,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
