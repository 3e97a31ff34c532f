// MiniCPM 1, 2 and 4: Llama with constant factors of embeddings, of what attention and feed-forward
// part add, and of logits. Module names are those of the code beside the models' weights. MiniCPM3:
// the same factors with DeepSeek V2's latent attention, of which halves are rotated, by longrope.
#include <cmath>

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kScaledEmbedding3{"{P}ScaledWordEmbedding", "",
                                     "torch.nn.modules.sparse.Embedding torch.nn.Embedding"};

constexpr std::span<const ModuleRow> kTree[] = {kPlainRoot,      kStem,        kSdpaAttention,
                                                kGqaProjections, kLayerRotary, kDenseMlp,
                                                kLayerNorms,     kFinalNorm,   kHead};

// Files of before November 2024 have no factors; those of all models until then were the same.
constexpr ConfigKey kFactorKeys[] = {
    positive("embedding_multiplier", "embedding_scale", "12", "1"),
    positive("residual_multiplier", "residual_scale", "1.4", "1"),
    positive("logits_scaling", "logit_scale", "256", "1"),
};
// A config has what the factors of a file were computed from.
constexpr ConfigAlias kAliases[] = {
    {"scale_emb", "embedding_multiplier"},
    {"scale_depth", "residual_multiplier", "num_hidden_layers",
     [](double depth, double layers) { return depth / std::sqrt(layers); }},
    {"dim_model_base", "logits_scaling", "hidden_size",
     [](double base, double hidden) { return hidden / base; }},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys,
                                                kFactorKeys};

constexpr ModuleRow kStem3[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens", &kScaledEmbedding3),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kCausalRoot, kStem3, kLatentAttention, kMlaProjections, kDenseMlp, kLayerNorms, kTreeEnd};

// No file has the factors; there is one model.
constexpr ConfigKey kFactorKeys3[] = {
    {"embedding_multiplier", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "12", "12"},
    {"residual_multiplier", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1.4",
     "1.4"},
    {"logits_scaling", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "256", "256"},
};
constexpr ConfigKey kLatentKeys3[] = {
    {"q_lora_rank", "attention.q_lora_rank", KeyRead::QLora, KeyKind::CountOrNull,
     KeyWeight::Structural, "null", "768"},
    count("kv_lora_rank", "attention.kv_lora_rank", "", "256"),
    count("qk_rope_head_dim", "rope.dimension_count", "", "32"),
    {"qk_nope_head_dim", "attention.key_length_mla", KeyRead::NopeDim, KeyKind::Count,
     KeyWeight::Structural, "", "64"},
    {"v_head_dim", "attention.value_length_mla", KeyRead::VDim, KeyKind::Count,
     KeyWeight::Structural, "=hidden_size/num_attention_heads", "=hidden_size/num_attention_heads"},
};
constexpr std::span<const ConfigKey> kKeys3[] = {kLatentModelKeys, kAttentionBiasKeys, kLatentKeys3,
                                                 kFactorKeys3};
constexpr ConfigAlias kAliases3[] = {kAliases[0], kAliases[1], kAliases[2], {"head_dim", ""}};
constexpr ConfigDefault kDefaults3[] = {
    {"attention_bias", "false"},    {"rms_norm_eps", "1e-5"},        {"rope_theta", "10000"},
    {"embedding_multiplier", "12"}, {"tie_word_embeddings", "true"},
};

constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},   {"rms_norm_eps", "1e-6"},        {"rope_theta", "10000"},
    {"embedding_multiplier", "1"}, {"tie_word_embeddings", "true"},
};

}  // namespace

const Family kMiniCpm = {
    .architecture = "MiniCPMForCausalLM",
    .model_types = "minicpm",
    .gguf_arch = "minicpm",
    .module_k = "modeling_minicpm",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kMiniCpm3 = {
    .architecture = "MiniCPM3ForCausalLM",
    .model_types = "minicpm3",
    .gguf_arch = "minicpm3",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .rows = {kTree3, kKeys3, kDefaults3, kAliases3},
};

}  // namespace ktx::families
