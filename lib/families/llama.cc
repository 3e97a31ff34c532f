// Llama 2 and 3, and Mistral's dense models (the same in all but name): grouped-query attention, a
// dense feed-forward part, and one rotary module per layer besides the model's own.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLM}};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kAttentionFlashSdpa},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,     kStem,       kSelfAttention, kGqaProjections, kLayerRotary,
    kDenseMlp, kLayerNorms, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypes[] = {"llama", "mistral"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kLlama;
const Family kLlama = {
    .architecture = "LlamaForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "llama",
    .prefix = "Llama",
    .module_k = "ktransformers.models.modeling_llama",
    .module_t = "transformers.models.llama.modeling_llama",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
    .more_classes = "{P}LinearScalingRotaryEmbedding {P}DynamicNTKScalingRotaryEmbedding",
};

}  // namespace ktx::families
