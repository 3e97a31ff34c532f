// Granite, dense, with experts, and with a shared expert besides: Llama and Mixtral with constant
// factors of embeddings, scores, what attention and feed-forward part add, and logits. In the tree
// gate and up of the shared expert are one linear; in files they are tensors of their own.
//
// Granite 4's hybrids have a state space (Mamba-2) instead of attention in most layers, and no
// rotation. What their tree calls a shared part is the dense one where there are no experts.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRouterClass{"{P}TopKRouter", "{P}TopKGating K.{P}TopKGating"};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.block_sparse_moe", &kMoe},
    router("L.block_sparse_moe.router", &kRouterClass),
    experts("L.block_sparse_moe.experts", &kExpertsModule),
};
constexpr ModuleRow kShared[] = {
    {Role::SharedMlp, "L.shared_mlp", &kMlp},
    {Role::Activation, "L.shared_mlp.activation", &kSilu},
    gate_up("L.shared_mlp.input_linear", "B.ffn_gate_shexp.weight", "B.ffn_up_shexp.weight"),
    linear(Role::DownProj, "L.shared_mlp.output_linear", "B.ffn_down_shexp."),
};
constexpr ClassRow kMambaLayer{"{P}MambaLayer"};
constexpr ModuleRow kHybridExperts[] = {
    {Role::Moe, "L.block_sparse_moe", &kMoe, When::Moe},
    router("L.block_sparse_moe.router", &kRouterClass, When::Moe),
    experts("L.block_sparse_moe.experts", &kExpertsModule, When::Moe),
};
constexpr ModuleRow kHybridShared[] = {
    {Role::SharedMlp, "L.shared_mlp", &kMlp, When::Moe},
    {Role::Activation, "L.shared_mlp.activation", &kSilu, When::Moe},
    gate_up("L.shared_mlp.input_linear", "B.ffn_gate_shexp.weight", "B.ffn_up_shexp.weight",
            When::Moe),
    linear(Role::DownProj, "L.shared_mlp.output_linear", "B.ffn_down_shexp.", When::Moe),
};
constexpr ModuleRow kHybridDense[] = {
    {Role::Mlp, "L.shared_mlp", &kMlp, When::Dense},
    {Role::Activation, "L.shared_mlp.activation", &kSilu, When::Dense},
    gate_up("L.shared_mlp.input_linear", "B.ffn_gate.weight", "B.ffn_up.weight", When::Dense),
    linear(Role::DownProj, "L.shared_mlp.output_linear", "B.ffn_down.", When::Dense),
};
constexpr ModuleRow kStateSpaceLayer[] = {
    {Role::StateSpace,
     "L.mamba",
     &kMambaLayer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS("L.mamba", &kGatedNorm),
};
constexpr ModuleRow kHybridAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.self_attn"),
};
constexpr ModuleRow kHybridRotary[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary, When::Rotated},
};
constexpr std::span<const ModuleRow> kTreeHybrid[] = {
    kCausalStem,      kLayerNorms,      kHybridExperts, kHybridDense,  kHybridShared,
    kStateSpaceLayer, kHybridAttention, kFinalNorm,     kHybridRotary, kHead};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                kTreeEnd};
constexpr std::span<const ModuleRow> kTreeMoe[] = {kCausalStem, kGqaAttention, kExperts,
                                                   kLayerNorms, kTreeEnd};
constexpr std::span<const ModuleRow> kTreeShared[] = {kCausalStem, kGqaAttention, kExperts,
                                                      kShared,     kLayerNorms,   kTreeEnd};

