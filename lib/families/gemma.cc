// Gemma 1, 2 and 3 (text): GeGLU, embeddings scaled by the square root of their width; from 2 on
// norms before and behind attention and the feed-forward part, and windows. Gemma 3 norms queries
// and keys and rotates layers with a window by a base of their own; Gemma 2 bends scores and logits
// by tanh. EmbeddingGemma is a Gemma 3 whose tokens see those behind them, with two linears behind
// its pooling. GGUFs hold 1 + w for the norms' weights, so that they are plain norms.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kScaledStem[] = {
    {Role::Model, "model", &kModel},
    embedding("model.embed_tokens", &kScaledEmbedding),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kStem3[] = {
    {Role::Model, "model", &kTextModel},
    embedding("model.embed_tokens", &kScaledEmbedding),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kGeluMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    linear(Role::GateProj, "L.mlp.gate_proj", "B.ffn_gate."),
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    {Role::Activation, "L.mlp.act_fn", &kGeluTanh},
};
constexpr ModuleRow kTextRoot[] = {{Role::Root, "", &kTextModel}};
// Without an activation between them, so that it is all the same whether they come before pooling.
constexpr ModuleRow kTextDense[] = {
    linear(Role::TextUpProj, "dense_2", "dense_2.", When::TextDense),
    linear(Role::TextDownProj, "dense_3", "dense_3.", When::TextDense),
};
constexpr std::span<const ModuleRow> kTree1[] = {kCausalRoot, kScaledStem, kGqaAttention,
                                                 kGeluMlp,    kLayerNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTree2[] = {kCausalRoot, kScaledStem,    kGqaAttention,
                                                 kGeluMlp,    kSandwichNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTree3[] = {kCausalRoot, kStem3,       kGqaAttention,
                                                 kQkNorms,    kGeluMlp,     kSandwichNorms,
                                                 kFinalNorm,  kTwoRotaries, kHead};

constexpr std::span<const ModuleRow> kTreeText[] = {kTextRoot,  kStem3,       kGqaAttention,
                                                    kQkNorms,   kGeluMlp,     kSandwichNorms,
                                                    kFinalNorm, kTwoRotaries, kTextDense};

constexpr ConfigKey kAlwaysTiedKeys[] = {
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr ConfigKey kSoftcapKeys[] = {
    amount("attn_logit_softcapping", "attn_logit_softcapping"),
    amount("final_logit_softcapping", "final_logit_softcapping"),
};
constexpr ConfigKey kLocalRopeKeys[] = {
    positive("rope_local_base_freq", "rope.freq_base_swa", "10000", "10000"),
};
constexpr std::span<const ConfigKey> kKeys1[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys, kHeadKeys, kAlwaysTiedKeys, kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeys2[] = {kSizeKeys,   kKvHeadKeys, kMlpKeys,
                                                 kModelKeys,  kHeadKeys,   kAlwaysTiedKeys,
                                                 kWindowKeys, kSoftcapKeys};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys,       kKvHeadKeys, kMlpKeys,     kModelKeys,     kHeadKeys,
    kAlwaysTiedKeys, kWindowKeys, kSoftcapKeys, kLocalRopeKeys, kRopeScalingKeys};
constexpr ConfigKey kTextDenseKeys[] = {
    {"text_dense_width", "", KeyRead::TextDense, KeyKind::Natural, KeyWeight::Structural, "0", "0"},
};
constexpr std::span<const ConfigKey> kKeysText[] = {
    kSizeKeys,   kKvHeadKeys,    kMlpKeys,         kModelKeys, kHeadKeys,
    kWindowKeys, kLocalRopeKeys, kRopeScalingKeys, kScoreKeys, kTextDenseKeys};
constexpr ConfigAlias kAliases[] = {
    {"hidden_activation", "hidden_act"},
    {"_sliding_window_pattern", "sliding_window_pattern"},
};
// The first configs say "gelu" and mean its tanh form.
constexpr ConfigAlias kAliases1[] = {{"hidden_act", ""}, {"hidden_activation", ""}};
constexpr ConfigDefault kDefaults1[] = {
    {"head_dim", "256"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults2[] = {
    {"head_dim", "256"},        {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"rms_norm_eps", "1e-6"},   {"rope_theta", "10000"},
    {"sliding_window", "4096"},
};
constexpr ConfigDefault kDefaults3[] = {
    {"head_dim", "256"},       {"hidden_act", "\"gelu_pytorch_tanh\""}, {"rms_norm_eps", "1e-6"},
    {"rope_theta", "1000000"}, {"rope_local_base_freq", "10000"},
};

}  // namespace

const Family kGemma = {
    .architecture = "GemmaForCausalLM",
    .model_types = "gemma",
    .gguf_arch = "gemma",
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .rows = {kTree1, kKeys1, kDefaults1, kAliases1},
};

const Family kGemma2 = {
    .architecture = "Gemma2ForCausalLM",
    .model_types = "gemma2",
    .gguf_arch = "gemma2",
    .windows = WindowPattern::Period,
    .window_period = 2,
    .wide_scale_layers = 46,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .rows = {kTree2, kKeys2, kDefaults2, kAliases},
};

const Family kGemma3 = {
    .architecture = "Gemma3ForCausalLM",
    .model_types = "gemma3_text",
    .gguf_arch = "gemma3",
    .module_k = "transformers.models.gemma3.modeling_gemma3",
    .windows = WindowPattern::Period,
    .window_period = 6,
    .wide_scale_layers = 62,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .rows = {kTree3, kKeys3, kDefaults3, kAliases},
};

const Family kEmbeddingGemma = {
    .architecture = "Gemma3TextModel",
    .model_types = "gemma3_embedding",
    .gguf_arch = "gemma-embedding",
    .prefix = "Gemma3",
    .module_k = "transformers.models.gemma3.modeling_gemma3",
    .windows = WindowPattern::Period,
    .window_period = 6,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .encoder = true,
    .rows = {kTreeText, kKeysText, kDefaults3, kAliases},
};

}  // namespace ktx::families
