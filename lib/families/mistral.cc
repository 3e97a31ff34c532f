// Mistral's models of 2025 and later. "mistral3" in GGUF: Mistral Small 3.1 and 3.2 (the same as
// Llama) and Ministral 3, whose queries grow with the position beyond its first context;
// "mistral4": DeepSeek's latent attention and experts by softmax, with that growth, too. Older ones
// are "llama".
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRouter[] = {
    router("L.mlp.gate", &kDeepseekRouter, When::Moe),
};
constexpr std::span<const ModuleRow> kTree3[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                 kTreeEnd};
constexpr std::span<const ModuleRow> kTree4[] = {
    kCausalStem,  kLatentAttention, kMlaProjections, kDenseMlp,   kMoeExperts,
    kExpertParts, kRouter,          kSharedExperts,  kLayerNorms, kTreeEnd};

// Not multiplied by 0.1, as the converter of DeepSeek does.
constexpr ConfigKey kMscaleKeys3[] = {
    amount("rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"),
    {"rope_scaling.mscale", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain,
     "=rope_scaling.mscale_all_dim", "=rope_scaling.mscale_all_dim"},
};
constexpr std::span<const ConfigKey> kKeys3[] = {kLlamaKeys, kRopeScalingKeys, kMscaleKeys3,
                                                 kTemperatureKeys};
constexpr std::span<const ConfigKey> kKeys4[] = {
    kLatentModelKeys, kMscaleKeys,     kTemperatureKeys, kMlaKeys,    kDeepseekExpertKeys,
    kScaleKeys,       kFirstDenseKeys, kGroupKeys,       kSoftmaxKeys};
constexpr ConfigDefault kDefaults3[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
};
constexpr ConfigDefault kOwnDefaults4[] = {
    {"attention_bias", "false"},   {"first_k_dense_replace", "0"},  {"n_routed_experts", "128"},
    {"n_shared_experts", "1"},     {"num_experts_per_tok", "4"},    {"q_lora_rank", "1024"},
    {"topk_method", "\"greedy\""}, {"scoring_func", "\"softmax\""}, {"routed_scaling_factor", "1"},
    {"rms_norm_eps", "1e-6"},      {"rope_theta", "10000"},
};
constexpr auto kDefaults4 = join(kOwnDefaults4, kSigmoidRoutingDefaults);

}  // namespace

const Family kMinistral3 = {
    .architecture = "Ministral3ForCausalLM",
    .model_types = "ministral3 mistral3",
    .gguf_arch = "mistral3",
    .interleaved_rope = true,
    .rows = {kTree3, kKeys3, kDefaults3},
};

const Family kMistral4 = {
    .architecture = "Mistral4ForCausalLM",
    .model_types = "mistral4",
    .gguf_arch = "mistral4",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = kDeepseekExperts,
    .rows = {kTree4, kKeys4, kDefaults4, kLatentAliases},
};

}  // namespace ktx::families
