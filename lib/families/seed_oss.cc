// Seed-OSS: Llama's graph with biases on queries, keys and values, heads that together are wider
// than the residual stream, and rotary at model level only.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                kPostAttentionNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kMlpBiasKeys,
                                                kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"}, {"attention_out_bias", "false"}, {"mlp_bias", "false"},
    {"head_dim", "128"},        {"rms_norm_eps", "1e-6"},        {"rope_theta", "10000"},
};

}  // namespace

const Family kSeedOss = {
    .architecture = "SeedOssForCausalLM",
    .model_types = "seed_oss",
    .gguf_arch = "seed_oss",
    .bias = BiasKind::QkvByConfig,
    .mlp_bias = true,
    .rows = {kTree, kKeys, kDefaults},
};

}  // namespace ktx::families
