// Ling 3 (BailingMoeV3): of a group of layers the last has latent attention with a gate for each
// head, the others Kimi delta attention, whose decays are bounded. Its gates are linears of their
// own, without a latent. The first layers are dense, then DeepSeek V3's routing by groups.
//
// Ling 2.6 has the same model type, other linear attention and no bound.
//
// A GGUF marks the layers with a delta net by 0 key heads, and holds exp(A_log) as it is.
// Converters disagree whether the gates' linears are called those of a latent (ssm_f_a, ssm_g_a).
#include "lib/families/channel_delta_rows.h"
#include "lib/families/key_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kForget[] = {
    linear(Role::DeltaAProj, "L.self_attn.forget_gate.f_proj", "B.ssm_f_a.weight | B.ssm_f.weight",
           When::DeltaNet),
};
constexpr ModuleRow kDeltaGate[] = {
    linear(Role::DeltaGateProj, "L.self_attn.g_proj", "B.ssm_g_a.weight | B.ssm_g.weight",
           When::DeltaNet),
};
constexpr ModuleRow kHeadGate[] = {
    linear(Role::AttentionGateProj, "L.self_attn.g_proj", "B.attn_gate.", When::FullAttention),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,     kChannelDelta,    kForget,     kChannelDeltaStrength,
    kDeltaGate,      kChannelDeltaEnd, kFullLatent, kFullLatentQueries,
    kFullLatentKeys, kHeadGate,        kDenseMlp,   kDeepseekMoe,
    kLayerNorms,     kTreeEnd};

constexpr ConfigKey kDecayKeys[] = {
    {"kda_decay_bound", "kda.gate_lower_bound", KeyRead::Magnitude, KeyKind::Positive,
     KeyWeight::Plain, "", ""},
    flag("kda_safe_gate", "kda.safe_gate", "true", "true"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,         kMlpKeys,         kModelKeys,      kTiedKeys,           kMlaKeys,
    kChannelDeltaKeys, kDecayKeys,       kNumExpertsKeys, kUsedExpertKeys,     kExpertWidthKeys,
    kNormalisedKeys,   kSharedCountKeys, kScaleKeysV3,    kSigmoidRoutingKeys, kUnitLimitKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"n_routed_experts", "num_experts"},
    {"num_experts_per_token", "num_experts_per_tok"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_expert_group", "n_group"},
    {"moe_renormalize", "norm_topk_prob"},
    {"score_function", "scoring_func"},
    {"model_max_length", "max_position_embeddings"},
    {"head_dim", "linear_head_dim"},
    {"expert_swiglu_limit_list", "swiglu_limits"},
    {"share_expert_swiglu_limit_list", "swiglu_limits_shared"},
    {"rotary_dim", ""},
    {"moe_shared_expert_intermediate_size", ""},  // of one shared expert: that of any
    {"short_conv_kernel_size", "linear_conv_kernel_dim"},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"first_k_dense_replace", "2"}, {"num_experts", "512"},           {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},   {"moe_intermediate_size", "768"}, {"q_lora_rank", "null"},
    {"kv_lora_rank", "512"},        {"qk_nope_head_dim", "128"},      {"qk_rope_head_dim", "64"},
    {"v_head_dim", "128"},          {"routed_scaling_factor", "2.5"}, {"linear_head_dim", "128"},
    {"kda_safe_gate", "true"},      {"linear_conv_kernel_dim", "4"},  {"rms_norm_eps", "1e-6"},
    {"rope_theta", "6000000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kBailingHybrid = {
    .architecture = "BailingHybridForCausalLM",
    .model_types = "bailing_hybrid",
    .gguf_arch = "bailingmoe3",
    .attention = AttentionKind::Mla,
    .interleaved_rope = true,
    .head_gates = true,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Count,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
