// Mellum 2: Qwen3's attention and experts, with a sliding window in the layers that layer_types
// names; those are rotated by a base of their own, without scaling.
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
     {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
// One module in transformers, with frequencies for each kind of layer.
constexpr ModuleRow kRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kRotary},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,       kSelfAttention, kGqaProjections, kQkNorms, kExperts,
    kExpertParts, kLayerNorms, kFinalNorm,     kRotaries,       kHead,
};

constexpr const char* kModelTypes[] = {"mellum"};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
// Never written to a GGUF.
constexpr ConfigKey kNormKeys[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
};
constexpr ConfigKey kLocalRopeKeys[] = {
    {"rope_local_base_freq", "rope.freq_base_swa", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "=rope_theta", "=rope_theta"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,   kKvHeadKeys,     kUnusedMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys,   kWindowKeys,     kAttentionBiasKeys, kRopeScalingKeys, kLocalRopeKeys,
    kExpertKeys, kUsedExpertKeys, kExpertWidthKeys,   kNormKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
};
constexpr ConfigDefault kDefaults[] = {
    {"num_experts", "64"},       {"num_experts_per_tok", "8"}, {"moe_intermediate_size", "896"},
    {"norm_topk_prob", "true"},  {"sliding_window", "1024"},   {"rms_norm_eps", "1e-6"},
    {"attention_bias", "false"}, {"rope_theta", "500000"},
};

}  // namespace

extern const Family kMellum;
const Family kMellum = {
    .architecture = "MellumForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "mellum",
    .prefix = "Mellum",
    .module_k = "transformers.models.mellum.modeling_mellum",
    .module_t = "",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
