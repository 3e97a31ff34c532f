// Trinity (AFMoE): norms before and behind each part, queries and keys normed by head, a gate of
// attention's output, and experts as DeepSeek V3's behind the first dense layers. Every fourth
// layer sees the whole context and is not rotated, the others have a window.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRouterClass{"{P}TokenChoiceRouter"};

constexpr ModuleRow kGate[] = {
    linear(Role::AttentionGateProj, "L.self_attn.gate_proj", "B.attn_gate."),
};
constexpr ModuleRow kNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::AttentionPostNorm, "L.post_attention_layernorm", "B.post_attention_norm."),
    norm(Role::MlpNorm, "L.pre_mlp_layernorm", "B.ffn_norm."),
    norm(Role::MlpPostNorm, "L.post_mlp_layernorm", "B.post_ffw_norm."),
};
constexpr ModuleRow kMoeRouter[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    corrected_router("L.mlp.router", &kRouterClass, When::Moe),
};
constexpr ModuleRow kExperts[] = {
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,    kGqaAttention, kQkNorms,     kGate,     kNorms,  kMoeRouter,
    kSharedExperts, kExperts,      kExpertParts, kDenseMlp, kTreeEnd};

// No file says that embeddings are scaled; all are of models whose embeddings are.
constexpr ConfigKey kScaledKeys[] = {
    {"mup_enabled", "", KeyRead::Nothing, KeyKind::Flag, KeyWeight::Plain, "true", "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys,       kAttentionBiasKeys,  kWindowKeys,
                                                kRopeScalingKeys, kDeepseekExpertKeys, kScaleKeys,
                                                kFirstDenseKeys,  kSigmoidKeys,        kScaledKeys};
constexpr ConfigAlias kAliases[] = {
    {"global_attn_every_n_layers", "sliding_window_pattern"},
    {"num_dense_layers", "first_k_dense_replace"},
    {"num_experts", "n_routed_experts"},
    {"num_local_experts", "n_routed_experts"},
    {"num_shared_experts", "n_shared_experts"},
    {"route_scale", "routed_scaling_factor"},
    {"route_norm", "norm_topk_prob"},
    {"score_func", "scoring_func"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},     {"sliding_window", "1024"}, {"head_dim", "128"},
    {"first_k_dense_replace", "1"},  {"moe_layer_freq", "1"},    {"n_routed_experts", "64"},
    {"num_experts_per_tok", "6"},    {"n_shared_experts", "2"},  {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""}, {"norm_topk_prob", "true"}, {"routed_scaling_factor", "1"},
    {"mup_enabled", "false"},        {"rms_norm_eps", "1e-5"},   {"rope_theta", "10000"},
};

}  // namespace

const Family kAfmoe = {
    .architecture = "AfmoeForCausalLM",
    .model_types = "afmoe",
    .gguf_arch = "afmoe",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .scaled_embedding = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
