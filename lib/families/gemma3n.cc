// Gemma 3n (text): four residual streams, of which a layer computes one (AltUp), a low-rank product
// beside each attention (LAuReL), a part of the token embedding for each layer, and gates of the
// first layers of which 95 % are left out. The last layers read the keys and values of the last
// layer of their kind that has its own; files hold some for them all the same. Values are normed,
// scores are not scaled. GGUFs hold the norms' weights as they are.
#include "lib/families/gemma_text_rows.h"
#include "lib/families/key_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kTextAltUp{"{P}TextAltUp"};
constexpr ClassRow kTextLaurel{"{P}TextLaurelBlock"};

constexpr ModuleRow kTextStem[] = {
    {Role::Model, "model", &kTextModel},
    embedding("model.embed_tokens", &kScaledEmbedding),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kTextLayer},
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kTextAttention},
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q."),
    norm(Role::QNorm, "L.self_attn.q_norm", "B.attn_q_norm."),
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::OwnKeys),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::OwnKeys),
    norm(Role::KNorm, "L.self_attn.k_norm", "B.attn_k_norm.", When::OwnKeys),
    {Role::VNorm, "L.self_attn.v_norm", &kNorm, When::OwnKeys},
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output."),
};
constexpr ModuleRow kLayerParts[] = {
    {Role::Activation, "L.act_fn", &kGeluTanh},
    {Role::AltUp,
     "L.altup",
     &kTextAltUp,
     When::Always,
     {{"output_scale", "B.altup_correct_scale.weight"}}},
    linear(Role::AltUpCorrectProj, "L.altup.correction_coefs", "B.altup_correct_coef."),
    linear(Role::AltUpPredictProj, "L.altup.prediction_coefs", "B.altup_predict_coef."),
    linear(Role::AltUpRouter, "L.altup.modality_router", "B.altup_router."),
    norm(Role::AltUpRouterNorm, "L.altup.router_norm", "B.altup_router_norm."),
    {Role::Laurel, "L.laurel", &kTextLaurel},
    linear(Role::LaurelDownProj, "L.laurel.linear_left", "B.laurel_l."),
    linear(Role::LaurelUpProj, "L.laurel.linear_right", "B.laurel_r."),
    norm(Role::LaurelNorm, "L.laurel.post_laurel_norm", "B.laurel_post_norm."),
    linear(Role::LayerInputGate, "L.per_layer_input_gate", "B.inp_gate."),
    linear(Role::LayerInputProj, "L.per_layer_projection", "B.proj."),
    norm(Role::LayerInputPostNorm, "L.post_per_layer_input_norm", "B.post_norm."),
};
constexpr ModuleRow kModelParts[] = {
    weighted(Role::LayerEmbedding, "model.embed_tokens_per_layer", &kScaledEmbedding,
             "per_layer_token_embd."),
    linear(Role::LayerInputsProj, "model.per_layer_model_projection", "per_layer_model_proj."),
    norm(Role::LayerInputsNorm, "model.per_layer_projection_norm", "per_layer_proj_norm."),
    {Role::AltUpEmbedProj,
     "model.altup_projections",
     &kModuleList,
     When::Always,
     {{"streams", "altup_proj.weight"}}},
    {Role::AltUpUnembedProj,
     "model.altup_unembed_projections",
     &kModuleList,
     When::Always,
     {{"streams", "altup_unembd_proj.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalRoot, kTextStem,  kSelfAttention, kTextGeluMlp, kSandwichNorms,
    kLayerParts, kFinalNorm, kTwoRotaries,   kModelParts,  kHead};

constexpr ConfigKey kOwnKeys[] = {
    positive("rope_local_base_freq", "rope.freq_base_swa", "10000", "10000"),
    {"attention_multiplier", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1", "1"},
    natural("num_kv_shared_layers", "attention.shared_kv_layers", "", "15"),
    natural("hidden_size_per_layer_input", "embedding_length_per_layer_input", "256", "256"),
    count("altup_num_inputs", "altup.num_inputs", "4", "4"),
    natural("altup_active_idx", "altup.active_idx", "0", "0"),
    {"laurel_rank", "", KeyRead::LaurelRank, KeyKind::Count, KeyWeight::Structural, "", "64"},
    {"activation_sparsity_pattern", "activation_sparsity_scale", KeyRead::SparsityShares,
     KeyKind::Amounts, KeyWeight::Plain, "", ""},
    amount("final_logit_softcapping", "final_logit_softcapping"),
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys,
                                                kHeadKeys, kWindowKeys, kOwnKeys};
constexpr ConfigAlias kAliases[] = {
    {"hidden_activation", "hidden_act"},
    {"vocab_size_per_layer_input", ""},  // files have rows for all tokens
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_multiplier", "1"},
    {"final_logit_softcapping", "30"},
    {"head_dim", "256"},
    {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"hidden_size_per_layer_input", "256"},
    {"altup_active_idx", "0"},
    {"altup_num_inputs", "4"},
    {"laurel_rank", "64"},
    {"num_kv_shared_layers", "15"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "1000000"},
    {"rope_local_base_freq", "10000"},
    {"sliding_window", "512"},
};

}  // namespace

const Family kGemma3n = {
    .architecture = "Gemma3nForCausalLM",
    .model_types = "gemma3n_text",
    .gguf_arch = "gemma3n",
    .module_k = "transformers.models.gemma3n.modeling_gemma3n",
    .windows = WindowPattern::Period,
    .window_period = 5,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
