// Hunyuan V1, dense and with experts and a shared one in every layer: norms of query and key heads
// behind the rotation. Hy3 (HYV3): Qwen3's attention, the first layers dense, then sigmoid routing
// with a correction bias and shared experts.
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
constexpr ModuleRow kRotatedNorms[] = {
    {Role::QRotatedNorm,
     "L.self_attn.query_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KRotatedNorm,
     "L.self_attn.key_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_k_norm.weight"}}},
};
constexpr ClassRow kMoeV1{"{P}Moe"};
constexpr ClassRow kGateV1{"{P}Gate"};
constexpr ModuleRow kExpertsV1[] = {
    {Role::Moe, "L.mlp", &kMoeV1},
    {Role::Router, "L.mlp.gate", &kGateV1, When::Always, {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kSharedV1[] = {
    {Role::SharedMlp, "L.mlp.shared_mlp", &kMlp},
    {Role::GateProj,
     "L.mlp.shared_mlp.gate_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_gate_shexp.weight"}}},
    {Role::UpProj,
     "L.mlp.shared_mlp.up_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.mlp.shared_mlp.down_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down_shexp.weight"}}},
    {Role::Activation, "L.mlp.shared_mlp.act_fn", &kSilu},
};
constexpr std::span<const ModuleRow> kTreeMoeV1[] = {
    kRoot,        kStem,     kSelfAttention, kGqaProjections, kRotatedNorms, kExpertsV1,
    kExpertParts, kSharedV1, kLayerNorms,    kFinalNorm,      kModelRotary,  kHead,
};
constexpr std::span<const ModuleRow> kTreeDenseV1[] = {
    kRoot,     kStem,       kSelfAttention, kGqaProjections, kRotatedNorms,
    kDenseMlp, kLayerNorms, kFinalNorm,     kModelRotary,    kHead,
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,      kStem,        kSelfAttention, kGqaProjections, kQkNorms,
    kDenseMlp,  kExperts,     kExpertParts,   kSharedExperts,  kLayerNorms,
    kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"hy_v3"};
constexpr const char* kModelTypesMoeV1[] = {"hunyuan_v1_moe"};
constexpr const char* kModelTypesDenseV1[] = {"hunyuan_v1_dense"};
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
constexpr ConfigKey kSharedKeysV1[] = {
    {"n_shared_experts", "expert_shared_count", KeyRead::Int, KeyKind::Natural,
     KeyWeight::Structural, "1", "1"},
};
constexpr std::span<const ConfigKey> kKeysMoeV1[] = {
    kSizeKeys,          kKvHeadKeys,      kMlpKeys,    kModelKeys,      kHeadKeys,     kTiedKeys,
    kAttentionBiasKeys, kRopeScalingKeys, kExpertKeys, kUsedExpertKeys, kSharedKeysV1,
};
constexpr std::span<const ConfigKey> kKeysDenseV1[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,
    kHeadKeys, kTiedKeys,   kAttentionBiasKeys, kRopeScalingKeys,
};
// The shared expert is one of the width of the others, whatever num_shared_expert says.
constexpr ConfigAlias kAliasesMoeV1[] = {
    {"num_local_experts", "num_experts"},
    {"moe_topk", "num_experts_per_tok"},
    {"num_shared_expert", ""},
};
constexpr ConfigDefault kDefaultsMoeV1[] = {
    {"attention_bias", "false"}, {"num_experts_per_tok", "1"}, {"n_shared_experts", "1"},
    {"rms_norm_eps", "1e-5"},    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaultsDenseV1[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
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

extern const Family kHunyuanMoe;
const Family kHunyuanMoe = {
    .architecture = "HunYuanMoEV1ForCausalLM",
    .model_types = kModelTypesMoeV1,
    .gguf_arch = "hunyuan-moe",
    .prefix = "HunYuanMoEV1",
    .module_k = "transformers.models.hunyuan_v1_moe.modeling_hunyuan_v1_moe",
    .module_t = "",
    .bias = BiasKind::Config,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_experts",
    .expert_width_key = "intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeysMoeV1,
    .defaults = kDefaultsMoeV1,
    .aliases = kAliasesMoeV1,
    .tree = kTreeMoeV1,
};

extern const Family kHunyuanDense;
const Family kHunyuanDense = {
    .architecture = "HunYuanDenseV1ForCausalLM",
    .model_types = kModelTypesDenseV1,
    .gguf_arch = "hunyuan-dense",
    .prefix = "HunYuanDenseV1",
    .module_k = "transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense",
    .module_t = "",
    .bias = BiasKind::Config,
    .keys = kKeysDenseV1,
    .defaults = kDefaultsDenseV1,
    .tree = kTreeDenseV1,
};

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
