// Kimi-Linear: three of four layers have Kimi delta attention, a gated delta net whose channels
// decay each by itself, and one has DeepSeek V3's latent attention without positions (the rotary
// parts are there, and not rotated). The first layers are dense, then DeepSeek V3's routing.
//
// Kimi-K3 beside that: decays with a bound, gates of both kinds of attention with a number for each
// element, experts that read and write a latent whose sum is normed, units by SiTU, and attention
// residuals, whose streams are blocks of layers. Its paths and classes are those of transformers'
// Kimi-Linear, with its own names for what that has not; in the code beside its weights `mlp` is
// `block_sparse_moe` where there are experts.
//
// A GGUF marks the layers with a delta net by 0 key heads. For attention residuals it has the
// product of a norm's weights and a linear's as one vector.
#include "lib/families/channel_delta_rows.h"
#include "lib/families/key_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kQuery[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::FullAttention),
};
constexpr ClassRow kSitu{"SituAndMul"};
constexpr ModuleRow kWholeGate[] = {
    linear(Role::DeltaGateProj, "L.self_attn.g_proj", "B.ssm_g.", When::DeltaNet),
};
constexpr ModuleRow kOutputGate[] = {
    linear(Role::AttentionGateProj, "L.self_attn.g_proj", "B.attn_gate.", When::OutputGate),
};
constexpr ModuleRow kSituMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp, When::Dense},
    linear(Role::GateProj, "L.mlp.gate_proj", "B.ffn_gate.", When::Dense),
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up.", When::Dense),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Dense),
    {Role::Activation, "L.mlp.act_fn", &kSitu, When::Dense},
};
constexpr ModuleRow kLatentExperts[] = {
    linear(Role::LatentDownProj, "L.mlp.routed_expert_down_proj", "B.ffn_routed_down.",
           When::MoeWithLatent),
    norm(Role::LatentNorm, "L.mlp.routed_expert_norm", "B.ffn_routed_norm.", When::LatentNorm),
    linear(Role::LatentUpProj, "L.mlp.routed_expert_up_proj", "B.ffn_routed_up.",
           When::MoeWithLatent),
};
constexpr ModuleRow kLayerSources[] = {
    {Role::AttentionSources,
     "L.self_attention_res_proj",
     &kLinear,
     When::Always,
     {{"score", "B.attn_res_score.weight"}}},
    {Role::MlpSources,
     "L.mlp_res_proj",
     &kLinear,
     When::Always,
     {{"score", "B.ffn_res_score.weight"}}},
};
constexpr ModuleRow kHeadSources[] = {
    {Role::HeadSources,
     "model.output_attn_res_proj",
     &kLinear,
     When::Always,
     {{"score", "output_res_score.weight"}}},
};
constexpr std::span<const ModuleRow> kTreeK3[] = {kCausalStem,     kChannelDelta,
                                                  kLatentForget,   kChannelDeltaStrength,
                                                  kWholeGate,      kChannelDeltaEnd,
                                                  kFullLatent,     kFullLatentQueries,
                                                  kFullLatentKeys, kOutputGate,
                                                  kSituMlp,        kDeepseekMoe,
                                                  kLatentExperts,  kLayerNorms,
                                                  kLayerSources,   kFinalNorm,
                                                  kHeadSources,    kHead};

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
constexpr ConfigKey kOwnKeysK3[] = {
    count("attn_res_block_size", "attn_res.block_size"),
    positive("activation_situ_beta", "activation.situ_beta"),
    amount("activation_situ_linear_beta", "activation.situ_linear_beta"),
    {"kda_decay_bound", "kda.gate_lower_bound", KeyRead::Magnitude, KeyKind::Positive,
     KeyWeight::Plain, "", ""},
    {"moe_latent_size", "expert_latent_length", KeyRead::Int, KeyKind::CountOrNull,
     KeyWeight::Structural, "null", "null"},
    {"latent_moe_use_norm", "", KeyRead::LatentNorm, KeyKind::Flag, KeyWeight::Plain, "", "false"},
    {"mla_use_output_gate", "", KeyRead::OutputGate, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
constexpr std::span<const ConfigKey> kKeysK3[] = {
    kSizeKeys,         kMlpKeys,        kModelKeys,      kTiedKeys,          kMlaKeys,
    kChannelDeltaKeys, kNumExpertsKeys, kUsedExpertKeys, kExpertWidthKeys,   kNormalisedKeys,
    kSharedCountKeys,  kScaleKeys,      kOwnKeysK3,      kSigmoidRoutingKeys};
constexpr ConfigAlias kOwnAliases[] = {
    {"num_local_experts", "num_experts"},
    {"n_routed_experts", "num_experts"},
    {"num_experts_per_token", "num_experts_per_tok"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_expert_group", "n_group"},
    {"moe_renormalize", "norm_topk_prob"},
    {"moe_router_activation_func", "scoring_func"},
    {"model_max_length", "max_position_embeddings"},
    {"routed_expert_hidden_size", "moe_latent_size"},
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
constexpr ConfigDefault kOwnDefaultsK3[] = {
    {"first_k_dense_replace", "1"},   {"q_lora_rank", "null"},
    {"routed_scaling_factor", "1"},   {"linear_head_dim", "128"},
    {"linear_conv_kernel_dim", "4"},  {"rms_norm_eps", "1e-5"},
    {"latent_moe_use_norm", "false"}, {"mla_use_output_gate", "false"},
    {"rope_theta", "10000"},          {"activation_situ_beta", "1"},
};
constexpr auto kDefaultsK3 = join(kOwnDefaultsK3, kSigmoidRoutingDefaults);

}  // namespace

const Family kKimiLinear = {
    .architecture = "KimiLinearForCausalLM",
    .model_types = "kimi_linear",
    .gguf_arch = "kimi-linear",
    .attention = AttentionKind::Mla,
    .latent_norm_eps = 1e-6F,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Count,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kKimiK3 = {
    .architecture = "KimiK3ForConditionalGeneration",
    .model_types = "kimi_k3",
    .gguf_arch = "kimi-k3",
    .prefix = "KimiLinear",
    .module_k = "transformers.models.kimi_linear.modeling_kimi_linear",
    .attention = AttentionKind::Mla,
    .latent_norm_eps = 1e-6F,
    .activation = Activation::Situ,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Count,
                RouterKind::GroupsByTwoBest},
    .rows = {kTreeK3, kKeysK3, kDefaultsK3, kAliases},
};

}  // namespace ktx::families
