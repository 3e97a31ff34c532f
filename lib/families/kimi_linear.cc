// Kimi-Linear: of four layers three have Kimi delta attention, a gated delta net whose channels
// decay each by itself, and one has DeepSeek V3's latent attention without positions (the rotary
// parts are there, and not rotated). The first layers are dense, then DeepSeek V3's routing.
//
// A GGUF marks the layers with a delta net by 0 key heads.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kDeltaAttention{"{P}DeltaAttention"};
constexpr ClassRow kForgetGate{"{P}ForgetGate"};
constexpr ClassRow kGatedNorm{"{P}RMSNormGated"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kDeltaAttentionRows[] = {
    {Role::DeltaNet,
     "L.self_attn",
     &kDeltaAttention,
     When::DeltaNet,
     {{"conv_q", "B.ssm_conv1d_q.weight"},
      {"conv_k", "B.ssm_conv1d_k.weight"},
      {"conv_v", "B.ssm_conv1d_v.weight"},
      {"decay", "B.ssm_a"},
      {"dt_bias", "B.ssm_dt.bias"}}},
    {Role::QProj, "L.self_attn.q_proj", &kLinear, When::DeltaNet, {{"weight", "B.attn_q.weight"}}},
    {Role::KProj, "L.self_attn.k_proj", &kLinear, When::DeltaNet, {{"weight", "B.attn_k.weight"}}},
    {Role::VProj, "L.self_attn.v_proj", &kLinear, When::DeltaNet, {{"weight", "B.attn_v.weight"}}},
    {Role::DeltaConv, "L.self_attn.conv1d", &kConv1d, When::DeltaNet},
    {Role::DeltaForget, "L.self_attn.forget_gate", &kForgetGate, When::DeltaNet},
    {Role::DeltaForgetAProj,
     "L.self_attn.forget_gate.f_a_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_f_a.weight"}}},
    {Role::DeltaForgetBProj,
     "L.self_attn.forget_gate.f_b_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_f_b.weight"}}},
    {Role::DeltaBProj,
     "L.self_attn.b_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_beta.weight"}}},
    {Role::DeltaGateAProj,
     "L.self_attn.g_a_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_g_a.weight"}}},
    {Role::DeltaGateBProj,
     "L.self_attn.g_b_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.ssm_g_b.weight"}}},
    {Role::DeltaNorm,
     "L.self_attn.o_norm",
     &kGatedNorm,
     When::DeltaNet,
     {{"weight", "B.ssm_norm.weight"}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::DeltaNet,
     {{"weight", "B.attn_output.weight"}}},
};
constexpr ModuleRow kLatentAttention[] = {
    {Role::Mla, "L.self_attn", &kAttention, When::FullAttention},
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_q.weight"}}},
    {Role::KvAProj,
     "L.self_attn.kv_a_proj_with_mqa",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_kv_a_mqa.weight"}}},
    {Role::KvANorm,
     "L.self_attn.kv_a_layernorm",
     &kNorm,
     When::FullAttention,
     {{"weight", "B.attn_kv_a_norm.weight"}}},
    {Role::KvBProj,
     "L.self_attn.kv_b_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_kv_b.weight"},
      {"k_b", "B.attn_k_b.weight"},
      {"v_b", "B.attn_v_b.weight"}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_output.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,          kStem,       kDeltaAttentionRows, kLatentAttention,
    kDenseMlp,      kMoeExperts, kExpertParts,        kCorrectedRouter,
    kSharedExperts, kLayerNorms, kFinalNorm,          kHead,
};

constexpr const char* kModelTypes[] = {"kimi_linear"};

constexpr ConfigKey kDeltaKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::KeylessLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"linear_num_heads", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Structural,
     "=num_attention_heads", "=num_attention_heads"},
    {"linear_head_dim", "kda.head_dim", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", "4"},
};
constexpr ConfigKey kExpertCountKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kLinearScaleKeys[] = {
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "2.446"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,        kMlpKeys,         kModelKeys,      kTiedKeys,        kMlaKeys,
    kDeltaKeys,       kExpertCountKeys, kUsedExpertKeys, kExpertWidthKeys, kNormalisedKeys,
    kSharedCountKeys, kLinearScaleKeys, kFirstDenseKeys, kGroupKeys,       kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"n_routed_experts", "num_experts"},
    {"num_experts_per_token", "num_experts_per_tok"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_expert_group", "n_group"},
    {"moe_renormalize", "norm_topk_prob"},
    {"moe_router_activation_func", "scoring_func"},
    {"model_max_length", "max_position_embeddings"},
    {"linear_attn_config.head_dim", "linear_head_dim"},
    {"linear_attn_config.num_heads", "linear_num_heads"},
    {"linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"},
    {"head_dim", ""},
};
constexpr ConfigDefault kDefaults[] = {
    {"first_k_dense_replace", "1"},
    {"moe_layer_freq", "1"},
    {"num_experts", "256"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1024"},
    {"q_lora_rank", "null"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.446"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"linear_head_dim", "128"},
    {"linear_num_heads", "32"},
    {"linear_conv_kernel_dim", "4"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kKimiLinear;
const Family kKimiLinear = {
    .architecture = "KimiLinearForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "kimi-linear",
    .prefix = "KimiLinear",
    .module_k = "transformers.models.kimi_linear.modeling_kimi_linear",
    .module_t = "",
    .attention = AttentionKind::Mla,
    .layers = LayerPattern::FirstDense,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
