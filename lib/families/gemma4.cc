// Gemma 4 (text), dense, with experts beside the dense part, and with a part of the token embedding
// for each layer (E2B, E4B). Layers with a window have narrower heads than the others, whose rotary
// table turns the first pairs alone and whose values may be the key projection. Values are normed,
// scores are not scaled, and each layer's output is multiplied by a number of its own. The last
// layers may read the keys and values of the last layer of their kind before them.
#include "lib/families/gemma_text_rows.h"
#include "lib/families/key_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kTextRotary{"{P}TextRotaryEmbedding"};
constexpr ClassRow kTextRouter{"{P}TextRouter"};
constexpr ClassRow kTextExperts{"{P}TextExperts"};

constexpr ModuleRow kTextStem[] = {
    {Role::Model, "model", &kTextModel},
    embedding("model.embed_tokens", &kScaledEmbedding),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer,
     "model.layers.{layer}",
     &kTextLayer,
     When::Always,
     {{"output_scale", "B.layer_output_scale.weight"}}},
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kTextAttention},
    linear(Role::QProj, "L.self_attn.q_proj", "B.attn_q.", When::Always, When::QkvBias),
    norm(Role::QNorm, "L.self_attn.q_norm", "B.attn_q_norm."),
    norm(Role::KNorm, "L.self_attn.k_norm", "B.attn_k_norm.", When::OwnKeys),
    {Role::VNorm, "L.self_attn.v_norm", &kNorm, When::OwnKeys},
    linear(Role::KProj, "L.self_attn.k_proj", "B.attn_k.", When::OwnKeys, When::QkvBias),
    linear(Role::VProj, "L.self_attn.v_proj", "B.attn_v.", When::OwnValues, When::QkvBias),
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::Always, When::AttentionBias),
};
constexpr ModuleRow kLayerInput[] = {
    {Role::Activation, "L.act_fn", &kGeluTanh, When::LayerInputs},
    linear(Role::LayerInputGate, "L.per_layer_input_gate", "B.inp_gate.", When::LayerInputs),
    linear(Role::LayerInputProj, "L.per_layer_projection", "B.proj.", When::LayerInputs),
    norm(Role::LayerInputPostNorm, "L.post_per_layer_input_norm", "B.post_norm.",
         When::LayerInputs),
};
constexpr ModuleRow kExpertsBeside[] = {
    {Role::RouterBlock, "L.router", &kTextRouter, When::Moe},
    norm(Role::RouterNorm, "L.router.norm", "B.ffn_gate_inp.scale", When::Moe),
    router("L.router.proj", &kLinear, When::Moe),
    experts("L.experts", &kTextExperts, When::Moe),
    norm(Role::DensePostNorm, "L.post_feedforward_layernorm_1", "B.post_ffw_norm_1.", When::Moe),
    norm(Role::ExpertsPostNorm, "L.post_feedforward_layernorm_2", "B.post_ffw_norm_2.", When::Moe),
    norm(Role::ExpertsNorm, "L.pre_feedforward_layernorm_2", "B.pre_ffw_norm_2.", When::Moe),
};
constexpr ModuleRow kRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kTextRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kTextRotary},
};
constexpr ModuleRow kLayerInputs[] = {
    weighted(Role::LayerEmbedding, "model.embed_tokens_per_layer", &kScaledEmbedding,
             "per_layer_token_embd.", When::LayerInputs),
    linear(Role::LayerInputsProj, "model.per_layer_model_projection", "per_layer_model_proj.",
           When::LayerInputs),
    norm(Role::LayerInputsNorm, "model.per_layer_projection_norm", "per_layer_proj_norm.",
         When::LayerInputs),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalRoot,    kTextStem,  kSelfAttention, kTextGeluMlp, kSandwichNorms, kLayerInput,
    kExpertsBeside, kFinalNorm, kRotaries,      kLayerInputs, kHead};

