// Encoders of the BERT kind: tokens see those behind them, norms stand behind the sums, and there
// are no logits. BERT (with bge, e5, MiniLM) and XLM-RoBERTa (bge-m3, bge-reranker-v2-m3) have
// learned positions and no gates; nomic-embed-text rotates and has gates. Some score texts.
//
// No rule files know them: their tree is by the names of decoders.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kModel}};
constexpr ModuleRow kEmbeddings[] = {
    {Role::Model, "model", &kModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
};
constexpr ModuleRow kPositions[] = {
    {Role::PositionEmbedding,
     "model.embed_positions",
     &kEmbedding,
     When::Always,
     {{"weight", "position_embd.weight"}}},
};
constexpr ModuleRow kEmbeddingEnd[] = {
    {Role::TypeEmbedding,
     "model.embed_types",
     &kEmbedding,
     When::TextTypes,
     {{"weight", "token_types.weight"}}},
    {Role::EmbeddingNorm,
     "model.embed_norm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "token_embd_norm.weight"}, {"bias", "token_embd_norm.bias"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
    {Role::Attention, "L.self_attn", &kAttention},
};
constexpr ModuleRow kPlainOutput[] = {
    {Role::QProj, "L.self_attn.q_proj", &kLinear, When::Always, {{"weight", "B.attn_q.weight"}}},
    {Role::KProj, "L.self_attn.k_proj", &kLinear, When::Always, {{"weight", "B.attn_k.weight"}}},
    {Role::VProj, "L.self_attn.v_proj", &kLinear, When::Always, {{"weight", "B.attn_v.weight"}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}}},
};
constexpr ModuleRow kBiasedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::UpProj,
     "L.mlp.up_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_up.weight"}, {"bias", "B.ffn_up.bias"}}},
    {Role::DownProj,
     "L.mlp.down_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down.weight"}, {"bias", "B.ffn_down.bias"}}},
};
constexpr ModuleRow kSumNorms[] = {
    {Role::AttentionSumNorm,
     "L.attention_norm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.attn_output_norm.weight"}, {"bias", "B.attn_output_norm.bias"}}},
    {Role::MlpSumNorm,
     "L.output_norm",
     &kTorchLayerNorm,
     When::Always,
     {{"weight", "B.layer_output_norm.weight"}, {"bias", "B.layer_output_norm.bias"}}},
};
constexpr ModuleRow kTextScores[] = {
    {Role::ScoreDense,
     "score_dense",
     &kLinear,
     When::ScoreDense,
     {{"weight", "cls.weight"}, {"bias", "cls.bias"}}},
    {Role::ScoreHead,
     "score",
     &kLinear,
     When::Scores,
     {{"weight", "cls.output.weight"}, {"bias", "cls.output.bias"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,         kEmbeddings, kPositions, kEmbeddingEnd, kBiasedQkv,
    kBiasedOutput, kBiasedMlp,  kSumNorms,  kTextScores,
};
constexpr std::span<const ModuleRow> kTreeNomic[] = {
    kRoot, kEmbeddings, kEmbeddingEnd, kPlainOutput, kDenseMlp, kSumNorms, kModelRotary,
};

constexpr ConfigKey kEncoderKeys[] = {
    {"vocab_size", "vocab_size", KeyRead::Vocab, KeyKind::Count, KeyWeight::Structural, "", ""},
    {"max_position_embeddings", "context_length", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "", ""},
    {"layer_norm_eps", "attention.layer_norm_epsilon", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "", "1e-12"},
    {"type_vocab_size", "", KeyRead::TypeCount, KeyKind::Natural, KeyWeight::Plain, "0", "0"},
    {"score_dense", "", KeyRead::ScoreDense, KeyKind::Flag, KeyWeight::Plain, "false", "false"},
};
constexpr ConfigKey kNomicRope[] = {
    {"rope_theta", "rope.freq_base", KeyRead::Float, KeyKind::Positive, KeyWeight::Plain, "10000",
     "10000"},
};
constexpr const char* kModelTypes[] = {"bert", "xlm-roberta", "roberta", "camembert", "distilbert"};
constexpr const char* kModelTypesNomic[] = {"nomic_bert"};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kMlpKeys, kEncoderKeys, kScoreKeys};
constexpr std::span<const ConfigKey> kKeysNomic[] = {
    kSizeKeys, kMlpKeys, kEncoderKeys, kNomicRope, kScoreKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {
    // DistilBERT's
    {"dim", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"n_heads", "num_attention_heads"},
    {"hidden_dim", "intermediate_size"},
    {"activation", "hidden_act"},
};
constexpr ConfigAlias kAliasesNomic[] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"layer_norm_epsilon", "layer_norm_eps"},
    {"rotary_emb_base", "rope_theta"},
    {"activation_function", ""},
};
constexpr ConfigDefault kDefaults[] = {{"layer_norm_eps", "1e-12"}};

}  // namespace

extern const Family kBert;
const Family kBert = {
    .architecture = "BertModel",
    .model_types = kModelTypes,
    .gguf_arch = "bert",
    .prefix = "Bert",
    .module_k = "transformers.models.bert.modeling_bert",
    .module_t = "",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .encoder = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kNomicBert;
const Family kNomicBert = {
    .architecture = "NomicBertModel",
    .model_types = kModelTypesNomic,
    .gguf_arch = "nomic-bert",
    .prefix = "NomicBert",
    .module_k = "transformers.models.nomic_bert.modeling_nomic_bert",
    .module_t = "",
    .layer_norms = true,
    .encoder = true,
    .keys = kKeysNomic,
    .defaults = kDefaults,
    .aliases = kAliasesNomic,
    .tree = kTreeNomic,
};

}  // namespace ktx::families
