// Llama 4 (text): one expert of each token, whose input is scaled, beside a shared one, in every
// layer or every second. Three of four layers are rotated and see a chunk of the context; queries
// of the others grow with it. Queries and keys are normed behind the rotation, without weights.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRootClass{
    "Llama4ForCausalLM", "transformers.Llama4ForCausalLM",
    "Llama4PreTrainedModel K.Llama4PreTrainedModel " KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kMoeClass{"{P}Moe"};
constexpr ClassRow kRouterClass{"Llama4Router", "", "torch.nn.modules.linear.Linear Linear"};
constexpr ClassRow kExpertsClass{"{P}Experts"};
constexpr ClassRow kL2Norm{"{P}L2Norm"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kRootClass}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
// transformers has one module for both.
constexpr ModuleRow kNormsBehind[] = {
    {Role::QRotatedNorm, "L.self_attn.qk_norm", &kL2Norm, When::RotatedQkNorm},
    {Role::KRotatedNorm, "L.self_attn.qk_norm_of_keys", &kL2Norm, When::RotatedQkNorm},
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp, When::Dense},
    {Role::GateProj,
     "L.feed_forward.gate_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_gate.weight"}}},
    {Role::UpProj,
     "L.feed_forward.up_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_up.weight"}}},
    {Role::DownProj,
     "L.feed_forward.down_proj",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_down.weight"}}},
    {Role::Activation, "L.feed_forward.activation_fn", &kSilu, When::Dense},
    {Role::Moe, "L.feed_forward", &kMoeClass, When::Moe},
    {Role::Experts,
     "L.feed_forward.experts",
     &kExpertsClass,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
    {Role::Router,
     "L.feed_forward.router",
     &kRouterClass,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::SharedMlp, "L.feed_forward.shared_expert", &kMlp, When::Moe},
    {Role::GateProj,
     "L.feed_forward.shared_expert.gate_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_gate_shexp.weight"}}},
    {Role::UpProj,
     "L.feed_forward.shared_expert.up_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.feed_forward.shared_expert.down_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_down_shexp.weight"}}},
    {Role::Activation, "L.feed_forward.shared_expert.activation_fn", &kSilu, When::Moe},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,       kSelfAttention, kGqaProjections, kNormsBehind,
    kFeedForward, kLayerNorms, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypes[] = {"llama4_text", "llama4"};
// Files say nothing of chunks and of queries that grow, but a window of 0 where there are none.
constexpr ConfigKey kOwnKeys[] = {
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "8192", ""},
    {"attn_temperature_tuning", "", KeyRead::Nothing, KeyKind::Flag, KeyWeight::Plain, "true",
     "true"},
    {"attn_scale", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain, "0.1", "0.1"},
    {"floor_scale", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Plain, "8192", "8192"},
    {"decoder_sparse_step", "interleave_moe_layer_step", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "1", "1"},
    {"n_shared_experts", "expert_shared_count", KeyRead::Int, KeyKind::Natural,
     KeyWeight::Structural, "1", "1"},
    {"use_qk_norm", "expert_count", KeyRead::QkNormByExperts, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,         kKvHeadKeys,     kMlpKeys,           kModelKeys,
    kHeadKeys,         kTiedKeys,       kAttentionBiasKeys, kRopeScalingKeys,
    kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys,   kOwnKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"intermediate_size", "moe_intermediate_size"},  // before the next one
    {"intermediate_size_mlp", "intermediate_size"},
    {"num_local_experts", "n_routed_experts"},
    {"interleave_moe_layer_step", "decoder_sparse_step"},
    {"attention_chunk_size", "sliding_window"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},  {"head_dim", "128"},
    {"sliding_window", "8192"},   {"attn_temperature_tuning", "true"},
    {"attn_scale", "0.1"},        {"floor_scale", "8192"},
    {"decoder_sparse_step", "1"}, {"n_shared_experts", "1"},
    {"num_experts_per_tok", "1"}, {"use_qk_norm", "true"},
    {"rms_norm_eps", "1e-5"},     {"rope_theta", "500000"},
};

}  // namespace

extern const Family kLlama4;
const Family kLlama4 = {
    .architecture = "Llama4ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "llama4",
    .prefix = "Llama4Text",
    .module_k = "transformers.models.llama4.modeling_llama4",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .unrotated_period = 4,
    .chunked_windows = true,
    .layers = LayerPattern::SparseStep,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::SigmoidOfInput,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
