// Nemotron of 2024 (Minitron, Nemotron-4): layer norms whose weights count from 1 (files hold the
// sum), a squared ReLU without a gate, half of each head rotated.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kNorm1p{"{P}LayerNorm1P", "", "torch.nn.modules.normalization.LayerNorm"};
constexpr ModuleRow kNorms1p[] = {
    weighted(Role::AttentionNorm, "L.input_layernorm", &kNorm1p, "B.attn_norm.", When::Always,
             When::Always),
    weighted(Role::MlpNorm, "L.post_attention_layernorm", &kNorm1p, "B.ffn_norm.", When::Always,
             When::Always),
    weighted(Role::FinalNorm, "model.norm", &kNorm1p, "output_norm.", When::Always, When::Always),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem, kSdpaAttention, kGqaProjections, kGatelessMlp, kNorms1p, kModelRotary, kHead};

constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys};
constexpr ConfigAlias kAliases[] = {{"norm_eps", "layer_norm_eps"}};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"}, {"partial_rotary_factor", "0.5"},
    {"rope_theta", "10000"},    {"attention_bias", "false"},
    {"mlp_bias", "false"},
};

}  // namespace

const Family kNemotron = {
    .architecture = "NemotronForCausalLM",
    .model_types = "nemotron",
    .gguf_arch = "nemotron",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .partial_rotary = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
