// Mistral's models of 2025 and later. "mistral3" in GGUF: Mistral Small 3.1 and 3.2 (the same as
// Llama) and Ministral 3, whose queries grow with the position beyond its first context;
// "mistral4": DeepSeek's latent attention and experts by softmax, with that growth, too. Older ones
// are "llama".
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kLatentAttention[] = {{Role::Mla, "L.self_attn", &kAttention}};
constexpr ModuleRow kRouter[] = {
    {Role::Router, "L.mlp.gate", &kTopkRouter, When::Moe, {{"weight", "B.ffn_gate_inp.weight"}}},
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTree4[] = {
    kRoot,        kStem,   kLatentAttention, kMlaProjections, kDenseMlp,  kMoeExperts,
    kExpertParts, kRouter, kSharedExperts,   kLayerNorms,     kFinalNorm, kModelRotary,
    kHead,
};

constexpr const char* kModelTypes3[] = {"ministral3", "mistral3"};
constexpr const char* kModelTypes4[] = {"mistral4"};
// Not multiplied by 0.1, as the converter of DeepSeek does.
constexpr ConfigKey kMscaleKeys3[] = {
    {"rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier", KeyRead::Float,
     KeyKind::Amount, KeyWeight::Plain, "", ""},
    {"rope_scaling.mscale", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain,
     "=rope_scaling.mscale_all_dim", "=rope_scaling.mscale_all_dim"},
};
constexpr ConfigKey kScoringKeys[] = {
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "softmax", "softmax"},
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys, kKvHeadKeys,      kMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys, kRopeScalingKeys, kMscaleKeys3, kTemperatureKeys,
};
constexpr std::span<const ConfigKey> kKeys4[] = {
    kSizeKeys,        kMlaKvHeadKeys,   kMlpKeys,         kModelKeys,       kTiedKeys,
    kRopeScalingKeys, kMscaleKeys,      kTemperatureKeys, kMlaKeys,         kRoutedExpertKeys,
    kUsedExpertKeys,  kExpertWidthKeys, kNormalisedKeys,  kSharedCountKeys, kScaleKeys,
    kFirstDenseKeys,  kGroupKeys,       kScoringKeys,
};
constexpr ConfigAlias kAliases4[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"head_dim", ""},
};
constexpr ConfigDefault kDefaults3[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
};
constexpr ConfigDefault kDefaults4[] = {
    {"attention_bias", "false"}, {"first_k_dense_replace", "0"}, {"moe_layer_freq", "1"},
    {"n_routed_experts", "128"}, {"n_shared_experts", "1"},      {"num_experts_per_tok", "4"},
    {"q_lora_rank", "1024"},     {"topk_method", "\"greedy\""},  {"scoring_func", "\"softmax\""},
    {"norm_topk_prob", "true"},  {"routed_scaling_factor", "1"}, {"n_group", "1"},
    {"topk_group", "1"},         {"rms_norm_eps", "1e-6"},       {"rope_theta", "10000"},
};

}  // namespace

extern const Family kMinistral3;
const Family kMinistral3 = {
    .architecture = "Ministral3ForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "mistral3",
    .prefix = "Ministral3",
    .module_k = "transformers.models.ministral3.modeling_ministral3",
    .module_t = "",
    .interleaved_rope = true,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .tree = kTree3,
};

extern const Family kMistral4;
const Family kMistral4 = {
    .architecture = "Mistral4ForCausalLM",
    .model_types = kModelTypes4,
    .gguf_arch = "mistral4",
    .prefix = "Mistral4",
    .module_k = "transformers.models.mistral4.modeling_mistral4",
    .module_t = "",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys4,
    .defaults = kDefaults4,
    .aliases = kAliases4,
    .tree = kTree4,
};

}  // namespace ktx::families
