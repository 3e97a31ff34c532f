// gpt-oss: attention with a sink for each head and a sliding window on every other layer, biases
// everywhere, experts with a clamped gated unit of their own. The router's softmax is over the
// chosen experts, which is the softmax over all of them, normalised.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeMlp{"{P}MLP"};
constexpr ClassRow kRouter{"{P}TopKRouter"};
constexpr ClassRow kExperts{"{P}Experts"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::Always, {{"sinks", "B.attn_sinks.weight"}}},
};
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kMoeMlp},
    {Role::Router,
     "L.mlp.router",
     &kRouter,
     When::Always,
     {{"weight", "B.ffn_gate_inp.weight"}, {"bias", "B.ffn_gate_inp.bias"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExperts,
     When::Always,
     {{"gate", "B.ffn_gate_exps.weight"},
      {"up", "B.ffn_up_exps.weight"},
      {"down", "B.ffn_down_exps.weight"},
      {"gate_bias", "B.ffn_gate_exps.bias"},
      {"up_bias", "B.ffn_up_exps.bias"},
      {"down_bias", "B.ffn_down_exps.bias"}}},
};
constexpr ModuleRow kNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight | B.ffn_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kStem, kSelfAttention, kGqaProjections, kMoe, kNorms, kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"gpt_oss"};
// intermediate_size is the width of one expert.
constexpr ConfigKey kExpertKeys[] = {
    {"num_local_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kBiasKeys[] = {
    {"attention_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kModelKeys,       kHeadKeys,   kTiedKeys,
    kBiasKeys, kWindowKeys, kRopeScalingKeys, kExpertKeys, kUsedExpertKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"experts_per_token", "num_experts_per_tok"},
    {"num_experts", "num_local_experts"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"}, {"head_dim", "64"},       {"num_experts_per_tok", "4"},
    {"rms_norm_eps", "1e-5"},   {"rope_theta", "150000"}, {"swiglu_limit", "7"},
};

}  // namespace

extern const Family kGptOss;
const Family kGptOss = {
    .architecture = "GptOssForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "gpt-oss",
    .prefix = "GptOss",
    .module_k = "transformers.models.gpt_oss.modeling_gpt_oss",
    .module_t = "",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 2,
    .yarn_truncate = false,
    .activation = Activation::GptOss,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
