// Trinity (AFMoE): norms before and behind each part, queries and keys normed by head, a gate of
// attention's output, and experts as DeepSeek V3's behind the first dense layers. Every fourth
// layer sees the whole context and is not rotated, the others have a window.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouterClass{"{P}TokenChoiceRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kGate[] = {
    {Role::AttentionGateProj,
     "L.self_attn.gate_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_gate.weight"}}},
};
constexpr ModuleRow kNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::AttentionPostNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
    {Role::MlpNorm, "L.pre_mlp_layernorm", &kNorm, When::Always, {{"weight", "B.ffn_norm.weight"}}},
    {Role::MlpPostNorm,
     "L.post_mlp_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_ffw_norm.weight"}}},
};
constexpr ModuleRow kMoeRouter[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router,
     "L.mlp.router",
     &kRouterClass,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
};
constexpr ModuleRow kExperts[] = {
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,     kSelfAttention, kGqaProjections, kQkNorms,
    kGate,        kNorms,    kMoeRouter,     kSharedExperts,  kExperts,
    kExpertParts, kDenseMlp, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypes[] = {"afmoe"};
// No file says that embeddings are scaled; all are of models whose embeddings are.
constexpr ConfigKey kScaledKeys[] = {
    {"mup_enabled", "", KeyRead::Nothing, KeyKind::Flag, KeyWeight::Plain, "true", "false"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,       kKvHeadKeys,        kMlpKeys,        kModelKeys,       kHeadKeys,
    kTiedKeys,       kAttentionBiasKeys, kWindowKeys,     kRopeScalingKeys, kRoutedExpertKeys,
    kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys, kSharedCountKeys, kScaleKeys,
    kFirstDenseKeys, kSigmoidKeys,       kScaledKeys,
};
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

extern const Family kAfmoe;
const Family kAfmoe = {
    .architecture = "AfmoeForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "afmoe",
    .prefix = "Afmoe",
    .module_k = "transformers.models.afmoe.modeling_afmoe",
    .module_t = "",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .scaled_embedding = true,
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
