// Seed-OSS: Llama's graph with biases on queries, keys and values, heads that together are wider
// than the residual stream, and rotary at model level only.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,      kStem,        kSelfAttention, kGqaProjections, kDenseMlp, kPostAttentionNorms,
    kFinalNorm, kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"seed_oss"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "true"}, {"attention_out_bias", "false"}, {"mlp_bias", "false"},
    {"head_dim", "128"},        {"rms_norm_eps", "1e-6"},        {"rope_theta", "10000"},
};

}  // namespace

extern const Family kSeedOss;
const Family kSeedOss = {
    .architecture = "SeedOssForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "seed_oss",
    .prefix = "SeedOss",
    .module_k = "transformers.models.seed_oss.modeling_seed_oss",
    .module_t = "",
    .bias = BiasKind::QkvByConfig,
    .mlp_bias = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
