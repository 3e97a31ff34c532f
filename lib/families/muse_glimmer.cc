// Muse Glimmer: norms before and behind each part, of which those behind have an epsilon of their
// own, a gate of attention's output, and embeddings that are normed. Three of four layers have a
// window and are rotated, the others neither. Queries and keys are normed without weights; files
// have a weight for each, which holds the factor of the queries (qk_scale_factor), and 1 + w for
// the norms of layers.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRootClass{
    "MuseGlimmerForConditionalGeneration", "transformers.MuseGlimmerForConditionalGeneration",
    "MuseGlimmerPreTrainedModel K.MuseGlimmerPreTrainedModel " KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kPlainNorm{"MuseGlimmerRMSNorm"};
constexpr ClassRow kCenteredNorm{"{P}CenteredRMSNorm"};
constexpr ClassRow kNormedEmbedding{"{P}NormedEmbedding", "",
                                    "torch.nn.modules.sparse.Embedding torch.nn.Embedding"};

constexpr ModuleRow kRoot[] = {
    {Role::Root, "", &kRootClass},
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens", &kNormedEmbedding),
    {Role::EmbeddingNorm, "model.embed_tokens.embed_norm", &kPlainNorm},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
// transformers has one module for both.
constexpr ModuleRow kNormsOfHeads[] = {
    weighted(Role::QNorm, "L.self_attn.qk_norm", &kPlainNorm, "B.attn_q_norm."),
    weighted(Role::KNorm, "L.self_attn.qk_norm_of_keys", &kPlainNorm, "B.attn_k_norm."),
};
constexpr ModuleRow kGate[] = {
    linear(Role::AttentionGateProj, "L.self_attn.gate_proj", "B.attn_gate."),
};
constexpr ModuleRow kNorms[] = {
    weighted(Role::AttentionNorm, "L.input_layernorm", &kCenteredNorm, "B.attn_norm."),
    weighted(Role::AttentionPostNorm, "L.post_attention_layernorm", &kCenteredNorm,
             "B.post_attention_norm."),
    weighted(Role::MlpNorm, "L.pre_feedforward_layernorm", &kCenteredNorm, "B.ffn_norm."),
    weighted(Role::MlpPostNorm, "L.post_feedforward_layernorm", &kCenteredNorm, "B.post_ffw_norm."),
};
constexpr ModuleRow kEnd[] = {
    weighted(Role::FinalNorm, "model.norm", &kPlainNorm, "output_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kGqaAttention, kNormsOfHeads, kGate, kNorms, kDenseMlp, kEnd, kModelRotary, kHead};

constexpr ConfigKey kOwnKeys[] = {
    positive("logit_scale", "logit_scale", "", "0.19611613513818404"),
    amount("final_logit_softcapping", "final_logit_softcapping", "0", "20"),
    {"post_norm_eps", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1e-8", "1e-8"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kWindowKeys,
                                                kRopeScalingKeys, kOwnKeys};
constexpr ConfigAlias kAliases[] = {
    {"output_multiplier", "logit_scale"},
    {"hidden_activation", "hidden_act"},
    {"layer_rope_theta", "no_rope_layers"},  // but for 0 its numbers mean nothing
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"}, {"head_dim", "128"},
    {"sliding_window", "2048"},  {"rms_norm_eps", "1e-5"},
    {"post_norm_eps", "1e-8"},   {"final_logit_softcapping", "20"},
    {"rope_theta", "500000"},    {"logit_scale", "0.19611613513818404"},
};

}  // namespace

const Family kMuseGlimmer = {
    .architecture = "MuseGlimmerForConditionalGeneration",
    .model_types = "muse_glimmer_text muse_glimmer",
    .gguf_arch = "muse-glimmer",
    .prefix = "MuseGlimmerText",
    .module_k = "transformers.models.muse_glimmer.modeling_muse_glimmer",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
