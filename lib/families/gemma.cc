// Gemma 1, 2 and 3 (text): GeGLU, embeddings scaled by the square root of their width; from 2 on
// norms before and behind attention and the feed-forward part, and windows. Gemma 3 norms queries
// and keys and rotates layers with a window by a base of their own; Gemma 2 bends scores and logits
// by tanh. GGUFs hold 1 + w for the norms' weights, so that they are plain norms.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kGelu{"transformers.activations.GELUTanh",
                         "GELUTanh transformers.activations.PytorchGELUTanh PytorchGELUTanh"};
constexpr ClassRow kTextModel{"{P}TextModel", "transformers.{P}TextModel", KTX_PRETRAINED};
constexpr ClassRow kTextEmbedding{"{P}TextScaledWordEmbedding", "",
                                  "torch.nn.modules.sparse.Embedding torch.nn.Embedding Embedding"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kScaledStem[] = {
    {Role::Model, "model", &kModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kTextEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kStem3[] = {
    {Role::Model, "model", &kTextModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kTextEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kGeluMlp[] = {
    {Role::Mlp, "L.mlp", &kMlp},
    {Role::GateProj, "L.mlp.gate_proj", &kLinear, When::Always, {{"weight", "B.ffn_gate.weight"}}},
    {Role::UpProj, "L.mlp.up_proj", &kLinear, When::Always, {{"weight", "B.ffn_up.weight"}}},
    {Role::DownProj, "L.mlp.down_proj", &kLinear, When::Always, {{"weight", "B.ffn_down.weight"}}},
    {Role::Activation, "L.mlp.act_fn", &kGelu},
};
constexpr ModuleRow kSandwichNorms[] = {
    {Role::AttentionNorm,
     "L.input_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::AttentionPostNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
    {Role::MlpNorm,
     "L.pre_feedforward_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.ffn_norm.weight"}}},
    {Role::MlpPostNorm,
     "L.post_feedforward_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_ffw_norm.weight"}}},
};
constexpr ModuleRow kRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kRotary},
};
constexpr std::span<const ModuleRow> kTree1[] = {
    kRoot,       kScaledStem, kSelfAttention, kGqaProjections, kGeluMlp,
    kLayerNorms, kFinalNorm,  kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTree2[] = {
    kRoot,          kScaledStem, kSelfAttention, kGqaProjections, kGeluMlp,
    kSandwichNorms, kFinalNorm,  kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot,    kStem3,         kSelfAttention, kGqaProjections, kQkNorms,
    kGeluMlp, kSandwichNorms, kFinalNorm,     kRotaries,       kHead,
};

constexpr const char* kModelTypes1[] = {"gemma"};
constexpr const char* kModelTypes2[] = {"gemma2"};
constexpr const char* kModelTypes3[] = {"gemma3_text"};
constexpr ConfigKey kAlwaysTiedKeys[] = {
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr ConfigKey kSoftcapKeys[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping", KeyRead::Float, KeyKind::Amount,
     KeyWeight::Plain, "", ""},
    {"final_logit_softcapping", "final_logit_softcapping", KeyRead::Float, KeyKind::Amount,
     KeyWeight::Plain, "", ""},
};
constexpr ConfigKey kLocalRopeKeys[] = {
    {"rope_local_base_freq", "rope.freq_base_swa", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "10000", "10000"},
};
constexpr std::span<const ConfigKey> kKeys1[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys, kHeadKeys, kAlwaysTiedKeys, kRopeScalingKeys,
};
constexpr std::span<const ConfigKey> kKeys2[] = {
    kSizeKeys, kKvHeadKeys,     kMlpKeys,    kModelKeys,
    kHeadKeys, kAlwaysTiedKeys, kWindowKeys, kSoftcapKeys,
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys,       kKvHeadKeys, kMlpKeys,     kModelKeys,     kHeadKeys,
    kAlwaysTiedKeys, kWindowKeys, kSoftcapKeys, kLocalRopeKeys, kRopeScalingKeys,
};
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

extern const Family kGemma;
const Family kGemma = {
    .architecture = "GemmaForCausalLM",
    .model_types = kModelTypes1,
    .gguf_arch = "gemma",
    .prefix = "Gemma",
    .module_k = "transformers.models.gemma.modeling_gemma",
    .module_t = "",
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .keys = kKeys1,
    .defaults = kDefaults1,
    .aliases = kAliases1,
    .tree = kTree1,
};

extern const Family kGemma2;
const Family kGemma2 = {
    .architecture = "Gemma2ForCausalLM",
    .model_types = kModelTypes2,
    .gguf_arch = "gemma2",
    .prefix = "Gemma2",
    .module_k = "transformers.models.gemma2.modeling_gemma2",
    .module_t = "",
    .windows = WindowPattern::Period,
    .window_period = 2,
    .wide_scale_layers = 46,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .keys = kKeys2,
    .defaults = kDefaults2,
    .aliases = kAliases,
    .tree = kTree2,
};

extern const Family kGemma3;
const Family kGemma3 = {
    .architecture = "Gemma3ForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "gemma3",
    .prefix = "Gemma3",
    .module_k = "transformers.models.gemma3.modeling_gemma3",
    .module_t = "",
    .windows = WindowPattern::Period,
    .window_period = 6,
    .wide_scale_layers = 62,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .aliases = kAliases,
    .tree = kTree3,
};

}  // namespace ktx::families
