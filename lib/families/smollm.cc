// SmolLM3: Llama without rotation in every fourth layer.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kMlpBiasKeys,
                                                kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},     {"mlp_bias", "false"},    {"tie_word_embeddings", "true"},
    {"use_sliding_window", "false"}, {"rms_norm_eps", "1e-6"}, {"rope_theta", "2000000"},
};

}  // namespace

const Family kSmolLm3 = {
    .architecture = "SmolLM3ForCausalLM",
    .model_types = "smollm3",
    .gguf_arch = "smollm3",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .unrotated_period = 4,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
