// Gemma 4 (text), dense, with experts beside the dense part, and with a part of the token embedding
// for each layer (E2B, E4B). Layers with a window have narrower heads than the others, whose rotary
// table turns the first pairs alone and whose values may be the key projection. Values are normed,
// scores are not scaled, and each layer's output is multiplied by a number of its own. The last
// layers may read the keys and values of the last layer of their kind before them.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kGelu{"transformers.activations.GELUTanh",
                         "GELUTanh transformers.activations.PytorchGELUTanh PytorchGELUTanh"};
constexpr ClassRow kTextModel{"{P}TextModel", "transformers.{P}TextModel", KTX_PRETRAINED};
constexpr ClassRow kTextEmbedding{"{P}TextScaledWordEmbedding", "",
                                  "torch.nn.modules.sparse.Embedding torch.nn.Embedding Embedding"};
constexpr ClassRow kTextLayer{"{P}TextDecoderLayer"};
constexpr ClassRow kTextAttention{"{P}TextAttention"};
constexpr ClassRow kTextMlp{"{P}TextMLP"};
constexpr ClassRow kTextRotary{"{P}TextRotaryEmbedding"};
constexpr ClassRow kTextRouter{"{P}TextRouter"};
constexpr ClassRow kTextExperts{"{P}TextExperts"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kTextStem[] = {
    {Role::Model, "model", &kTextModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kTextEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer,
     "model.layers.{layer}",
     &kTextLayer,
     When::Always,
     {{"output_scale", "B.layer_output_scale.weight"}}},
};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kTextAttention},
    {Role::QProj,
     "L.self_attn.q_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_q.weight"}, {"bias", "B.attn_q.bias", When::QkvBias}}},
    {Role::QNorm, "L.self_attn.q_norm", &kNorm, When::Always, {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.self_attn.k_norm",
     &kNorm,
     When::OwnKeys,
     {{"weight", "B.attn_k_norm.weight"}}},
    {Role::VNorm, "L.self_attn.v_norm", &kNorm, When::OwnKeys},
    {Role::KProj,
     "L.self_attn.k_proj",
     &kLinear,
     When::OwnKeys,
     {{"weight", "B.attn_k.weight"}, {"bias", "B.attn_k.bias", When::QkvBias}}},
    {Role::VProj,
     "L.self_attn.v_proj",
     &kLinear,
     When::OwnValues,
     {{"weight", "B.attn_v.weight"}, {"bias", "B.attn_v.bias", When::QkvBias}}},
    {Role::OProj,
     "L.self_attn.o_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output.weight"}, {"bias", "B.attn_output.bias", When::AttentionBias}}},
};
constexpr ModuleRow kGeluMlp[] = {
    {Role::Mlp, "L.mlp", &kTextMlp},
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
constexpr ModuleRow kLayerInput[] = {
    {Role::Activation, "L.act_fn", &kGelu, When::LayerInputs},
    {Role::LayerInputGate,
     "L.per_layer_input_gate",
     &kLinear,
     When::LayerInputs,
     {{"weight", "B.inp_gate.weight"}}},
    {Role::LayerInputProj,
     "L.per_layer_projection",
     &kLinear,
     When::LayerInputs,
     {{"weight", "B.proj.weight"}}},
    {Role::LayerInputPostNorm,
     "L.post_per_layer_input_norm",
     &kNorm,
     When::LayerInputs,
     {{"weight", "B.post_norm.weight"}}},
};
constexpr ModuleRow kExpertsBeside[] = {
    {Role::RouterBlock, "L.router", &kTextRouter, When::Moe},
    {Role::RouterNorm, "L.router.norm", &kNorm, When::Moe, {{"weight", "B.ffn_gate_inp.scale"}}},
    {Role::Router, "L.router.proj", &kLinear, When::Moe, {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.experts",
     &kTextExperts,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
    {Role::DensePostNorm,
     "L.post_feedforward_layernorm_1",
     &kNorm,
     When::Moe,
     {{"weight", "B.post_ffw_norm_1.weight"}}},
    {Role::ExpertsPostNorm,
     "L.post_feedforward_layernorm_2",
     &kNorm,
     When::Moe,
     {{"weight", "B.post_ffw_norm_2.weight"}}},
    {Role::ExpertsNorm,
     "L.pre_feedforward_layernorm_2",
     &kNorm,
     When::Moe,
     {{"weight", "B.pre_ffw_norm_2.weight"}}},
};
constexpr ModuleRow kRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kTextRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kTextRotary},
};
constexpr ModuleRow kLayerInputs[] = {
    {Role::LayerEmbedding,
     "model.embed_tokens_per_layer",
     &kTextEmbedding,
     When::LayerInputs,
     {{"weight", "per_layer_token_embd.weight"}}},
    {Role::LayerInputsProj,
     "model.per_layer_model_projection",
     &kLinear,
     When::LayerInputs,
     {{"weight", "per_layer_model_proj.weight"}}},
    {Role::LayerInputsNorm,
     "model.per_layer_projection_norm",
     &kNorm,
     When::LayerInputs,
     {{"weight", "per_layer_proj_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,          kTextStem,  kSelfAttention, kGeluMlp,     kSandwichNorms, kLayerInput,
    kExpertsBeside, kFinalNorm, kRotaries,      kLayerInputs, kHead,
};

constexpr const char* kModelTypes[] = {"gemma4_text"};
constexpr const char* kModelTypesUnified[] = {"gemma4_unified_text"};
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
    {"head_dim", "attention.key_length_swa", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "256", "256"},
    {"global_head_dim", "attention.key_length", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "512", "512"},
    {"local_rotary_dim", "rope.dimension_count_swa", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "=head_dim", "=head_dim"},
    {"rope_local_base_freq", "rope.freq_base_swa", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "10000", "10000"},
    {"rope_scaling.rope_type", "", KeyRead::ProportionalRope, KeyKind::Text, KeyWeight::Plain,
     "default", "proportional"},
    {"attention_multiplier", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1", "1"},
    {"attention_k_eq_v", "", KeyRead::KeysAsValues, KeyKind::Flag, KeyWeight::Structural, "false",
     "false"},
    {"num_kv_shared_layers", "attention.shared_kv_layers", KeyRead::Int, KeyKind::Natural,
     KeyWeight::Structural, "0", "0"},
};
constexpr ConfigKey kMlpKeys4[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::FirstCount, KeyKind::Count,
     KeyWeight::Structural, "", "9216"},
    {"use_double_wide_mlp", "feed_forward_length", KeyRead::DoubleShared, KeyKind::Flag,
     KeyWeight::Structural, "false", "false"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", KeyRead::Int,
     KeyKind::Natural, KeyWeight::Structural, "0", "256"},
};
constexpr ConfigKey kMlpKeysUnified[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::FirstCount, KeyKind::Count,
     KeyWeight::Structural, "", "9216"},
    {"use_double_wide_mlp", "feed_forward_length", KeyRead::DoubleShared, KeyKind::Flag,
     KeyWeight::Structural, "false", "false"},
};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Natural, KeyWeight::Structural, "0",
     "0"},
    {"num_experts_per_tok", "expert_used_count", KeyRead::Int, KeyKind::Natural,
     KeyWeight::Structural, "0", "0"},
    {"moe_intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kOutputKeys[] = {
    {"final_logit_softcapping", "final_logit_softcapping", KeyRead::Float, KeyKind::Amount,
     KeyWeight::Plain, "", ""},
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kModelKeys, kHeadKeys4, kMlpKeys4, kExpertKeys, kOutputKeys,
};
constexpr std::span<const ConfigKey> kKeysUnified[] = {
    kSizeKeys, kModelKeys, kHeadKeys4, kMlpKeysUnified, kExpertKeys, kOutputKeys,
};
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
extern const Family kGemma4Unified;
const Family kGemma4Unified = {
    .architecture = "Gemma4UnifiedForCausalLM",
    .model_types = kModelTypesUnified,
    .gguf_arch = "gemma4",
    .gguf_signs = kSignsUnified,
    .prefix = "Gemma4Unified",
    .module_k = "transformers.models.gemma4_unified.modeling_gemma4_unified",
    .module_t = "",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 6,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .layers = LayerPattern::BesideDense,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeysUnified,
    .defaults = kDefaultsUnified,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kGemma4;
const Family kGemma4 = {
    .architecture = "Gemma4ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "gemma4",
    .prefix = "Gemma4",
    .module_k = "transformers.models.gemma4.modeling_gemma4",
    .module_t = "",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 6,
    .scaled_embedding = true,
    .activation = Activation::GeluTanh,
    .layers = LayerPattern::BesideDense,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
