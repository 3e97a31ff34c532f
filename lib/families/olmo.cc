// OLMo 2, dense: norms stand behind attention and the feed-forward part instead of before them,
// and those of queries and keys take all heads together. Rotary exists at model level only.
// OLMo 3, which is stored under the same GGUF architecture, has windows besides.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kPostNorms[] = {
    {Role::AttentionPostNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
    {Role::MlpPostNorm,
     "L.post_feedforward_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_ffw_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,     kStem,      kSelfAttention, kGqaProjections, kQkNorms,
    kDenseMlp, kPostNorms, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypes[] = {"olmo2"};
constexpr ConfigKey kWindowKeys[] = {
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,       kHeadKeys,
    kTiedKeys, kWindowKeys, kAttentionBiasKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kOlmo2;
const Family kOlmo2 = {
    .architecture = "Olmo2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "olmo2",
    .prefix = "Olmo2",
    .module_k = "transformers.models.olmo2.modeling_olmo2",
    .module_t = "",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

}  // namespace ktx::families
