// Arcee's AFM: Llama with a squared ReLU instead of the gated unit.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kGatelessMlp,
                                                kLayerNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kMlpBiasKeys,
                                                kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
};

}  // namespace

const Family kArcee = {
    .architecture = "ArceeForCausalLM",
    .model_types = "arcee",
    .gguf_arch = "arcee",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