constexpr GgufSign kSignsShared[] = {{.tensor = "ffn_gate_shexp.weight"}};
// Converters leave out what is 1, and the head's scale is then the usual one.
constexpr ConfigKey kFactorKeys[] = {
    scale("embedding_multiplier", "embedding_scale", "1", "1"),
    scale("residual_multiplier", "residual_scale", "1", "1"),
    scale("logits_scaling", "logit_scale", "1", "1"),
    scale("attention_multiplier", "attention.scale", "", "1"),
};
constexpr ConfigKey kRotatesKeys[] = {
    {"use_rope", "rope.scaling.finetuned", KeyRead::Flag, KeyKind::Flag, KeyWeight::Structural,
     "true", "true"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys,       kAttentionBiasKeys, kMlpBiasKeys,
                                                kRopeScalingKeys, kFactorKeys,        kRotatesKeys};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kLlamaKeys,   kAttentionBiasKeys,   kRopeScalingKeys, kFactorKeys,
    kRotatesKeys, kNumLocalExpertsKeys, kUsedExpertKeys};
constexpr std::span<const ConfigKey> kKeysShared[] = {
    kLlamaKeys,   kAttentionBiasKeys,   kRopeScalingKeys, kFactorKeys,
    kRotatesKeys, kNumLocalExpertsKeys, kUsedExpertKeys,  kSharedWidthKeys};
constexpr ConfigKey kHybridExpertKeys[] = {
    natural("num_local_experts", "expert_count", "0", "0"),
    natural("num_experts_per_tok", "expert_used_count", "0", "0"),
    {"position_embedding_type", "rope.scaling.finetuned", KeyRead::PositionKind, KeyKind::Text,
     KeyWeight::Structural, "rope", "nope"},
};
constexpr std::span<const ConfigKey> kKeysHybrid[] = {
    kSizeKeys,   kHybridLayerKeys,  kMlpKeys,           kModelKeys,
    kHeadKeys,   kTiedKeys,         kAttentionBiasKeys, kRopeScalingKeys,
    kFactorKeys, kHybridExpertKeys, kSharedWidthKeys,   kStateSpaceKeys};
constexpr ConfigAlias kAliasesShared[] = {
    {"num_experts", "num_local_experts"},
    {"shared_intermediate_size", "shared_expert_intermediate_size"},
};
constexpr ConfigDefault kDefaultsHybrid[] = {
    {"attention_bias", "false"},  {"num_local_experts", "0"},
    {"num_experts_per_tok", "0"}, {"decoder_sparse_step", "1"},
    {"mlp_only_layers", "[]"},    {"position_embedding_type", "\"nope\""},
    {"mamba_n_heads", "128"},     {"mamba_d_state", "256"},
    {"mamba_n_groups", "1"},      {"mamba_d_conv", "4"},
    {"rms_norm_eps", "1e-6"},     {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaultsMoe[] = {
    {"attention_bias", "false"}, {"num_local_experts", "8"}, {"num_experts_per_tok", "2"},
    {"rms_norm_eps", "1e-6"},    {"rope_theta", "10000"},
};

}  // namespace

const Family kGranite = {
    .architecture = "GraniteForCausalLM",
    .model_types = "granite",
    .gguf_arch = "granite",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults},
};

const Family kGraniteMoe = {
    .architecture = "GraniteMoeForCausalLM",
    .model_types = "granitemoe",
    .gguf_arch = "granitemoe",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTreeMoe, kKeysMoe, kDefaultsMoe, kNumExpertsAliases},
    .more_classes = "{P}ParallelExperts",
};

const Family kGraniteMoeShared = {
    .architecture = "GraniteMoeSharedForCausalLM",
    .model_types = "granitemoeshared",
    .gguf_arch = "granitemoe",
    .gguf_signs = kSignsShared,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::Width,
                RouterKind::SoftmaxNormalised},
    .rows = {kTreeShared, kKeysShared, kDefaultsMoe, kAliasesShared},
    .more_classes = "{P}ParallelExperts",
};

const Family kGraniteHybrid = {
    .architecture = "GraniteMoeHybridForCausalLM",
    .model_types = "granitemoehybrid",
    .gguf_arch = "granitehybrid",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = {LayerPattern::SparseStep, "num_local_experts", "intermediate_size",
                SharedKind::Width, RouterKind::SoftmaxNormalised},
    .rows = {kTreeHybrid, kKeysHybrid, kDefaultsHybrid, kAliasesShared},
    .more_classes = "{P}ParallelExperts",
};

}  // namespace ktx::families
