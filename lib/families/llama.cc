// Llama 2 and 3, and Mistral's dense models (the same in all but name): grouped-query attention, a
// dense feed-forward part, and one rotary module per layer besides the model's own.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kPlainRoot,      kStem,        kSdpaAttention,
                                                kGqaProjections, kLayerRotary, kDenseMlp,
                                                kLayerNorms,     kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kMlpBiasKeys,
                                                kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kLlama = {
    .architecture = "LlamaForCausalLM",
    .model_types = "llama mistral",
    .gguf_arch = "llama",
    .module_k = "ktransformers.models.modeling_llama",
    .module_t = "transformers.models.llama.modeling_llama",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults},
    .more_classes = "{P}LinearScalingRotaryEmbedding {P}DynamicNTKScalingRotaryEmbedding",
};

}  // namespace ktx::families
