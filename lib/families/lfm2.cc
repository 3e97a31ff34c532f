// LFM2, dense and with experts: most layers have a gated short convolution instead of attention.
// Experts are routed as in DeepSeek V3.
//
// A GGUF marks the layers with a convolution by 0 key heads; its norm before the head has the name
// of a norm of the embedding in files of today, as it has in the tree.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kShortConvClass{"{P}ShortConv"};
constexpr ClassRow kRouter{"{P}TopKRouter",
                           "torch.nn.modules.linear.Linear torch.nn.Linear Linear"};

constexpr ModuleRow kSelfAttentionRest[] = {
    linear(Role::OProj, "L.self_attn.out_proj", "B.attn_output.", When::FullAttention),
    norm(Role::QNorm, "L.self_attn.q_layernorm", "B.attn_q_norm.", When::FullAttention),
    norm(Role::KNorm, "L.self_attn.k_layernorm", "B.attn_k_norm.", When::FullAttention),
};
constexpr ModuleRow kShortConv[] = {
    {Role::ShortConv,
     "L.conv",
     &kShortConvClass,
     When::ShortConv,
     {{"conv", "B.shortconv.conv.weight"}}},
    {Role::ShortConvWeight, "L.conv.conv", &kConv1d, When::ShortConv},
    linear(Role::ShortConvProj, "L.conv.in_proj", "B.shortconv.in_proj.", When::ShortConv),
    linear(Role::OProj, "L.conv.out_proj", "B.shortconv.out_proj.", When::ShortConv),
};
constexpr ModuleRow kFeedForward[] = {
    {Role::Mlp, "L.feed_forward", &kMlp, When::Dense},
    linear(Role::GateProj, "L.feed_forward.w1", "B.ffn_gate.", When::Dense),
    linear(Role::UpProj, "L.feed_forward.w3", "B.ffn_up.", When::Dense),
    linear(Role::DownProj, "L.feed_forward.w2", "B.ffn_down.", When::Dense),
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.feed_forward", &kSparseMoeBlock, When::Moe},
    experts("L.feed_forward.experts", &kExpertsModule, When::Moe),
    corrected_router("L.feed_forward.gate", &kRouter, When::Moe),
};
constexpr ModuleRow kNorms[] = {
    norm(Role::AttentionNorm, "L.operator_norm", "B.attn_norm."),
    norm(Role::MlpNorm, "L.ffn_norm", "B.ffn_norm."),
};
constexpr ModuleRow kMoeRotary[] = {{Role::Rotary, "model.pos_emb", &kRotary}};
constexpr ModuleRow kLastNorm[] = {
    norm(Role::FinalNorm, "model.embedding_norm", "token_embd_norm.weight | output_norm.weight"),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,  kFullAttention, kFullAttentionQkv, kSelfAttentionRest, kShortConv,
    kFeedForward, kNorms,         kModelRotary,      kLastNorm,          kHead};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kCausalStem, kFullAttention, kFullAttentionQkv, kSelfAttentionRest, kShortConv, kFeedForward,
    kExperts,    kNorms,         kMoeRotary,        kLastNorm,          kHead};

constexpr ConfigKey kLayerKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::ShortConvLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
    count("conv_L_cache", "shortconv.l_cache", "", "3"),
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "true"},
};
// In no file.
constexpr ConfigKey kScaledKeys[] = {
    flag("norm_topk_prob", "expert_weights_norm", "true", "true"),
    scale("routed_scaling_factor", "expert_weights_scale", "1", "1"),
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,  kLayerKeys, kMlpKeys,
                                                kModelKeys, kHeadKeys,  kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,        kLayerKeys,       kMlpKeys,        kModelKeys,
    kHeadKeys,        kRopeScalingKeys, kNumExpertsKeys, kUsedExpertKeys,
    kExpertWidthKeys, kFirstDenseKeys,  kScaledKeys,     kSigmoidKeys};
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
constexpr ConfigDefault kOwnDefaultsMoe[] = {
    {"rms_norm_eps", "1e-5"},        {"rope_theta", "1000000"},      {"conv_L_cache", "3"},
    {"tie_word_embeddings", "true"}, {"first_k_dense_replace", "2"}, {"routed_scaling_factor", "1"},
};
constexpr auto kDefaultsMoe = join(kOwnDefaultsMoe, kSigmoidRoutingDefaults);

}  // namespace

const Family kLfm2 = {
    .architecture = "Lfm2ForCausalLM",
    .model_types = "lfm2",
    .gguf_arch = "lfm2",
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kLfm2Moe = {
    .architecture = "Lfm2MoeForCausalLM",
    .model_types = "lfm2_moe",
    .gguf_arch = "lfm2moe",
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::GroupsByTwoBest},
    .rows = {kTreeMoe, kKeysMoe, kDefaultsMoe, kAliases},
};

}  // namespace ktx::families
