// Jais 2 (Inception): Llama with layer norms, biases everywhere and a squared ReLU instead of the
// gated unit.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,      kGqaAttention, kGatelessMlp, kBiasedLayerNorms,
    kBiasedFinalNorm, kModelRotary,  kHead};

constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"},
    {"layer_norm_eps", "1e-5"},
    {"mlp_bias", "true"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kJais2 = {
    .architecture = "Jais2ForCausalLM",
    .model_types = "jais2",
    .gguf_arch = "jais2",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
