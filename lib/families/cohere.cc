// Command R (Cohere) and Command R7B, Command A (Cohere 2): one layer norm without bias, which
// attention and the feed-forward part both read; pairs (2i, 2i + 1) are rotated; logits times a
// factor. Command R+ norms queries and keys, each head by weights of its own. Of Cohere 2's layers
// every fourth sees the whole context and is not rotated, the others have a window.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kOwnNorm{"{P}LayerNorm"};
constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttentionFlashSdpa}};
constexpr ModuleRow kOneNorm[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kOwnNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
};
constexpr ModuleRow kOwnFinalNorm[] = {
    {Role::FinalNorm, "model.norm", &kOwnNorm, When::Always, {{"weight", "output_norm.weight"}}},
};
constexpr ModuleRow kHeadNorms[] = {
    {Role::QNorm,
     "L.self_attn.q_norm",
     &kOwnNorm,
     When::QkNorm,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.self_attn.k_norm",
     &kOwnNorm,
     When::QkNorm,
     {{"weight", "B.attn_k_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,     kStem,    kSelfAttention, kGqaProjections, kHeadNorms,
    kDenseMlp, kOneNorm, kOwnFinalNorm,  kModelRotary,    kHead,
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot,    kStem,         kSelfAttention, kGqaProjections, kDenseMlp,
    kOneNorm, kOwnFinalNorm, kModelRotary,   kHead,
};

constexpr ConfigKey kLogitKeys[] = {
    {"logit_scale", "logit_scale", KeyRead::Float, KeyKind::Positive, KeyWeight::Plain, "",
     "0.0625"},
};
constexpr const char* kModelTypes[] = {"cohere"};
constexpr const char* kModelTypes2[] = {"cohere2"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kLogitKeys,  kQkNormKeys, kRopeScalingKeys,
};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kLogitKeys,  kWindowKeys, kRopeScalingKeys,
};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},      {"rope_theta", "10000"},  {"logit_scale", "0.0625"},
    {"tie_word_embeddings", "true"}, {"use_qk_norm", "false"},
};

}  // namespace

extern const Family kCohere;
const Family kCohere = {
    .architecture = "CohereForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "command-r",
    .prefix = "Cohere",
    .module_k = "transformers.models.cohere.modeling_cohere",
    .module_t = "",
    .qk_norm = QkNormKind::EachHead,
    .interleaved_rope = true,
    .layer_norms = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

extern const Family kCohere2;
const Family kCohere2 = {
    .architecture = "Cohere2ForCausalLM",
    .model_types = kModelTypes2,
    .gguf_arch = "cohere2",
    .prefix = "Cohere2",
    .module_k = "transformers.models.cohere2.modeling_cohere2",
    .module_t = "",
    .interleaved_rope = true,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .layer_norms = true,
    .keys = kKeys2,
    .defaults = kDefaults,
    .tree = kTree2,
};

}  // namespace ktx::families
