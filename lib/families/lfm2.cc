// LFM2, dense and with experts: most layers have a gated short convolution in the place of
// attention. Experts are routed as in DeepSeek V3.
//
// A GGUF marks the layers with a convolution by 0 key heads; its norm before the head has the name
// of a norm of the embedding in files of today, as it has in the tree.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kShortConvClass{"{P}ShortConv"};
constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouter{"{P}TopKRouter",
                           "torch.nn.modules.linear.Linear torch.nn.Linear Linear"};
constexpr ClassRow kExpertsClass{"{P}Experts"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
};
constexpr ModuleRow kSelfAttentionRest[] = {
    {Role::OProj,
     "L.self_attn.out_proj",
     &kLinear,
     When::FullAttention,
     {{"weight", "B.attn_output.weight"}}},
    {Role::QNorm,
     "L.self_attn.q_layernorm",
     &kNorm,
     When::FullAttention,
     {{"weight", "B.attn_q_norm.weight"}}},
    {Role::KNorm,
     "L.self_attn.k_layernorm",
     &kNorm,
     When::FullAttention,
     {{"weight", "B.attn_k_norm.weight"}}},
};
constexpr ModuleRow kShortConv[] = {
    {Role::ShortConv,
     "L.conv",
     &kShortConvClass,
     When::ShortConv,
     {{"conv", "B.shortconv.conv.weight"}}},
    {Role::ShortConvWeight, "L.conv.conv", &kConv1d, When::ShortConv},
    {Role::ShortConvProj,
     "L.conv.in_proj",
     &kLinear,
     When::ShortConv,
     {{"weight", "B.shortconv.in_proj.weight"}}},
    {Role::OProj,
     "L.conv.out_proj",
     &kLinear,
     When::ShortConv,
     {{"weight", "B.shortconv.out_proj.weight"}}},
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp, When::Dense},
    {Role::GateProj, "L.feed_forward.w1", &kLinear, When::Dense, {{"weight", "B.ffn_gate.weight"}}},
    {Role::UpProj, "L.feed_forward.w3", &kLinear, When::Dense, {{"weight", "B.ffn_up.weight"}}},
    {Role::DownProj, "L.feed_forward.w2", &kLinear, When::Dense, {{"weight", "B.ffn_down.weight"}}},
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.feed_forward", &kMoeBlock, When::Moe},
    {Role::Experts,
     "L.feed_forward.experts",
     &kExpertsClass,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
    {Role::Router,
     "L.feed_forward.gate",
     &kRouter,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
};
constexpr ModuleRow kNorms[] = {
    {Role::AttentionNorm,
     "L.operator_norm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_norm.weight"}}},
    {Role::MlpNorm, "L.ffn_norm", &kNorm, When::Always, {{"weight", "B.ffn_norm.weight"}}},
};
constexpr ModuleRow kMoeRotary[] = {{Role::Rotary, "model.pos_emb", &kRotary}};
constexpr ModuleRow kLastNorm[] = {
    {Role::FinalNorm,
     "model.embedding_norm",
     &kNorm,
     When::Always,
     {{"weight", "token_embd_norm.weight | output_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,      kStem,        kSelfAttention, kFullAttentionQkv, kSelfAttentionRest,
    kShortConv, kFeedForward, kNorms,         kModelRotary,      kLastNorm,
    kHead,
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kRoot,        kStem,    kSelfAttention, kFullAttentionQkv, kSelfAttentionRest, kShortConv,
    kFeedForward, kExperts, kNorms,         kMoeRotary,        kLastNorm,          kHead,
};

constexpr const char* kModelTypes[] = {"lfm2"};
constexpr const char* kModelTypesMoe[] = {"lfm2_moe"};

constexpr ConfigKey kLayerKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::ShortConvLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
    {"conv_L_cache", "shortconv.l_cache", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     "3"},
};
constexpr ConfigKey kExpertCountKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
// In no file.
constexpr ConfigKey kScaledKeys[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "true", "true"},
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "1"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kLayerKeys, kMlpKeys, kModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys,
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,       kLayerKeys,       kMlpKeys,         kModelKeys,      kHeadKeys,
    kTiedKeys,       kRopeScalingKeys, kExpertCountKeys, kUsedExpertKeys, kExpertWidthKeys,
    kFirstDenseKeys, kScaledKeys,      kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"norm_eps", "rms_norm_eps"},
    {"block_ff_dim", "intermediate_size"},
    {"tie_embedding", "tie_word_embeddings"},
    {"num_dense_layers", "first_k_dense_replace"},
};
constexpr ConfigDefault kDefaults[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
    {"conv_L_cache", "3"},
    {"tie_word_embeddings", "true"},
};
constexpr ConfigDefault kDefaultsMoe[] = {
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
    {"conv_L_cache", "3"},
    {"tie_word_embeddings", "true"},
    {"first_k_dense_replace", "2"},
    {"moe_layer_freq", "1"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},
    {"n_group", "1"},
    {"topk_group", "1"},
};

}  // namespace

extern const Family kLfm2;
const Family kLfm2 = {
    .architecture = "Lfm2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "lfm2",
    .prefix = "Lfm2",
    .module_k = "transformers.models.lfm2.modeling_lfm2",
    .module_t = "",
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kLfm2Moe;
const Family kLfm2Moe = {
    .architecture = "Lfm2MoeForCausalLM",
    .model_types = kModelTypesMoe,
    .gguf_arch = "lfm2moe",
    .prefix = "Lfm2Moe",
    .module_k = "transformers.models.lfm2_moe.modeling_lfm2_moe",
    .module_t = "",
    .layers = LayerPattern::FirstDense,
    .experts_key = "num_experts",
    .expert_width_key = "moe_intermediate_size",
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysMoe,
    .defaults = kDefaultsMoe,
    .aliases = kAliases,
    .tree = kTreeMoe,
};

}  // namespace ktx::families