// key_length is that of layers without a window, whose number of heads may differ, too.
constexpr ConfigKey kHeadKeys4[] = {
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "", "512"},
    {"layer_types", "attention.sliding_window_pattern", KeyRead::LayerTypes, KeyKind::Texts,
     KeyWeight::Structural, "=windows", "=windows"},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LocalCounts, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
    {"num_global_key_value_heads", "attention.head_count_kv", KeyRead::GlobalCounts, KeyKind::Count,
     KeyWeight::Structural, "=num_key_value_heads", "=num_key_value_heads"},
    count("head_dim", "attention.key_length_swa", "256", "256"),
    count("global_head_dim", "attention.key_length", "512", "512"),
    {"local_rotary_dim", "rope.dimension_count_swa", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "=head_dim", "=head_dim"},
    positive("rope_local_base_freq", "rope.freq_base_swa", "10000", "10000"),
    {"rope_scaling.rope_type", "", KeyRead::ProportionalRope, KeyKind::Text, KeyWeight::Plain,
     "default", "proportional"},
    {"attention_multiplier", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1", "1"},
    {"attention_k_eq_v", "", KeyRead::KeysAsValues, KeyKind::Flag, KeyWeight::Structural, "false",
     "false"},
    natural("num_kv_shared_layers", "attention.shared_kv_layers", "0", "0"),
};
constexpr ConfigKey kMlpKeys4[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::FirstCount, KeyKind::Count,
     KeyWeight::Structural, "", "9216"},
    {"use_double_wide_mlp", "feed_forward_length", KeyRead::DoubleShared, KeyKind::Flag,
     KeyWeight::Structural, "false", "false"},
    natural("hidden_size_per_layer_input", "embedding_length_per_layer_input", "0", "256"),
};
constexpr ConfigKey kMlpKeysUnified[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::FirstCount, KeyKind::Count,
     KeyWeight::Structural, "", "9216"},
    {"use_double_wide_mlp", "feed_forward_length", KeyRead::DoubleShared, KeyKind::Flag,
     KeyWeight::Structural, "false", "false"},
};
constexpr ConfigKey kExpertKeys[] = {
    natural("num_experts", "expert_count", "0", "0"),
    natural("num_experts_per_tok", "expert_used_count", "0", "0"),
    {"moe_intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kOutputKeys[] = {
    amount("final_logit_softcapping", "final_logit_softcapping"),
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys, kModelKeys,  kHeadKeys4,
                                                kMlpKeys4, kExpertKeys, kOutputKeys};
constexpr std::span<const ConfigKey> kKeysUnified[] = {kSizeKeys,       kModelKeys,  kHeadKeys4,
                                                       kMlpKeysUnified, kExpertKeys, kOutputKeys};
constexpr ConfigAlias kAliases[] = {
    {"hidden_activation", "hidden_act"},
    {"top_k_experts", "num_experts_per_tok"},
    {"expert_intermediate_size", "moe_intermediate_size"},
    {"query_pre_attn_scalar", ""},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_multiplier", "1"},
    {"global_head_dim", "512"},
    {"head_dim", "256"},
    {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"hidden_size_per_layer_input", "256"},
    {"max_position_embeddings", "131072"},
    {"partial_rotary_factor", "0.25"},
    {"rms_norm_eps", "1e-6"},
    {"rope_local_base_freq", "10000"},
    {"rope_scaling.rope_type", "\"proportional\""},
    {"rope_theta", "1000000"},
    {"sliding_window", "512"},
};
constexpr GgufSign kSignsUnified[] = {
    {.key = "block_count", .min = 48, .max = 48, .always_written = true},
};
constexpr ConfigDefault kDefaultsUnified[] = {
    {"attention_multiplier", "1"},
    {"global_head_dim", "512"},
    {"head_dim", "256"},
    {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"max_position_embeddings", "262144"},
    {"partial_rotary_factor", "0.25"},
    {"rms_norm_eps", "1e-6"},
    {"rope_local_base_freq", "10000"},
    {"rope_scaling.rope_type", "\"proportional\""},
    {"rope_theta", "1000000"},
    {"sliding_window", "1024"},
};

}  // namespace

// The 12B, which computes the same; no other model has as many layers.
const Family kGemma4Unified = {
    .architecture = "Gemma4UnifiedForCausalLM",
    .model_types = "gemma4_unified_text",
    .gguf_arch = "gemma4",
    .gguf_signs = kSignsUnified,
    .module_k = "transformers.models.gemma4_unified.modeling_gemma4_unified",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 6,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .experts = {LayerPattern::BesideDense, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTree, kKeysUnified, kDefaultsUnified, kAliases},
};

const Family kGemma4 = {
    .architecture = "Gemma4ForCausalLM",
    .model_types = "gemma4_text",
    .gguf_arch = "gemma4",
    .module_k = "transformers.models.gemma4.modeling_gemma4",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 6,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .experts = {LayerPattern::BesideDense, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
