// MiniMax-M2: in every layer experts with a correction bias and no shared one; the norms of
// queries and keys take all heads together, and a part of each head is rotated. Paths and classes
// are transformers'; MiniMax's own code calls the feed-forward part `block_sparse_moe`.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouterClass{"{P}TopKRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock},
    {Role::Router,
     "L.mlp.gate",
     &kRouterClass,
     When::Always,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,    kStem,        kSelfAttention, kGqaProjections, kOptionalQkNorms,
    kExperts, kExpertParts, kLayerNorms,    kFinalNorm,      kModelRotary,
    kHead,
};

constexpr const char* kModelTypes[] = {"minimax_m2"};
constexpr ConfigKey kExpertKeys[] = {
    {"num_local_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
};
// The width of an expert, under both keys of a GGUF.
constexpr ConfigKey kWidthKeys[] = {
    {"intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kRotaryKeys[] = {
    {"head_dim", "attention.key_length", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "=head_dim", "=head_dim"},
    {"rotary_dim", "rope.dimension_count", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "=head_dim", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,   kKvHeadKeys,      kWidthKeys,  kModelKeys,      kRotaryKeys,  kTiedKeys,
    kQkNormKeys, kRopeScalingKeys, kExpertKeys, kUsedExpertKeys, kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {{"num_experts", "num_local_experts"}};
constexpr ConfigDefault kDefaults[] = {
    {"use_qk_norm", "true"},         {"num_local_experts", "256"},    {"num_experts_per_tok", "8"},
    {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""}, {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},  {"rms_norm_eps", "1e-6"},        {"rope_theta", "5000000"},
};

}  // namespace

extern const Family kMiniMaxM2;
const Family kMiniMaxM2 = {
    .architecture = "MiniMaxM2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "minimax-m2",
    .prefix = "MiniMaxM2",
    .module_k = "transformers.models.minimax_m2.modeling_minimax_m2",
    .module_t = "",
    .qk_norm = QkNormKind::Row,
    .partial_rotary = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
