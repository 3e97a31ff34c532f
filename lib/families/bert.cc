// Encoders of the BERT kind: tokens see those behind them, norms stand behind the sums, and there
// are no logits. BERT (with bge, e5, MiniLM) and XLM-RoBERTa (bge-m3, bge-reranker-v2-m3) have
// learned positions and no gates; nomic-embed-text rotates and has gates, jina-embeddings-v3
// rotates and has none. Some score texts. ModernBERT's norms stand before each part, but for that
// of the first attention, which reads the normed embedding; most of its layers have a window.
// jina-embeddings-v2 has no positions: scores of attention fall with the distance. Its models for
// code are not loaded. They norm queries and keys and have a second norm behind attention, and
// their GGUFs have the halves of gate and up in another order than llama.cpp computes them in.
//
// No rule files know them: their tree is by the names of decoders.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kModel}};
constexpr ModuleRow kEmbeddings[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens"),
};
constexpr ModuleRow kPositions[] = {
    weighted(Role::PositionEmbedding, "model.embed_positions", &kEmbedding, "position_embd."),
};
constexpr ModuleRow kEmbeddingEnd[] = {
    weighted(Role::TypeEmbedding, "model.embed_types", &kEmbedding, "token_types.",
             When::TextTypes),
    layer_norm(Role::EmbeddingNorm, "model.embed_norm", "token_embd_norm."),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
    {Role::Attention, "L.self_attn", &kAttention},
};
constexpr ModuleRow kPlainOutput[] = {
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q."),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k."),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v."),
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output."),
};
constexpr ModuleRow kBiasedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up.", When::Always, When::Always),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Always, When::Always),
};
constexpr ModuleRow kSumNorms[] = {
    layer_norm(Role::AttentionSumNorm, "L.attention_norm", "B.attn_output_norm."),
    layer_norm(Role::MlpSumNorm, "L.output_norm", "B.layer_output_norm."),
};
constexpr ModuleRow kTextScores[] = {
    linear(Role::ScoreDense, "score_dense", "cls.", When::ScoreDense, When::Always),
    linear(Role::ScoreHead, "score", "cls.output.", When::Scores, When::Always),
};
constexpr std::span<const ModuleRow> kTree[] = {kRoot,         kEmbeddings, kPositions,
                                                kEmbeddingEnd, kBiasedQkv,  kBiasedOutput,
                                                kBiasedMlp,    kSumNorms,   kTextScores};
constexpr std::span<const ModuleRow> kTreeNomic[] = {
    kRoot, kEmbeddings, kEmbeddingEnd, kPlainOutput, kDenseMlp, kSumNorms, kModelRotary};

constexpr std::span<const ModuleRow> kTreeJina3[] = {kRoot,      kEmbeddings,   kEmbeddingEnd,
                                                     kBiasedQkv, kBiasedOutput, kBiasedMlp,
                                                     kSumNorms,  kModelRotary};

constexpr ModuleRow kGatedMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::GateUpProj, "L.mlp.gate_up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Always, When::Always),
};
constexpr std::span<const ModuleRow> kTreeJina2[] = {
    kRoot, kEmbeddings, kEmbeddingEnd, kBiasedQkv, kBiasedOutput, kGatedMlp, kSumNorms};

constexpr ModuleRow kModernLayer[] = {
    weighted(Role::EmbeddingNorm, "model.embed_norm", &kTorchLayerNorm, "token_embd_norm."),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
    weighted(Role::AttentionNorm, "L.attention_norm", &kTorchLayerNorm, "B.attn_norm.",
             When::BehindFirst),
    {Role::Attention, "L.self_attn", &kAttention},
};
constexpr ModuleRow kModernMlp[] = {
    weighted(Role::MlpNorm, "L.mlp_norm", &kTorchLayerNorm, "B.ffn_norm."),
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::GateUpProj, "L.mlp.gate_up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    weighted(Role::FinalNorm, "model.norm", &kTorchLayerNorm, "output_norm."),
};
constexpr std::span<const ModuleRow> kTreeModern[] = {kRoot,        kEmbeddings, kModernLayer,
                                                      kPlainOutput, kModernMlp,  kTwoRotaries};

