// Hunyuan V1, dense and with experts and a shared one in every layer: norms of query and key heads
// behind the rotation. Hy3 (HYV3): Qwen3's attention, the first layers dense, then sigmoid routing
// with a correction bias and shared experts.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
    corrected_router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
constexpr ModuleRow kRotatedNorms[] = {
    norm(Role::QRotatedNorm, "L.self_attn.query_layernorm", "B.attn_q_norm."),
    norm(Role::KRotatedNorm, "L.self_attn.key_layernorm", "B.attn_k_norm."),
};
constexpr ClassRow kMoeV1{"{P}Moe"};
constexpr ClassRow kGateV1{"{P}Gate"};
constexpr ModuleRow kExpertsV1[] = {
    {Role::Moe, "L.mlp", &kMoeV1},
    router("L.mlp.gate", &kGateV1),
    experts("L.mlp.experts", &kExpertsOrList),
};
constexpr ModuleRow kSharedV1[] = {
    {Role::SharedMlp, "L.mlp.shared_mlp", &kMlp},
    linear(Role::GateProj, "L.mlp.shared_mlp.gate_proj", "B.ffn_gate_shexp."),
    linear(Role::UpProj, "L.mlp.shared_mlp.up_proj", "B.ffn_up_shexp."),
    linear(Role::DownProj, "L.mlp.shared_mlp.down_proj", "B.ffn_down_shexp."),
    {Role::Activation, "L.mlp.shared_mlp.act_fn", &kSilu},
};
constexpr std::span<const ModuleRow> kTreeMoeV1[] = {kCausalStem, kGqaAttention, kRotatedNorms,
                                                     kExpertsV1,  kExpertParts,  kSharedV1,
                                                     kLayerNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTreeDenseV1[] = {kCausalStem, kGqaAttention, kRotatedNorms,
                                                       kDenseMlp,   kLayerNorms,   kTreeEnd};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,    kGqaAttention, kQkNorms,
                                                kDenseMlp,      kExperts,      kExpertParts,
                                                kSharedExperts, kLayerNorms,   kTreeEnd};

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
    kLlamaKeys,      kAttentionBiasKeys, kRopeScalingKeys, kNumExpertsKeys,
    kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys,  kSharedKeys,
    kScaleKeys,      kDenseKeys,         kSigmoidKeys};
constexpr ConfigKey kSharedKeysV1[] = {
    natural("n_shared_experts", "expert_shared_count", "1", "1"),
};
constexpr std::span<const ConfigKey> kKeysMoeV1[] = {kLlamaKeys,       kAttentionBiasKeys,
                                                     kRopeScalingKeys, kNumExpertsKeys,
                                                     kUsedExpertKeys,  kSharedKeysV1};
constexpr std::span<const ConfigKey> kKeysDenseV1[] = {kLlamaKeys, kAttentionBiasKeys,
                                                       kRopeScalingKeys};
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

const Family kHunyuanMoe = {
    .architecture = "HunYuanMoEV1ForCausalLM",
    .model_types = "hunyuan_v1_moe",
    .gguf_arch = "hunyuan-moe",
    .bias = BiasKind::Config,
    .experts = {LayerPattern::AllMoe, "num_experts", "intermediate_size", SharedKind::Count,
                RouterKind::SoftmaxNormalised},
    .rows = {kTreeMoeV1, kKeysMoeV1, kDefaultsMoeV1, kAliasesMoeV1},
};

const Family kHunyuanDense = {
    .architecture = "HunYuanDenseV1ForCausalLM",
    .model_types = "hunyuan_v1_dense",
    .gguf_arch = "hunyuan-dense",
    .bias = BiasKind::Config,
    .rows = {kTreeDenseV1, kKeysDenseV1, kDefaultsDenseV1},
};

const Family kHyV3 = {
    .architecture = "HYV3ForCausalLM",
    .model_types = "hy_v3",
    .gguf_arch = "hy_v3",
    .bias = BiasKind::Config,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Count,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
