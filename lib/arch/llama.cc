// Llama 2 and 3, and Mistral's dense models (the same in all but name): grouped-query attention, a
// dense feed-forward part, and one rotary module per layer besides the model's own.
#include "lib/arch/tree_rows.h"

namespace ktx::arch {
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
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const ArchDesc kLlama;
const ArchDesc kLlama = {
    .family = "LlamaForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "llama",
    .prefix = "Llama",
    .module_k = "ktransformers.models.modeling_llama",
    .module_t = "transformers.models.llama.modeling_llama",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::arch
