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
constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouter{"torch.nn.modules.linear.Linear",
                           "torch.nn.Linear Linear {P}TopKRouter T.{P}TopKRouter"};
constexpr ClassRow kExpertList{"torch.nn.modules.container.ModuleList",
                               "torch.nn.ModuleList ModuleList {P}Experts T.{P}Experts"};
constexpr ClassRow kQwen2MoeRotary{
    "ktransformers.models.modeling_qwen2_moe.Qwen2MoeRotaryEmbedding",
    "Qwen2MoeRotaryEmbedding transformers.models.qwen2_moe.modeling_qwen2_moe."
    "Qwen2MoeRotaryEmbedding"};

constexpr ModuleRow kRoot2[] = {{Role::Root, "", &kRoot2Class}};
constexpr ModuleRow kRoot3[] = {{Role::Root, "", &kRoot3Class}};
constexpr ModuleRow kSelfAttention2[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa},
};
constexpr ModuleRow kSelfAttention3[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kLayerRotary3[] = {
    {Role::Rotary, "L.self_attn.rotary_emb", &kQwen2MoeRotary},
};
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router, "L.mlp.gate", &kRouter, When::Moe, {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertList,
     When::Moe,
     {{"gate", "B.ffn_gate_exps.weight"},
      {"up", "B.ffn_up_exps.weight"},
      {"down", "B.ffn_down_exps.weight"}}},
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot2, kStem,        kSelfAttention2,    kGqaProjections, kLayerRotary, kDenseMlp,
    kMoe,   kExpertParts, kGatedSharedExpert, kLayerNorms,     kFinalNorm,   kHead,
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot3, kStem,        kSelfAttention3, kGqaProjections, kQkNorms,     kLayerRotary3, kDenseMlp,
    kMoe,   kExpertParts, kLayerNorms,     kFinalNorm,      kModelRotary, kHead,
};

// The language model of Qwen3-VL with experts, as in qwen.cc.
constexpr ClassRow kRootVlClass{"Qwen3VLMoeForConditionalGeneration",
                                "transformers.Qwen3VLMoeForConditionalGeneration",
                                KTX_PRETRAINED KTX_GENERATION};
constexpr ModuleRow kRootVl[] = {{Role::Root, "", &kRootVlClass}};
constexpr std::span<const ModuleRow> kTreeVl[] = {
    kRootVl, kStem,        kSelfAttention3, kGqaProjections, kQkNorms,     kDenseMlp,
    kMoe,    kExpertParts, kLayerNorms,     kFinalNorm,      kModelRotary, kHead,
};
constexpr const char* kModelTypesVl[] = {"qwen3_vl_moe", "qwen3_vl_moe_text"};

constexpr const char* kModelTypes2[] = {"qwen2_moe"};
constexpr const char* kModelTypes3[] = {"qwen3_moe"};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kSharedKeys[] = {
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", KeyRead::SharedSize,
     KeyKind::Count, KeyWeight::Structural, "", ""},
};
// Never written to a GGUF; the released models are what the last columns say.
constexpr ConfigKey kNormKeys2[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "false", "false"},
};
constexpr ConfigKey kNormKeys3[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys,        kKvHeadKeys, kUnusedMlpKeys,  kModelKeys,       kHeadKeys,   kTiedKeys,
    kRopeScalingKeys, kExpertKeys, kUsedExpertKeys, kExpertWidthKeys, kSharedKeys, kNormKeys2,
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys,   kKvHeadKeys,     kUnusedMlpKeys,     kModelKeys,
    kHeadKeys,   kTiedKeys,       kAttentionBiasKeys, kRopeScalingKeys,
    kExpertKeys, kUsedExpertKeys, kExpertWidthKeys,   kNormKeys3,
};
constexpr ConfigAlias kAliases[] = {{"num_local_experts", "num_experts"}};
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

extern const Family kQwen2Moe;
const Family kQwen2Moe = {
    .architecture = "Qwen2MoeForCausalLM",
    .model_types = kModelTypes2,
    .gguf_arch = "qwen2moe",
    .prefix = "Qwen2Moe",
    .module_k = "ktransformers.models.modeling_qwen2_moe",
    .module_t = "transformers.models.qwen2_moe.modeling_qwen2_moe",
    .bias = BiasKind::Qkv,
    .layers = LayerPattern::SparseStep,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeys2,
    .defaults = kDefaults2,
    .aliases = kAliases,
    .tree = kTree2,
};

extern const Family kQwen3Moe;
const Family kQwen3Moe = {
    .architecture = "Qwen3MoeForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "qwen3moe",
    .prefix = "Qwen3Moe",
    .module_k = "ktransformers.models.modeling_qwen3_moe",
    .module_t = "transformers.models.qwen3_moe.modeling_qwen3_moe",
    .bias = BiasKind::Config,
    .layers = LayerPattern::SparseStep,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .aliases = kAliases,
    .tree = kTree3,
};

extern const Family kQwen3VlMoe;
const Family kQwen3VlMoe = {
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .model_types = kModelTypesVl,
    .gguf_arch = "qwen3vlmoe",
    .prefix = "Qwen3VLMoeText",
    .module_k = "transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe",
    .module_t = "",
    .bias = BiasKind::Config,
    .layers = LayerPattern::SparseStep,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeys3,
    .defaults = kDefaultsVl,
    .aliases = kAliases,
    .tree = kTreeVl,
};

}  // namespace ktx::families