constexpr ConfigKey kEncoderKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-12"),
    {"type_vocab_size", "", KeyRead::TypeCount, KeyKind::Natural, KeyWeight::Plain, "0", "0"},
    {"score_dense", "", KeyRead::ScoreDense, KeyKind::Flag, KeyWeight::Plain, "false", "false"},
};
constexpr ConfigKey kNomicRope[] = {
    positive("rope_theta", "rope.freq_base", "10000", "10000"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kMlpKeys, kEncoderKeys, kScoreKeys};
constexpr std::span<const ConfigKey> kKeysNomic[] = {kSizeKeys,  kMlpKeys,   kEncoderKeys,
                                                     kNomicRope, kScoreKeys, kRopeScalingKeys};
constexpr ConfigKey kJina2Keys[] = {
    {"hidden_act", "hidden_act", KeyRead::Text, KeyKind::Text, KeyWeight::Plain, "gelu", "gelu"},
    {"qk_layernorm", "", KeyRead::QkNorm, KeyKind::Flag, KeyWeight::Plain, "false", "false"},
};
constexpr std::span<const ConfigKey> kKeysJina2[] = {kSizeKeys, kMlpKeys, kEncoderKeys, kJina2Keys,
                                                     kScoreKeys};
constexpr ConfigKey kModernKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_epsilon", "", "1e-5"),
    positive("rope_theta", "rope.freq_base", "10000", "160000"),
    positive("rope_local_base_freq", "rope.freq_base_swa", "10000", "10000"),
    {"hidden_act", "hidden_act", KeyRead::Text, KeyKind::Text, KeyWeight::Plain, "gelu", "gelu"},
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "0", "128"},
    {"layer_types", "attention.sliding_window_pattern", KeyRead::LayerTypesFromFull, KeyKind::Texts,
     KeyWeight::Structural, "=windows", "=windows"},
};
constexpr std::span<const ConfigKey> kKeysModern[] = {kSizeKeys, kMlpKeys, kModernKeys, kScoreKeys};
constexpr ConfigAlias kAliasesModern[] = {
    {"norm_eps", "layer_norm_eps"},        {"hidden_activation", "hidden_act"},
    {"local_attention", "sliding_window"}, {"global_attn_every_n_layers", "sliding_window_pattern"},
    {"global_rope_theta", "rope_theta"},   {"local_rope_theta", "rope_local_base_freq"},
};
constexpr ConfigDefault kDefaultsModern[] = {
    {"hidden_act", "\"gelu\""}, {"layer_norm_eps", "1e-5"}, {"rope_local_base_freq", "10000"},
    {"rope_theta", "160000"},   {"sliding_window", "128"},
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
constexpr ConfigAlias kAliasesJina3[] = {{"rotary_emb_base", "rope_theta"}};
constexpr ConfigDefault kDefaultsJina3[] = {{"layer_norm_eps", "1e-5"}, {"rope_theta", "20000"}};

}  // namespace

const Family kBert = {
    .architecture = "BertModel",
    .model_types = "bert xlm-roberta roberta camembert distilbert",
    .gguf_arch = "bert",
    .prefix = "Bert",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .encoder = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kNomicBert = {
    .architecture = "NomicBertModel",
    .model_types = "nomic_bert",
    .gguf_arch = "nomic-bert",
    .prefix = "NomicBert",
    .layer_norms = true,
    .encoder = true,
    .rows = {kTreeNomic, kKeysNomic, kDefaults, kAliasesNomic},
};

const Family kJinaEmbeddingsV3 = {
    .architecture = "JinaEmbeddingsV3Model",
    .model_types = "jina_embeddings_v3",
    .gguf_arch = "jina-bert-v3",
    .prefix = "JinaEmbeddingsV3",
    .layer_norms = true,
    .gateless = true,
    .unit = UnitFunction::GeluErf,
    .encoder = true,
    .rows = {kTreeJina3, kKeysNomic, kDefaultsJina3, kAliasesJina3},
};

const Family kJinaBertV2 = {
    .architecture = "JinaBertModel",
    .model_types = "jina_bert_v2",
    .gguf_arch = "jina-bert-v2",
    .prefix = "JinaBert",
    .alibi = 8,
    .layer_norms = true,
    .encoder = true,
    .rows = {kTreeJina2, kKeysJina2, kDefaults},
};

const Family kModernBert = {
    .architecture = "ModernBertModel",
    .model_types = "modernbert",
    .gguf_arch = "modern-bert",
    .prefix = "ModernBert",
    .windows = WindowPattern::PeriodFromFull,
    .window_period = 3,
    .layer_norms = true,
    .encoder = true,
    .rows = {kTreeModern, kKeysModern, kDefaultsModern, kAliasesModern},
};

}  // namespace ktx::families
