// MiniCPM 1, 2 and 4: Llama with constant factors of embeddings, of what attention and feed-forward
// part add, and of logits. Module names are those of the code beside the models' weights.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kPlainRoot,      kStem,        kSdpaAttention,
                                                kGqaProjections, kLayerRotary, kDenseMlp,
                                                kLayerNorms,     kFinalNorm,   kHead};

// Files of before November 2024 have no factors; those of all models until then were the same.
constexpr ConfigKey kFactorKeys[] = {
    positive("embedding_multiplier", "embedding_scale", "12", "1"),
    {"scale_depth", "residual_scale", KeyRead::DepthScale, KeyKind::Positive, KeyWeight::Plain,
     "1.4", "1"},
    {"dim_model_base", "logit_scale", KeyRead::ModelBase, KeyKind::Count, KeyWeight::Plain, "256",
     "1"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys,
                                                kFactorKeys};
constexpr ConfigAlias kAliases[] = {{"scale_emb", "embedding_multiplier"}};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},     {"rms_norm_eps", "1e-6"}, {"rope_theta", "10000"},
    {"embedding_multiplier", "1"},   {"scale_depth", "1"},     {"dim_model_base", "1"},
    {"tie_word_embeddings", "true"},
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

}  // namespace ktx::families
