// BLOOM of 2022: no positions, scores of attention fall with the distance; layer norms, the first
// of them of the embedding, biases everywhere, gelu without a gate. A GGUF has the rows of queries,
// keys and values one behind the other, the model by heads.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

#define KTX_BLOCK "transformer.h.{layer}"
constexpr ClassRow kBlock{"{P}Block"};
constexpr ClassRow kGelu{"{P}Gelu"};
constexpr ModuleRow kRows[] = {
    {Role::Model, "transformer", &kModel},
    embedding("transformer.word_embeddings"),
    layer_norm(Role::EmbeddingNorm, "transformer.word_embeddings_layernorm", "token_embd_norm."),
    {Role::LayerList, "transformer.h", &kModuleList},
    {Role::Layer, KTX_BLOCK, &kBlock},
    layer_norm(Role::AttentionNorm, KTX_BLOCK ".input_layernorm", "B.attn_norm."),
    {Role::Attention, KTX_BLOCK ".self_attention", &kAttention},
    linear(Role::QkvProj, KTX_BLOCK ".self_attention.query_key_value", "B.attn_qkv.", When::Always,
           When::Always),
    linear(Role::OProj, KTX_BLOCK ".self_attention.dense", "B.attn_output.", When::Always,
           When::Always),
    layer_norm(Role::MlpNorm, KTX_BLOCK ".post_attention_layernorm", "B.ffn_norm."),
    {Role::Mlp, KTX_BLOCK ".mlp", &kMlp},
    linear(Role::UpProj, KTX_BLOCK ".mlp.dense_h_to_4h", "B.ffn_up.", When::Always, When::Always),
    {Role::Activation, KTX_BLOCK ".mlp.gelu_impl", &kGelu},
    linear(Role::DownProj, KTX_BLOCK ".mlp.dense_4h_to_h", "B.ffn_down.", When::Always,
           When::Always),
    layer_norm(Role::FinalNorm, "transformer.ln_f", "output_norm."),
};
#undef KTX_BLOCK
constexpr std::span<const ModuleRow> kTree[] = {kCausalRoot, kRows, kHead};

constexpr ConfigKey kOwnModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-5"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys, kMlpKeys, kOwnModelKeys,
                                                kTiedKeys};
constexpr ConfigAlias kAliases[] = {
    {"n_embed", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"seq_length", "max_position_embeddings"},
    {"layer_norm_epsilon", "layer_norm_eps"},
};
constexpr ConfigDefault kDefaults[] = {{"layer_norm_eps", "1e-5"},
                                       {"tie_word_embeddings", "true"},
                                       {"intermediate_size", "4*hidden_size"}};

}  // namespace

const Family kBloom = {
    .architecture = "BloomForCausalLM",
    .model_types = "bloom",
    .gguf_arch = "bloom",
    .alibi = 8,
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluTanh,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
