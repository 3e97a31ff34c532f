// Kimi-Linear: of four layers three have Kimi delta attention, a gated delta net whose channels
// decay each by itself, and one has DeepSeek V3's latent attention without positions (the rotary
// parts are there, and not rotated). The first layers are dense, then DeepSeek V3's routing.
//
// A GGUF marks the layers with a delta net by 0 key heads.
#include "lib/families/channel_delta_rows.h"
#include "lib/families/key_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kQuery[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::FullAttention),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,      kChannelDelta,
                                                kLatentForget,    kChannelDeltaStrength,
                                                kLatentDeltaGate, kChannelDeltaEnd,
                                                kFullLatent,      kQuery,
                                                kFullLatentKeys,  kDenseMlp,
                                                kDeepseekMoe,     kLayerNorms,
                                                kFinalNorm,       kHead};

constexpr ConfigKey kLinearScaleKeys[] = {
    scale("routed_scaling_factor", "expert_weights_scale", "1", "2.446"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,         kMlpKeys,         kModelKeys,         kTiedKeys,        kMlaKeys,
    kChannelDeltaKeys, kNumExpertsKeys,  kUsedExpertKeys,    kExpertWidthKeys, kNormalisedKeys,
    kSharedCountKeys,  kLinearScaleKeys, kSigmoidRoutingKeys};
constexpr ConfigAlias kOwnAliases[] = {
    {"num_local_experts", "num_experts"},
    {"n_routed_experts", "num_experts"},
    {"num_experts_per_token", "num_experts_per_tok"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_expert_group", "n_group"},
    {"moe_renormalize", "norm_topk_prob"},
    {"moe_router_activation_func", "scoring_func"},
    {"model_max_length", "max_position_embeddings"},
    {"head_dim", ""},
};
constexpr auto kAliases = join(kOwnAliases, kLinearConfigAliases);
constexpr ConfigDefault kOwnDefaults[] = {
    {"first_k_dense_replace", "1"},     {"num_experts", "256"},
    {"n_shared_experts", "1"},          {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1024"},  {"q_lora_rank", "null"},
    {"routed_scaling_factor", "2.446"}, {"linear_head_dim", "128"},
    {"linear_num_heads", "32"},         {"linear_conv_kernel_dim", "4"},
    {"rms_norm_eps", "1e-5"},           {"rope_theta", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kKimiLinear = {
    .architecture = "KimiLinearForCausalLM",
    .model_types = "kimi_linear",
    .gguf_arch = "kimi-linear",
    .attention = AttentionKind::Mla,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Count,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
