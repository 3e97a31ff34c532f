// GLM-4.5, 4.6, 4.7 and Air, and GLM-4.7-Flash ("Lite"): the first layers dense, then DeepSeek
// V3's routing with shared experts. The former have grouped-query attention with biases, which
// rotates a part of each head, and norms of heads in the largest models only; Flash has DeepSeek
// V3's latent attention and is stored as "deepseek2". Solar Open is GLM-4.5 with experts in every
// layer and whole heads rotated.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kOptionalQkNorms,
                                                kDenseMlp,   kDeepseekMoe,  kPostAttentionNorms,
                                                kTreeEnd};
constexpr std::span<const ModuleRow> kTreeLite[] = {
    kCausalStem, kLatentAttention, kMlaProjections, kDenseMlp, kDeepseekMoe, kLayerNorms, kTreeEnd};

constexpr GgufSign kSignsSolar[] = {{.pre = "solar-open"}};
// What it computes is what DeepSeek V3 computes; only the text is split in another way.
constexpr GgufSign kSignsLite[] = {{.pre = "glm4"}};

constexpr ConfigKey kScaleKeysLite[] = {
    scale("routed_scaling_factor", "expert_weights_scale", "1", "1.8"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kLlamaKeys,          kAttentionBiasKeys, kQkNormKeys,        kRopeScalingKeys,
    kDeepseekExpertKeys, kScaleKeys,         kSigmoidRoutingKeys};
constexpr std::span<const ConfigKey> kKeysLite[] = {kLatentModelKeys, kMlaKeys, kDeepseekExpertKeys,
                                                    kScaleKeysLite, kSigmoidRoutingKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"attention_bias", "false"},      {"use_qk_norm", "false"},
    {"partial_rotary_factor", "0.5"}, {"first_k_dense_replace", "1"},
    {"n_routed_experts", "128"},      {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},     {"moe_intermediate_size", "1408"},
    {"routed_scaling_factor", "1"},   {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);
constexpr ConfigDefault kOwnDefaultsSolar[] = {
    {"attention_bias", "false"},    {"use_qk_norm", "false"},
    {"partial_rotary_factor", "1"}, {"first_k_dense_replace", "0"},
    {"n_routed_experts", "128"},    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},   {"moe_intermediate_size", "1280"},
    {"routed_scaling_factor", "1"}, {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},      {"head_dim", "128"},
};
constexpr auto kDefaultsSolar = join(kOwnDefaultsSolar, kSigmoidRoutingDefaults);
constexpr ConfigDefault kOwnDefaultsLite[] = {
    {"attention_bias", "false"},  {"first_k_dense_replace", "1"},
    {"n_routed_experts", "64"},   {"n_shared_experts", "1"},
    {"num_experts_per_tok", "4"}, {"moe_intermediate_size", "1536"},
    {"q_lora_rank", "768"},       {"routed_scaling_factor", "1.8"},
    {"rms_norm_eps", "1e-5"},     {"rope_theta", "10000"},
};
constexpr auto kDefaultsLite = join(kOwnDefaultsLite, kSigmoidRoutingDefaults);

}  // namespace

const Family kGlm4Moe = {
    .architecture = "Glm4MoeForCausalLM",
    .model_types = "glm4_moe",
    .gguf_arch = "glm4moe",
    .module_k = "ktransformers.models.modeling_glm4_moe",
    .module_t = "transformers.models.glm4_moe.modeling_glm4_moe",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaults, kAliases},
    .predicts = true,
};

const Family kSolarOpen = {
    .architecture = "SolarOpenForCausalLM",
    .model_types = "solar_open",
    .gguf_arch = "glm4moe",
    .gguf_signs = kSignsSolar,
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaultsSolar, kAliases},
};

const Family kGlm4MoeLite = {
    .architecture = "Glm4MoeLiteForCausalLM",
    .model_types = "glm4_moe_lite",
    .gguf_arch = "deepseek2",
    .gguf_signs = kSignsLite,
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = kDeepseekExperts,
    .rows = {kTreeLite, kKeysLite, kDefaultsLite, kLatentAliases},
    .predicts = true,
};

}  // namespace ktx::families
