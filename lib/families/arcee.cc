// Arcee's AFM: Llama with a squared ReLU in the place of the gated unit.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kGatelessMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};

constexpr const char* kModelTypes[] = {"arcee"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,     kModelKeys,       kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
};

}  // namespace

extern const Family kArcee;
const Family kArcee = {
    .architecture = "ArceeForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "arcee",
    .prefix = "Arcee",
    .module_k = "transformers.models.arcee.modeling_arcee",
    .module_t = "",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .gateless = true,
    .unit = UnitFunction::ReluSquared,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
