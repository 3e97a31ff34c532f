// gpt-oss: attention with a sink for each head and a sliding window on every other layer, biases
// everywhere, experts with a clamped gated unit of their own. The router's softmax is over the
// chosen experts, which is the softmax over all of them, normalised.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::Always, {{"sinks", "B.attn_sinks.weight"}}},
};
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kMlp},
    weighted(Role::Router, "L.mlp.router", &kTopKRouter, "B.ffn_gate_inp.", When::Always,
             When::Always),
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsModule,
     When::Always,
     {{"gate", "B.ffn_gate_exps.weight"},
      {"up", "B.ffn_up_exps.weight"},
      {"down", "B.ffn_down_exps.weight"},
      {"gate_bias", "B.ffn_gate_exps.bias"},
      {"up_bias", "B.ffn_up_exps.bias"},
      {"down_bias", "B.ffn_down_exps.bias"}}},
};
constexpr ModuleRow kNorms[] = {
    norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.post_attention_layernorm",
         "B.post_attention_norm.weight | B.ffn_norm.weight"),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kSelfAttention, kGqaProjections,
                                                kMoe,        kNorms,         kTreeEnd};

// intermediate_size is the width of one expert.
constexpr ConfigKey kExpertKeys[] = {
    count("num_local_experts", "expert_count"),
    {"intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kBiasKeys[] = {
    {"attention_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kModelKeys,       kHeadKeys,   kTiedKeys,
    kBiasKeys, kWindowKeys, kRopeScalingKeys, kExpertKeys, kUsedExpertKeys};
constexpr ConfigAlias kAliases[] = {
    {"experts_per_token", "num_experts_per_tok"},
    {"num_experts", "num_local_experts"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"}, {"head_dim", "64"},       {"num_experts_per_tok", "4"},
    {"rms_norm_eps", "1e-5"},   {"rope_theta", "150000"}, {"swiglu_limit", "7"},
};

}  // namespace

const Family kGptOss = {
    .architecture = "GptOssForCausalLM",
    .model_types = "gpt_oss",
    .gguf_arch = "gpt-oss",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 2,
    .yarn_truncate = false,
    .activation = Activation::GptOss,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
