// Command R (Cohere) and Command R7B, Command A (Cohere 2): one layer norm without bias, which
// attention and the feed-forward part both read; pairs (2i, 2i + 1) are rotated; logits times a
// factor. Command R+ norms queries and keys, each head by weights of its own. In Cohere 2 every
// fourth layer sees the whole context and is not rotated; the other layers have a window.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kOwnNorm{"{P}LayerNorm"};
constexpr ModuleRow kOneNorm[] = {
    weighted(Role::AttentionNorm, "L.input_layernorm", &kOwnNorm, "B.attn_norm."),
};
constexpr ModuleRow kOwnFinalNorm[] = {
    weighted(Role::FinalNorm, "model.norm", &kOwnNorm, "output_norm."),
};
constexpr ModuleRow kHeadNorms[] = {
    weighted(Role::QNorm, "L.self_attn.q_norm", &kOwnNorm, "B.attn_q_norm.", When::QkNorm),
    weighted(Role::KNorm, "L.self_attn.k_norm", &kOwnNorm, "B.attn_k_norm.", When::QkNorm),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,   kSdpaAttention, kGqaProjections,
                                                kHeadNorms,    kDenseMlp,      kOneNorm,
                                                kOwnFinalNorm, kModelRotary,   kHead};
constexpr std::span<const ModuleRow> kTree2[] = {kCausalStem,  kSdpaAttention, kGqaProjections,
                                                 kDenseMlp,    kOneNorm,       kOwnFinalNorm,
                                                 kModelRotary, kHead};

constexpr ConfigKey kLogitKeys[] = {
    positive("logit_scale", "logit_scale", "", "0.0625"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kLogitKeys,  kQkNormKeys, kAttentionBiasKeys,  kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kLogitKeys,  kWindowKeys, kAttentionBiasKeys,  kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},      {"rope_theta", "10000"},  {"logit_scale", "0.0625"},
    {"tie_word_embeddings", "true"}, {"use_qk_norm", "false"}, {"attention_bias", "false"},
};

}  // namespace

const Family kCohere = {
    .architecture = "CohereForCausalLM",
    .model_types = "cohere",
    .gguf_arch = "command-r",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::EachHead,
    .interleaved_rope = true,
    .layer_norms = true,
    .rows = {kTree, kKeys, kDefaults},
};

const Family kCohere2 = {
    .architecture = "Cohere2ForCausalLM",
    .model_types = "cohere2",
    .gguf_arch = "cohere2",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .layer_norms = true,
    .rows = {kTree2, kKeys2, kDefaults},
};

}  // namespace ktx::families
