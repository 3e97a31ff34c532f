// Qwen 2 and 3 with experts. Qwen2-MoE adds a shared expert with a sigmoid gate to
// every layer of experts; Qwen3-MoE has none, and per layer it has the rotary
// class of Qwen2-MoE (its own exists once, at model level).
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRoot2Class{"{P}ForCausalLM",
                               "transformers.{P}ForCausalLM K{P}ForCausalLM "
                               "ktransformers.models.custom_modeling_qwen2_moe.K{P}ForCausalLM",
                               KTX_PRETRAINED};
constexpr ClassRow kRoot3Class{"{P}ForCausalLM",
                               "transformers.{P}ForCausalLM K{P}ForCausalLM "
                               "ktransformers.models.custom_modeling_qwen3_moe.K{P}ForCausalLM",
                               KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kQwen2MoeRotary{
    "ktransformers.models.modeling_qwen2_moe.Qwen2MoeRotaryEmbedding",
    "Qwen2MoeRotaryEmbedding transformers.models.qwen2_moe.modeling_qwen2_moe."
    "Qwen2MoeRotaryEmbedding"};

constexpr ModuleRow kRoot2[] = {{Role::Root, "", &kRoot2Class}};
constexpr ModuleRow kRoot3[] = {{Role::Root, "", &kRoot3Class}};
constexpr ModuleRow kLayerRotary3[] = {
    {Role::Rotary, "L.self_attn.rotary_emb", &kQwen2MoeRotary},
};
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    router("L.mlp.gate", &kLinearRouter, When::Moe),
    {Role::Experts,
     "L.mlp.experts",
     &kExpertList,
     When::Moe,
     {{"gate", "B.ffn_gate_exps.weight"},
      {"up", "B.ffn_up_exps.weight"},
      {"down", "B.ffn_down_exps.weight"}}},
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot2, kStem,        kSdpaAttention,     kGqaProjections, kLayerRotary, kDenseMlp,
    kMoe,   kExpertParts, kGatedSharedExpert, kLayerNorms,     kFinalNorm,   kHead};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot3,    kStem, kGqa,         kGqaProjections, kQkNorms, kLayerRotary3,
    kDenseMlp, kMoe,  kExpertParts, kLayerNorms,     kTreeEnd};

// The language model of Qwen3-VL with experts, as in qwen.cc.
constexpr ClassRow kRootVlClass{"Qwen3VLMoeForConditionalGeneration",
                                "transformers.Qwen3VLMoeForConditionalGeneration",
                                KTX_PRETRAINED KTX_GENERATION};
constexpr ModuleRow kRootVl[] = {{Role::Root, "", &kRootVlClass}};
constexpr std::span<const ModuleRow> kTreeVl[] = {kRootVl,     kStem,     kGqa, kGqaProjections,
                                                  kQkNorms,    kDenseMlp, kMoe, kExpertParts,
                                                  kLayerNorms, kTreeEnd};

// Never written to a GGUF; the released models are what the last columns say.
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys,       kKvHeadKeys,      kUnusedMlpKeys,   kModelKeys,
    kHeadKeys,       kTiedKeys,        kRopeScalingKeys, kNumExpertsKeys,
    kUsedExpertKeys, kExpertWidthKeys, kSharedWidthKeys, kNotNormalisedKeys};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys,       kKvHeadKeys,     kUnusedMlpKeys,     kModelKeys,
    kHeadKeys,       kTiedKeys,       kAttentionBiasKeys, kRopeScalingKeys,
    kNumExpertsKeys, kUsedExpertKeys, kExpertWidthKeys,   kAlwaysNormalisedKeys};
constexpr std::span<const ConfigKey> kSections[] = {kSectionKeys};
constexpr auto kKeysVl = join(kKeys3, kSections);
constexpr ConfigDefault kDefaults2[] = {
    {"num_experts", "60"},
    {"num_experts_per_tok", "4"},
    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},
    {"norm_topk_prob", "false"},
    {"moe_intermediate_size", "1408"},
    {"shared_expert_intermediate_size", "5632"},
    {"use_sliding_window", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults3[] = {
    {"num_experts", "128"},      {"num_experts_per_tok", "8"},    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},   {"norm_topk_prob", "false"},     {"moe_intermediate_size", "768"},
    {"attention_bias", "false"}, {"use_sliding_window", "false"}, {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
// Its code always normalises.
constexpr ConfigDefault kDefaultsVl[] = {
    {"num_experts", "128"},      {"num_experts_per_tok", "8"},    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},   {"norm_topk_prob", "true"},      {"moe_intermediate_size", "768"},
    {"attention_bias", "false"}, {"use_sliding_window", "false"}, {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kQwen2Moe = {
    .architecture = "Qwen2MoeForCausalLM",
    .model_types = "qwen2_moe",
    .gguf_arch = "qwen2moe",
    .module_k = "ktransformers.models.modeling_qwen2_moe",
    .module_t = "transformers.models.qwen2_moe.modeling_qwen2_moe",
    .bias = BiasKind::Qkv,
    .experts = {LayerPattern::SparseStep, "num_experts", "moe_intermediate_size", SharedKind::Width,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree2, kKeys2, kDefaults2, kNumLocalExpertsAliases},
};

const Family kQwen3Moe = {
    .architecture = "Qwen3MoeForCausalLM",
    .model_types = "qwen3_moe",
    .gguf_arch = "qwen3moe",
    .module_k = "ktransformers.models.modeling_qwen3_moe",
    .module_t = "transformers.models.qwen3_moe.modeling_qwen3_moe",
    .bias = BiasKind::Config,
    .experts = {LayerPattern::SparseStep, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree3, kKeys3, kDefaults3, kNumLocalExpertsAliases},
};

const Family kQwen3VlMoe = {
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .model_types = "qwen3_vl_moe qwen3_vl_moe_text",
    .gguf_arch = "qwen3vlmoe",
    .prefix = "Qwen3VLMoeText",
    .bias = BiasKind::Config,
    .experts = {LayerPattern::SparseStep, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::SoftmaxByConfig},
    .rows = {kTreeVl, kKeysVl, kDefaultsVl, kNumLocalExpertsAliases},
};

}  // namespace ktx::families
