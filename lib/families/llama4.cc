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
constexpr ClassRow kL2Norm{"{P}L2Norm"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kRootClass}};
// transformers has one module for both.
constexpr ModuleRow kNormsBehind[] = {
    {Role::QRotatedNorm, "L.self_attn.qk_norm", &kL2Norm, When::RotatedQkNorm},
    {Role::KRotatedNorm, "L.self_attn.qk_norm_of_keys", &kL2Norm, When::RotatedQkNorm},
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp, When::Dense},
    linear(Role::GateProj, "L.feed_forward.gate_proj", "B.ffn_gate.", When::Dense),
    linear(Role::UpProj, "L.feed_forward.up_proj", "B.ffn_up.", When::Dense),
    linear(Role::DownProj, "L.feed_forward.down_proj", "B.ffn_down.", When::Dense),
    {Role::Activation, "L.feed_forward.activation_fn", &kSilu, When::Dense},
    {Role::Moe, "L.feed_forward", &kMoeClass, When::Moe},
    experts("L.feed_forward.experts", &kExpertsModule, When::Moe),
    router("L.feed_forward.router", &kRouterClass, When::Moe),
    {Role::SharedMlp, "L.feed_forward.shared_expert", &kMlp, When::Moe},
    linear(Role::GateProj, "L.feed_forward.shared_expert.gate_proj", "B.ffn_gate_shexp.",
           When::Moe),
    linear(Role::UpProj, "L.feed_forward.shared_expert.up_proj", "B.ffn_up_shexp.", When::Moe),
    linear(Role::DownProj, "L.feed_forward.shared_expert.down_proj", "B.ffn_down_shexp.",
           When::Moe),
    {Role::Activation, "L.feed_forward.shared_expert.activation_fn", &kSilu, When::Moe},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot, kStem, kGqaAttention, kNormsBehind, kFeedForward, kLayerNorms, kTreeEnd};

// Files say nothing of chunks and of queries that grow, but a window of 0 where there are none.
constexpr ConfigKey kOwnKeys[] = {
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "8192", ""},
    {"attn_temperature_tuning", "", KeyRead::Nothing, KeyKind::Flag, KeyWeight::Plain, "true",
     "true"},
    {"attn_scale", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain, "0.1", "0.1"},
    {"floor_scale", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Plain, "8192", "8192"},
    count("decoder_sparse_step", "interleave_moe_layer_step", "1", "1"),
    natural("n_shared_experts", "expert_shared_count", "1", "1"),
    {"use_qk_norm", "expert_count", KeyRead::QkNormByExperts, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kLlamaKeys,      kAttentionBiasKeys, kRopeScalingKeys, kRoutedExpertKeys,
    kUsedExpertKeys, kExpertWidthKeys,   kOwnKeys};
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

const Family kLlama4 = {
    .architecture = "Llama4ForCausalLM",
    .model_types = "llama4_text llama4",
    .gguf_arch = "llama4",
    .prefix = "Llama4Text",
    .module_k = "transformers.models.llama4.modeling_llama4",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .unrotated_period = 4,
    .chunked_windows = true,
    .experts = {LayerPattern::SparseStep, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::SigmoidOfInput},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
