// SmolLM3: Llama without rotation in every fourth layer.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};

constexpr const char* kModelTypes[] = {"smollm3"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},     {"mlp_bias", "false"},    {"tie_word_embeddings", "true"},
    {"use_sliding_window", "false"}, {"rms_norm_eps", "1e-6"}, {"rope_theta", "2000000"},
};

}  // namespace

extern const Family kSmolLm3;
const Family kSmolLm3 = {
    .architecture = "SmolLM3ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "smollm3",
    .prefix = "SmolLM3",
    .module_k = "transformers.models.smollm3.modeling_smollm3",
    .module_t = "",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .unrotated_period = 4,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
