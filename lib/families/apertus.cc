// Apertus: Llama with norms of query and key heads and a feed-forward part without a gate, whose
// unit (xIELU) has factors of its own in each layer.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kXielu{"transformers.activations.XIELUActivation", "XIELUActivation"};
constexpr ModuleRow kMlpRows[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    {Role::Activation, "L.mlp.act_fn", &kXielu},
};
constexpr ModuleRow kNorms[] = {
    norm(Role::AttentionNorm, "L.attention_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.feedforward_layernorm", "B.ffn_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kQkNorms,
                                                kMlpRows,    kNorms,        kTreeEnd};

constexpr ConfigKey factors(const char* key, const char* gguf_key) {
  return {key, gguf_key, KeyRead::BareAmounts, KeyKind::Numbers, KeyWeight::Plain, "", ""};
}
constexpr ConfigKey kOwnKeys[] = {
    factors("xielu_alpha_p", "xielu.alpha_p"),
    factors("xielu_alpha_n", "xielu.alpha_n"),
    factors("xielu_beta", "xielu.beta"),
    factors("xielu_eps", "xielu.eps"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys,
                                                kOwnKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"hidden_act", "\"xielu\""},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "12000000"},
};

}  // namespace

const Family kApertus = {
    .architecture = "ApertusForCausalLM",
    .model_types = "apertus",
    .gguf_arch = "apertus",
    .bias = BiasKind::Config,
    .gateless = true,
    .unit = UnitFunction::Xielu,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
