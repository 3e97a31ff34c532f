// Models that compute what Llama does and are stored under names of their own: InternLM2 and
// XVERSE, whose converters put rows of q and k in the order of pairs, and openPangu-Embedded, whose
// rows stay in halves and whose attention has biases.
//
// Their modules have other names in their own code (attention.wqkv, feed_forward.w1); the tree is
// Llama's. No file says InternLM2's dynamic scaling, which begins behind the context that it was
// made for.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                kTreeEnd};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeysInternLm2[] = {kLlamaKeys, kAttentionBiasKeys};
constexpr ConfigAlias kAliases[] = {{"bias", "attention_bias"}};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kInternLm2 = {
    .architecture = "InternLM2ForCausalLM",
    .model_types = "internlm2",
    .gguf_arch = "internlm2",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTree, kKeysInternLm2, kDefaults, kAliases},
};

const Family kXverse = {
    .architecture = "XverseForCausalLM",
    .model_types = "xverse",
    .gguf_arch = "xverse",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kPanguEmbedded = {
    .architecture = "PanguEmbeddedForCausalLM",
    .model_types = "PanguEmbedded pangu_embedded",
    .gguf_arch = "pangu-embedded",
    .bias = BiasKind::Config,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
