// SmallThinker: experts in every layer with a gate by ReLU, chosen by the stream as it is before
// attention and without a norm, so that they can be fetched while attention is computed. All but
// every fourth layer, beginning with the first, have a window, and these alone are rotated; models
// without windows are rotated everywhere.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

#define KTX_MOE "L.block_sparse_moe"
constexpr ClassRow kMoeBlock{"{P}MoeBlock"};
constexpr ClassRow kReluPart{"{P}HierarchicalMLP"};
constexpr ModuleRow kMoeRows[] = {
    {Role::Moe, KTX_MOE, &kMoeBlock},
    router(KTX_MOE ".primary_router", &kLinearRouter),
    experts(KTX_MOE ".experts", &kExpertList),
    {Role::Expert, KTX_MOE ".experts.{expert}", &kReluPart},
    {Role::GateProj, KTX_MOE ".experts.{expert}.gate", &kLinear, When::Always, {{"gate"}}},
    {Role::UpProj, KTX_MOE ".experts.{expert}.up", &kLinear, When::Always, {{"up"}}},
    {Role::DownProj, KTX_MOE ".experts.{expert}.down", &kLinear, When::Always, {{"down"}}},
};
#undef KTX_MOE
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kMoeRows, kLayerNorms,
                                                kTreeEnd};

constexpr ConfigKey kOwnKeys[] = {
    count("moe_num_primary_experts", "expert_count"),
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "softmax", "sigmoid"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,   kKvHeadKeys,     kModelKeys,
                                                kHeadKeys,   kTiedKeys,       kOwnKeys,
                                                kWindowKeys, kUsedExpertKeys, kExpertWidthKeys};
constexpr ConfigAlias kAliases[] = {
    {"moe_num_active_primary_experts", "num_experts_per_tok"},
    {"moe_ffn_hidden_size", "moe_intermediate_size"},
    {"sliding_window_size", "sliding_window"},
    {"rope_layout", "no_rope_layers"},
};
constexpr ConfigDefault kDefaults[] = {
    {"norm_topk_prob", "true"},     {"rms_norm_eps", "1e-6"},        {"rope_theta", "1500000"},
    {"routed_scaling_factor", "1"}, {"scoring_func", "\"sigmoid\""}, {"topk_method", "\"greedy\""},
};

}  // namespace

const Family kSmallThinker = {
    .architecture = "SmallThinkerForCausalLM",
    .model_types = "smallthinker",
    .gguf_arch = "smallthinker",
    .prefix = "Smallthinker",
    .module_k = "ktransformers.models.modeling_smallthinker",
    .windows = WindowPattern::PeriodFromFull,
    .window_period = 4,
    .router_reads_stream = true,
    .rotates_windows = true,
    .activation = Activation::Relu,
    .experts = {LayerPattern::AllMoe, "moe_num_primary_experts", "moe_intermediate_size",
                SharedKind::None, RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
    .more_classes = "K.{P}DenseMlpBlock",
};

}  // namespace ktx::families
