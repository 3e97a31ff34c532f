// DeepSeek V2 (also Lite) and V3 (also R1, Moonlight, Kimi-K2): multi-head latent
// attention, the first layers dense, then experts with shared ones beside them.
// Both are "deepseek2" in GGUF. The two differ in routing and in class names.
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
constexpr ClassRow kExpertList2{"torch.nn.modules.container.ModuleList",
                                "torch.nn.ModuleList ModuleList {P}Experts T.{P}Experts"};
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
    {Role::Experts,
     "L.mlp.experts",
     &kExpertList2,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kExperts3[] = {
    {Role::Moe, "L.mlp", &kMoe, When::Moe},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertList3,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kRouter2[] = {
    {Role::Router, "L.mlp.gate", &kGate2, When::Moe, {{"weight", "B.ffn_gate_inp.weight"}}},
};
constexpr ModuleRow kRouter3[] = {
    {Role::Router,
     "L.mlp.gate",
     &kGate3,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot2,       kStem,    kSelfAttention, kMlaProjections, kMlaRotary, kDenseMlp, kExperts2,
    kExpertParts, kRouter2, kSharedExperts, kLayerNorms,     kFinalNorm, kHead,
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot3,       kStem,    kSelfAttention, kMlaProjections, kMlaRotary, kDenseMlp, kExperts3,
    kExpertParts, kRouter3, kSharedExperts, kLayerNorms,     kFinalNorm, kHead,
};

constexpr const char* kModelTypes2[] = {"deepseek_v2"};
constexpr const char* kModelTypes3[] = {"deepseek_v3", "kimi_k2"};
// Only V3 has correction biases; both write the scoring function (1 softmax, 2 sigmoid).
constexpr GgufSign kSigns3[] = {
    {.tensor = "exp_probs_b.bias"},
    {.tensor = "exp_probs_b"},
    {.key = "expert_gating_func", .min = 2, .max = 2},
};

constexpr ConfigKey kNormKeys2[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "false", "false"},
};
constexpr ConfigKey kScaleKeys3[] = {
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "2.5"},
};
constexpr ConfigKey kScoringKeys2[] = {
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "softmax", "softmax"},
};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys,   kMlaKvHeadKeys,   kMlpKeys,   kModelKeys,        kTiedKeys,       kRopeScalingKeys,
    kMscaleKeys, kTemperatureKeys, kMlaKeys,   kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys,
    kNormKeys2,  kSharedCountKeys, kScaleKeys, kFirstDenseKeys,   kGroupKeys,      kScoringKeys2,
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys,        kMlaKvHeadKeys,   kMlpKeys,         kModelKeys,       kTiedKeys,
    kRopeScalingKeys, kMscaleKeys,      kTemperatureKeys, kMlaKeys,         kRoutedExpertKeys,
    kUsedExpertKeys,  kExpertWidthKeys, kNormalisedKeys,  kSharedCountKeys, kScaleKeys3,
    kFirstDenseKeys,  kGroupKeys,       kSigmoidKeys,
};
// transformers 5 has a second name for qk_rope_head_dim, head_dim.
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"head_dim", ""},
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
constexpr ConfigDefault kDefaults3[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "3"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "256"},
    {"n_shared_experts", "1"},
    {"q_lora_rank", "1536"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "8"},
    {"topk_group", "4"},
    {"num_experts_per_tok", "8"},
    {"num_nextn_predict_layers", "0"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kDeepseekV2;
const Family kDeepseekV2 = {
    .architecture = "DeepseekV2ForCausalLM",
    .model_types = kModelTypes2,
    .gguf_arch = "deepseek2",
    .prefix = "DeepseekV2",
    .module_k = "ktransformers.models.modeling_deepseek",
    .module_t = "transformers.models.deepseek_v2.modeling_deepseek_v2",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByBest,
    .keys = kKeys2,
    .defaults = kDefaults2,
    .aliases = kAliases,
    .tree = kTree2,
};

extern const Family kDeepseekV3;
const Family kDeepseekV3 = {
    .architecture = "DeepseekV3ForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "deepseek2",
    .gguf_signs = kSigns3,
    .prefix = "DeepseekV3",
    .module_k = "ktransformers.models.modeling_deepseek_v3",
    .module_t = "transformers.models.deepseek_v3.modeling_deepseek_v3",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .aliases = kAliases,
    .tree = kTree3,
    .predicts = true,
};

}  // namespace ktx::families
