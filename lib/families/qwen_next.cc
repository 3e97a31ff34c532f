// Qwen3-Next and Qwen3.5 (also 3.6): three of four layers have a gated delta net in the place of
// attention, whose state has a fixed size; the fourth has attention with a gate behind each query
// head. Qwen3.5 exists with experts and dense.
//
// Qwen3-Next's in_proj_qkvz is two tensors in a GGUF, which may have different types: in its tree
// it is in_proj_qkv and in_proj_z, as in Qwen3.5. Norms of both multiply by 1 + w; a GGUF holds
// that sum. Converters sort Qwen3.5's value heads so that equal key heads are not neighbours.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kDeltaNetClass{"{P}GatedDeltaNet"};
constexpr ClassRow kGatedNorm{"{P}RMSNormGated"};
constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouter{"torch.nn.modules.linear.Linear",
                           "torch.nn.Linear Linear {P}TopKRouter T.{P}TopKRouter"};
constexpr ClassRow kExpertList{
    "torch.nn.modules.container.ModuleList",
    "torch.nn.ModuleList ModuleList {P}Experts K.{P}Experts T.{P}Experts"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kDeltaNetRows[] = {
    {Role::DeltaNet,
     "L.linear_attn",
     &kDeltaNetClass,
     When::DeltaNet,
     {{"conv", "B.ssm_conv1d.weight"}, {"decay", "B.ssm_a"}, {"dt_bias", "B.ssm_dt.bias"}}},
    {Role::Activation, "L.linear_attn.act", &kSilu, When::DeltaNet},
    {Role::DeltaConv, "L.linear_attn.conv1d", &kConv1d, When::DeltaNet},
    {Role::DeltaQkvProj,
     "L.linear_attn.in_proj_qkv",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.attn_qkv.weight"}}},
    {Role::DeltaGateProj,
     "L.linear_attn.in_proj_z",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.attn_gate.weight"}}},
};
constexpr ModuleRow kJoinedGates[] = {
    {Role::DeltaBaProj,
     "L.linear_attn.in_proj_ba",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_ba.weight"}}},
};
constexpr ModuleRow kSplitGates[] = {
    {Role::DeltaBProj,
     "L.linear_attn.in_proj_b",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_beta.weight"}}},
    {Role::DeltaAProj,
     "L.linear_attn.in_proj_a",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_alpha.weight"}}},
};
constexpr ModuleRow kDeltaNetOutput[] = {
    {Role::DeltaNorm,
     "L.linear_attn.norm",
     &kGatedNorm,
     When::DeltaNet,
     {{"weight", "B.ssm_norm.weight"}}},
    {Role::OProj,
     "L.linear_attn.out_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_out.weight"}}},
};
constexpr ModuleRow kFullAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
};
constexpr ModuleRow kFullAttentionRest[] = {
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_output.weight"}}},
    {Role::QNorm,
     "L.self_attn.q_norm",
     &kNorm,
     When::FullAttention,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.self_attn.k_norm",
     &kNorm,
     When::FullAttention,
     {{"weight", "B.attn_k_norm.weight"}}},
};
constexpr ModuleRow kMoeRows[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router, "L.mlp.gate", &kRouter, When::Moe, {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTreeNext[] = {
    kRoot,
    kStem,
    kDeltaNetRows,
    kJoinedGates,
    kDeltaNetOutput,
    kFullAttention,
    kFullAttentionQkv,
    kFullAttentionRest,
    kDenseMlp,
    kMoeRows,
    kExpertParts,
    kGatedSharedExpert,
    kPostAttentionNorms,
    kFinalNorm,
    kModelRotary,
    kHead,
};
constexpr std::span<const ModuleRow> kTree35Moe[] = {
    kRoot,
    kStem,
    kDeltaNetRows,
    kSplitGates,
    kDeltaNetOutput,
    kFullAttention,
    kFullAttentionQkv,
    kFullAttentionRest,
    kMoeRows,
    kExpertParts,
    kGatedSharedExpert,
    kPostAttentionNorms,
    kFinalNorm,
    kModelRotary,
    kHead,
};
constexpr std::span<const ModuleRow> kTree35[] = {
    kRoot,
    kStem,
    kDeltaNetRows,
    kSplitGates,
    kDeltaNetOutput,
    kFullAttention,
    kFullAttentionQkv,
    kFullAttentionRest,
    kDenseMlp,
    kPostAttentionNorms,
    kFinalNorm,
    kModelRotary,
    kHead,
};

constexpr const char* kModelTypesNext[] = {"qwen3_next"};
constexpr const char* kModelTypes35Moe[] = {"qwen3_5_moe_text", "qwen3_5_moe"};
constexpr const char* kModelTypes35[] = {"qwen3_5_text", "qwen3_5"};

constexpr ConfigKey kDeltaNetKeys[] = {
    {"linear_conv_kernel_dim", "ssm.conv_kernel", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"linear_key_head_dim", "ssm.state_size", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "", ""},
    {"linear_num_key_heads", "ssm.group_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "", ""},
    {"linear_num_value_heads", "ssm.time_step_rank", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"linear_value_head_dim", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Plain,
     "=linear_key_head_dim", "=linear_key_head_dim"},
    {"full_attention_interval", "full_attention_interval", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "4", "4"},
};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kSharedKeys[] = {
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", KeyRead::SharedSize,
     KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kNormKeys[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
};
constexpr std::span<const ConfigKey> kKeysNext[] = {
    kSizeKeys,   kKvHeadKeys,      kUnusedMlpKeys, kModelKeys,      kHeadKeys,
    kTiedKeys,   kRopeScalingKeys, kExpertKeys,    kUsedExpertKeys, kExpertWidthKeys,
    kSharedKeys, kNormKeys,        kDeltaNetKeys,
};
constexpr std::span<const ConfigKey> kKeys35Moe[] = {
    kSizeKeys,   kKvHeadKeys,     kModelKeys,       kHeadKeys,   kTiedKeys, kRopeScalingKeys,
    kExpertKeys, kUsedExpertKeys, kExpertWidthKeys, kSharedKeys, kNormKeys, kDeltaNetKeys,
};
constexpr std::span<const ConfigKey> kKeys35[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,         kModelKeys,
    kHeadKeys, kTiedKeys,   kRopeScalingKeys, kDeltaNetKeys,
};
#define KTX_DELTA_DEFAULTS                                                                         \
  {"linear_conv_kernel_dim", "4"}, {"linear_key_head_dim", "128"}, {"linear_num_key_heads", "16"}, \
      {"linear_num_value_heads", "32"}, {"head_dim", "256"}, {"partial_rotary_factor", "0.25"}, {  \
    "rms_norm_eps", "1e-6"                                                                         \
  }
constexpr ConfigDefault kDefaultsNext[] = {
    KTX_DELTA_DEFAULTS,
    {"num_experts", "512"},
    {"num_experts_per_tok", "10"},
    {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},
    {"norm_topk_prob", "true"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "512"},
    {"rope_theta", "10000"},
};
// Its code always normalises.
constexpr ConfigDefault kDefaults35Moe[] = {
    KTX_DELTA_DEFAULTS,
    {"num_experts", "256"},
    {"num_experts_per_tok", "8"},
    {"norm_topk_prob", "true"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "512"},
};
constexpr ConfigDefault kDefaults35[] = {KTX_DELTA_DEFAULTS};
#undef KTX_DELTA_DEFAULTS
constexpr ConfigAlias kAliases[] = {{"num_local_experts", "num_experts"}};

}  // namespace

extern const Family kQwen3Next;
const Family kQwen3Next = {
    .architecture = "Qwen3NextForCausalLM",
    .model_types = kModelTypesNext,
    .gguf_arch = "qwen3next",
    .prefix = "Qwen3Next",
    .module_k = "ktransformers.models.modeling_qwen3_next",
    .module_t = "transformers.models.qwen3_next.modeling_qwen3_next",
    .partial_rotary = true,
    .gated_attention = true,
    .layers = LayerPattern::SparseStep,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeysNext,
    .defaults = kDefaultsNext,
    .aliases = kAliases,
    .tree = kTreeNext,
    .predicts = true,
};

extern const Family kQwen35Moe;
const Family kQwen35Moe = {
    .architecture = "Qwen3_5MoeForCausalLM",
    .model_types = kModelTypes35Moe,
    .gguf_arch = "qwen35moe",
    .prefix = "Qwen3_5Moe",
    .module_k = "transformers.models.qwen3_5_moe.modeling_qwen3_5_moe",
    .module_t = "",
    .partial_rotary = true,
    .gated_attention = true,
    .tiled_value_heads = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeys35Moe,
    .defaults = kDefaults35Moe,
    .aliases = kAliases,
    .tree = kTree35Moe,
    .predicts = true,
};

extern const Family kQwen35;
const Family kQwen35 = {
    .architecture = "Qwen3_5ForCausalLM",
    .model_types = kModelTypes35,
    .gguf_arch = "qwen35",
    .prefix = "Qwen3_5",
    .module_k = "transformers.models.qwen3_5.modeling_qwen3_5",
    .module_t = "",
    .partial_rotary = true,
    .gated_attention = true,
    .tiled_value_heads = true,
    .keys = kKeys35,
    .defaults = kDefaults35,
    .tree = kTree35,
    .predicts = true,
};

}  // namespace ktx::families
