// GLM-4.5, 4.6, 4.7 and Air, and GLM-4.7-Flash ("Lite"): the first layers dense, then DeepSeek
// V3's routing with shared experts. The former have grouped-query attention with biases, which
// rotates a part of each head, and norms of heads in the largest models only; Flash has DeepSeek
// V3's latent attention and is stored as "deepseek2". Solar Open is GLM-4.5 with experts in every
// layer and whole heads rotated.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kLatentAttention[] = {{Role::Mla, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,        kSelfAttention,   kGqaProjections, kOptionalQkNorms,    kDenseMlp,
    kMoeExperts,  kExpertParts, kCorrectedRouter, kSharedExperts,  kPostAttentionNorms, kFinalNorm,
    kModelRotary, kHead,
};
constexpr std::span<const ModuleRow> kTreeLite[] = {
    kRoot,          kStem,       kLatentAttention, kMlaProjections,
    kDenseMlp,      kMoeExperts, kExpertParts,     kCorrectedRouter,
    kSharedExperts, kLayerNorms, kFinalNorm,       kModelRotary,
    kHead,
};

constexpr const char* kModelTypes[] = {"glm4_moe"};
constexpr const char* kModelTypesSolar[] = {"solar_open"};
constexpr GgufSign kSignsSolar[] = {{.pre = "solar-open"}};
constexpr const char* kModelTypesLite[] = {"glm4_moe_lite"};
// What it computes is what DeepSeek V3 computes; only the text is split in another way.
constexpr GgufSign kSignsLite[] = {{.pre = "glm4"}};

constexpr ConfigKey kScaleKeysLite[] = {
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "1.8"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,       kKvHeadKeys,        kMlpKeys,        kModelKeys,       kHeadKeys,
    kTiedKeys,       kAttentionBiasKeys, kQkNormKeys,     kRopeScalingKeys, kRoutedExpertKeys,
    kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys, kSharedCountKeys, kScaleKeys,
    kFirstDenseKeys, kGroupKeys,         kSigmoidKeys,
};
constexpr std::span<const ConfigKey> kKeysLite[] = {
    kSizeKeys,       kMlaKvHeadKeys,   kMlpKeys,        kModelKeys,
    kTiedKeys,       kRopeScalingKeys, kMlaKeys,        kRoutedExpertKeys,
    kUsedExpertKeys, kExpertWidthKeys, kNormalisedKeys, kSharedCountKeys,
    kScaleKeysLite,  kFirstDenseKeys,  kGroupKeys,      kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
};
// transformers 5 has a second name for qk_rope_head_dim, head_dim.
constexpr ConfigAlias kAliasesLite[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"head_dim", ""},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"use_qk_norm", "false"},
    {"partial_rotary_factor", "0.5"},
    {"first_k_dense_replace", "1"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "128"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1408"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaultsSolar[] = {
    {"attention_bias", "false"},
    {"use_qk_norm", "false"},
    {"partial_rotary_factor", "1"},
    {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "128"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1280"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
    {"head_dim", "128"},
};
constexpr ConfigDefault kDefaultsLite[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "1"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "64"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "4"},
    {"moe_intermediate_size", "1536"},
    {"q_lora_rank", "768"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1.8"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kGlm4Moe;
const Family kGlm4Moe = {
    .architecture = "Glm4MoeForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "glm4moe",
    .prefix = "Glm4Moe",
    .module_k = "ktransformers.models.modeling_glm4_moe",
    .module_t = "transformers.models.glm4_moe.modeling_glm4_moe",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
    .predicts = true,
};

extern const Family kSolarOpen;
const Family kSolarOpen = {
    .architecture = "SolarOpenForCausalLM",
    .model_types = kModelTypesSolar,
    .gguf_arch = "glm4moe",
    .gguf_signs = kSignsSolar,
    .prefix = "SolarOpen",
    .module_k = "transformers.models.solar_open.modeling_solar_open",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .partial_rotary = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaultsSolar,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kGlm4MoeLite;
const Family kGlm4MoeLite = {
    .architecture = "Glm4MoeLiteForCausalLM",
    .model_types = kModelTypesLite,
    .gguf_arch = "deepseek2",
    .gguf_signs = kSignsLite,
    .prefix = "Glm4MoeLite",
    .module_k = "transformers.models.glm4_moe_lite.modeling_glm4_moe_lite",
    .module_t = "",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysLite,
    .defaults = kDefaultsLite,
    .aliases = kAliasesLite,
    .tree = kTreeLite,
    .predicts = true,
};

}  // namespace ktx::families
