// DeepSeekMoE of 2024 (deepseek-moe-16b): Llama's attention, the first layers dense, then experts
// with shared ones beside them, routed by a softmax that is not normalised.
//
// DeepSeek V2 (also Lite) and V3 (also R1, Moonlight, Kimi-K2): multi-head latent
// attention, layers as before. Both are "deepseek2" in GGUF. The two differ in routing and in
// class names.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRoot2Class{"{P}ForCausalLM",
                               "transformers.{P}ForCausalLM K{P}ForCausalLM "
                               "ktransformers.models.custom_modeling_deepseek_v2.K{P}ForCausalLM",
                               KTX_PRETRAINED};
constexpr ClassRow kRoot3Class{"{P}ForCausalLM",
                               "transformers.{P}ForCausalLM K{P}ForCausalLM "
                               "ktransformers.models.custom_modeling_deepseek_v3.K{P}ForCausalLM",
                               KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kMlaAttention{"{P}Attention", "{P}FlashAttention2 K.{P}FlashAttention2"};
#define KTX_ROTARY_BASE "K.{P}RotaryEmbedding {P}RotaryEmbedding T.{P}RotaryEmbedding"
constexpr ClassRow kLinearRotary{"{P}LinearScalingRotaryEmbedding", "", KTX_ROTARY_BASE, false};
constexpr ClassRow kDynamicRotary{"{P}DynamicNTKScalingRotaryEmbedding", "", KTX_ROTARY_BASE,
                                  false};
constexpr ClassRow kYarnRotary{"{P}YarnRotaryEmbedding", "", KTX_ROTARY_BASE, false};
#undef KTX_ROTARY_BASE
constexpr ClassRow kMoe2{"{P}MoE", "{P}Moe T.{P}Moe"};
constexpr ClassRow kExpertList3{"torch.nn.modules.container.ModuleList",
                                "torch.nn.ModuleList ModuleList {P}NaiveMoe T.{P}NaiveMoe"};
constexpr ClassRow kGate2{"MoEGate", "{P}MoEGate T.{P}MoEGate", "", false};
constexpr ClassRow kGate3{"MoEGate", "{P}TopkRouter T.{P}TopkRouter", "", false};

constexpr ModuleRow kRoot2[] = {{Role::Root, "", &kRoot2Class}};
constexpr ModuleRow kRoot3[] = {{Role::Root, "", &kRoot3Class}};
constexpr ModuleRow kSelfAttention[] = {{Role::Mla, "L.self_attn", &kMlaAttention}};
constexpr ModuleRow kMlaRotary[] = {
    {Role::Rotary, "L.self_attn.rotary_emb", &kRotary, When::RopePlain},
    {Role::Rotary, "L.self_attn.rotary_emb", &kLinearRotary, When::RopeLinear},
    {Role::Rotary, "L.self_attn.rotary_emb", &kDynamicRotary, When::RopeDynamic},
    {Role::Rotary, "L.self_attn.rotary_emb", &kYarnRotary, When::RopeYarn},
};
constexpr ModuleRow kExperts2[] = {
    {Role::Moe, "L.mlp", &kMoe2, When::Moe},
    experts("L.mlp.experts", &kExpertList, When::Moe),
};
constexpr ModuleRow kExperts3[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
    experts("L.mlp.experts", &kExpertList3, When::Moe),
};
constexpr ModuleRow kRouter2[] = {
    router("L.mlp.gate", &kGate2, When::Moe),
};
constexpr ModuleRow kRouter3[] = {
    corrected_router("L.mlp.gate", &kGate3, When::Moe),
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot2,       kStem,    kSelfAttention, kMlaProjections, kMlaRotary, kDenseMlp, kExperts2,
    kExpertParts, kRouter2, kSharedExperts, kLayerNorms,     kFinalNorm, kHead};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot3,       kStem,    kSelfAttention, kMlaProjections, kMlaRotary, kDenseMlp, kExperts3,
    kExpertParts, kRouter3, kSharedExperts, kLayerNorms,     kFinalNorm, kHead};

constexpr std::span<const ModuleRow> kTree1[] = {
    kRoot2,       kStem,    kSdpaAttention, kGqaProjections, kLayerRotary, kDenseMlp, kExperts2,
    kExpertParts, kRouter2, kSharedExperts, kLayerNorms,     kFinalNorm,   kHead};

// Only V3 has correction biases; both write the scoring function (1 softmax, 2 sigmoid).
constexpr GgufSign kSigns3[] = {
    {.tensor = "exp_probs_b.bias"},
    {.tensor = "exp_probs_b"},
    {.key = "expert_gating_func", .min = 2, .max = 2},
};

constexpr std::span<const ConfigKey> kKeys1[] = {
    kLlamaKeys,       kAttentionBiasKeys, kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kNotNormalisedKeys, kSharedCountKeys, kFirstDenseKeys};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kLatentModelKeys, kMscaleKeys,      kTemperatureKeys,   kMlaKeys,         kRoutedExpertKeys,
    kUsedExpertKeys,  kExpertWidthKeys, kNotNormalisedKeys, kSharedCountKeys, kScaleKeys,
    kFirstDenseKeys,  kGroupKeys,       kSoftmaxKeys};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kLatentModelKeys,    kMscaleKeys,  kTemperatureKeys,   kMlaKeys,
    kDeepseekExpertKeys, kScaleKeysV3, kSigmoidRoutingKeys};

constexpr ConfigDefault kDefaults1[] = {
    {"attention_bias", "false"},  {"first_k_dense_replace", "0"}, {"moe_layer_freq", "1"},
    {"n_shared_experts", "null"}, {"norm_topk_prob", "false"},    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults2[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "null"},
    {"n_shared_experts", "null"},
    {"q_lora_rank", "1536"},

    {"scoring_func", "\"softmax\""},
    {"norm_topk_prob", "false"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kOwnDefaults3[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "3"},
    {"n_routed_experts", "256"},
    {"n_shared_experts", "1"},
    {"q_lora_rank", "1536"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "8"},
    {"topk_group", "4"},
    {"num_experts_per_tok", "8"},
    {"num_nextn_predict_layers", "0"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr auto kDefaults3 = join(kOwnDefaults3, kSigmoidRoutingDefaults);

}  // namespace

const Family kDeepseek = {
    .architecture = "DeepseekForCausalLM",
    .model_types = "deepseek",
    .gguf_arch = "deepseek",
    .module_k = "modeling_deepseek",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::FirstDense, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::SoftmaxByConfig},
    .rows = {kTree1, kKeys1, kDefaults1},
};

const Family kDeepseekV2 = {
    .architecture = "DeepseekV2ForCausalLM",
    .model_types = "deepseek_v2",
    .gguf_arch = "deepseek2",
    .module_k = "ktransformers.models.modeling_deepseek",
    .module_t = "transformers.models.deepseek_v2.modeling_deepseek_v2",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::FirstDense, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::GroupsByBest},
    .rows = {kTree2, kKeys2, kDefaults2, kLatentAliases},
};

const Family kDeepseekV3 = {
    .architecture = "DeepseekV3ForCausalLM",
    .model_types = "deepseek_v3 kimi_k2",
    .gguf_arch = "deepseek2",
    .gguf_signs = kSigns3,
    .module_k = "ktransformers.models.modeling_deepseek_v3",
    .module_t = "transformers.models.deepseek_v3.modeling_deepseek_v3",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = kDeepseekExperts,
    .rows = {kTree3, kKeys3, kDefaults3, kLatentAliases},
    .predicts = true,
};

}  // namespace ktx::families
