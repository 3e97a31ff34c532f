// EAGLE-3: a head of one layer that drafts what a model will say, from three of its hidden states
// (Li et al., EAGLE-3, 2025). Not a model: it stands in the model's plan as its drafter.
//
//   s = fc . [what layer a reads ; layer b ; layer c]     of the model, for the token before
//   n = [input_layernorm(embedding of the token) ; hidden_norm(s)]
//   x = s + attention(n)       queries, keys and values are products with all of n
//   x = x + mlp(post_attention_layernorm(x))
//   logits = lm_head . norm(x), of fewer tokens than the model has; s of the draft token behind it
//   is x
//
// Some heads norm what fc reads (input_norm), some add to hidden_norm(s) instead of s. The
// embedding, and the head where it is for all tokens, are the model's where the file has none.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kStemOfHead[] = {
    {Role::Root, "", &kForCausalLM},
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens"),
    norm(Role::GivenNorm, "model.input_norm", "enc.output_norm.", When::GivenNorm),
    linear(Role::GivenProj, "model.fc", "fc."),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kNorms[] = {
    norm(Role::PredictionHiddenNorm, "L.hidden_norm", "B.attn_norm_2."),
    norm(Role::PredictionEmbeddingNorm, "L.input_layernorm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.post_attention_layernorm", "B.ffn_norm."),
};
constexpr std::span<const ModuleRow> kTree[] = {kStemOfHead, kGqaAttention, kDenseMlp, kNorms,
                                                kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,  kKvHeadKeys, kMlpKeys,
                                                kModelKeys, kHeadKeys,   kRopeScalingKeys};
constexpr ConfigDefault kDefaults[] = {
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kEagle3 = {
    .architecture = "Eagle3LlamaForCausalLM",
    .model_types = "eagle3",
    .gguf_arch = "eagle3",
    .module_k = "vllm.model_executor.models.llama_eagle3",
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults},
    .draft_head = "EAGLE-3",
};

}  // namespace ktx::families
