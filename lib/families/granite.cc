// Granite, dense, with experts, and with a shared expert besides: Llama and Mixtral with constant
// factors of embeddings, scores, what attention and feed-forward part add, and logits. In the tree
// gate and up of the shared expert are one linear; in files they are tensors of their own.
//
// Granite 4's hybrids have a state space (Mamba-2) in the place of attention in most layers, and no
// rotation. What their tree calls a shared part is the dense one where there are no experts.
#include "lib/families/state_space_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ClassRow kRouterClass{"{P}TopKRouter", "{P}TopKGating K.{P}TopKGating"};
constexpr ClassRow kExpertsClass{"{P}Experts"};
constexpr ClassRow kSharedMlp{"{P}MLP"};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.block_sparse_moe", &kMoe},
    {Role::Router,
     "L.block_sparse_moe.router",
     &kRouterClass,
     When::Always,
     {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.block_sparse_moe.experts",
     &kExpertsClass,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kShared[] = {
    {Role::SharedMlp, "L.shared_mlp", &kSharedMlp},
    {Role::Activation, "L.shared_mlp.activation", &kSilu},
    {Role::GateUpProj,
     "L.shared_mlp.input_linear",
     &kLinear,
     When::Always,
     {{"gate", "B.ffn_gate_shexp.weight"}, {"up", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.shared_mlp.output_linear",
     &kLinear,
     When::Always,
     {{"weight", "B.ffn_down_shexp.weight"}}},
};
constexpr ClassRow kMambaLayer{"{P}MambaLayer"};
constexpr ModuleRow kHybridExperts[] = {
    {Role::Moe, "L.block_sparse_moe", &kMoe, When::Moe},
    {Role::Router,
     "L.block_sparse_moe.router",
     &kRouterClass,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.block_sparse_moe.experts",
     &kExpertsClass,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kHybridShared[] = {
    {Role::SharedMlp, "L.shared_mlp", &kSharedMlp, When::Moe},
    {Role::Activation, "L.shared_mlp.activation", &kSilu, When::Moe},
    {Role::GateUpProj,
     "L.shared_mlp.input_linear",
     &kLinear,
     When::Moe,
     {{"gate", "B.ffn_gate_shexp.weight"}, {"up", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.shared_mlp.output_linear",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_down_shexp.weight"}}},
};
constexpr ModuleRow kHybridDense[] = {
    {Role::Mlp, "L.shared_mlp", &kSharedMlp, When::Dense},
    {Role::Activation, "L.shared_mlp.activation", &kSilu, When::Dense},
    {Role::GateUpProj,
     "L.shared_mlp.input_linear",
     &kLinear,
     When::Dense,
     {{"gate", "B.ffn_gate.weight"}, {"up", "B.ffn_up.weight"}}},
    {Role::DownProj,
     "L.shared_mlp.output_linear",
     &kLinear,
     When::Dense,
     {{"weight", "B.ffn_down.weight"}}},
};
constexpr ModuleRow kStateSpaceLayer[] = {
    {Role::StateSpace,
     "L.mamba",
     &kMambaLayer,
     When::StateSpace,
     {kStateSpaceConv, kStateSpaceConvBias, kStateSpaceDecay, kStateSpaceSkip, kStateSpaceDtBias}},
    KTX_STATE_SPACE_PARTS("L.mamba"),
};
constexpr ModuleRow kHybridAttention[] = {
    {Role::Attention, "L.self_attn", &kAttention, When::FullAttention},
    KTX_HYBRID_PROJECTIONS("L.self_attn"),
};
constexpr ModuleRow kHybridRotary[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary, When::Rotated},
};
constexpr std::span<const ModuleRow> kTreeHybrid[] = {
    kRoot,
    kStem,
    kLayerNorms,
    kHybridExperts,
    kHybridDense,
    kHybridShared,
    kStateSpaceLayer,
    kHybridAttention,
    kFinalNorm,
    kHybridRotary,
    kHead,
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kExperts,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr std::span<const ModuleRow> kTreeShared[] = {
    kRoot,   kStem,       kSelfAttention, kGqaProjections, kExperts,
    kShared, kLayerNorms, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypesHybrid[] = {"granitemoehybrid"};
constexpr const char* kModelTypes[] = {"granite"};
constexpr const char* kModelTypesMoe[] = {"granitemoe"};
constexpr const char* kModelTypesShared[] = {"granitemoeshared"};
constexpr GgufSign kSignsShared[] = {{.tensor = "ffn_gate_shexp.weight"}};
// Converters leave out what is 1, and the head's scale is then the usual one.
constexpr ConfigKey kFactorKeys[] = {
    {"embedding_multiplier", "embedding_scale", KeyRead::Scale, KeyKind::Positive, KeyWeight::Plain,
     "1", "1"},
    {"residual_multiplier", "residual_scale", KeyRead::Scale, KeyKind::Positive, KeyWeight::Plain,
     "1", "1"},
    {"logits_scaling", "logit_scale", KeyRead::Scale, KeyKind::Positive, KeyWeight::Plain, "1",
     "1"},
    {"attention_multiplier", "attention.scale", KeyRead::Scale, KeyKind::Positive, KeyWeight::Plain,
     "", "1"},
};
constexpr ConfigKey kRotatesKeys[] = {
    {"use_rope", "rope.scaling.finetuned", KeyRead::Flag, KeyKind::Flag, KeyWeight::Structural,
     "true", "true"},
};
constexpr ConfigKey kExpertKeys[] = {
    {"num_local_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
};
constexpr ConfigKey kSharedKeys[] = {
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", KeyRead::SharedSize,
     KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,          kKvHeadKeys,  kMlpKeys,         kModelKeys,  kHeadKeys,    kTiedKeys,
    kAttentionBiasKeys, kMlpBiasKeys, kRopeScalingKeys, kFactorKeys, kRotatesKeys,
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,          kKvHeadKeys,      kMlpKeys,    kModelKeys,   kHeadKeys,   kTiedKeys,
    kAttentionBiasKeys, kRopeScalingKeys, kFactorKeys, kRotatesKeys, kExpertKeys, kUsedExpertKeys,
};
constexpr std::span<const ConfigKey> kKeysShared[] = {
    kSizeKeys,   kKvHeadKeys,        kMlpKeys,         kModelKeys,  kHeadKeys,
    kTiedKeys,   kAttentionBiasKeys, kRopeScalingKeys, kFactorKeys, kRotatesKeys,
    kExpertKeys, kUsedExpertKeys,    kSharedKeys,
};
constexpr ConfigKey kHybridExpertKeys[] = {
    {"num_local_experts", "expert_count", KeyRead::Int, KeyKind::Natural, KeyWeight::Structural,
     "0", "0"},
    {"num_experts_per_tok", "expert_used_count", KeyRead::Int, KeyKind::Natural,
     KeyWeight::Structural, "0", "0"},
    {"position_embedding_type", "rope.scaling.finetuned", KeyRead::PositionKind, KeyKind::Text,
     KeyWeight::Structural, "rope", "nope"},
};
constexpr std::span<const ConfigKey> kKeysHybrid[] = {
    kSizeKeys,   kHybridLayerKeys,  kMlpKeys,           kModelKeys,
    kHeadKeys,   kTiedKeys,         kAttentionBiasKeys, kRopeScalingKeys,
    kFactorKeys, kHybridExpertKeys, kSharedKeys,        kStateSpaceKeys,
};
constexpr ConfigAlias kAliasesMoe[] = {{"num_experts", "num_local_experts"}};
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

extern const Family kGranite;
const Family kGranite = {
    .architecture = "GraniteForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "granite",
    .prefix = "Granite",
    .module_k = "transformers.models.granite.modeling_granite",
    .module_t = "",
    .bias = BiasKind::Config,
    .mlp_bias = true,
    .interleaved_rope = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

extern const Family kGraniteMoe;
const Family kGraniteMoe = {
    .architecture = "GraniteMoeForCausalLM",
    .model_types = kModelTypesMoe,
    .gguf_arch = "granitemoe",
    .prefix = "GraniteMoe",
    .module_k = "transformers.models.granitemoe.modeling_granitemoe",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeysMoe,
    .defaults = kDefaultsMoe,
    .aliases = kAliasesMoe,
    .tree = kTreeMoe,
    .more_classes = "{P}ParallelExperts",
};

extern const Family kGraniteMoeShared;
const Family kGraniteMoeShared = {
    .architecture = "GraniteMoeSharedForCausalLM",
    .model_types = kModelTypesShared,
    .gguf_arch = "granitemoe",
    .gguf_signs = kSignsShared,
    .prefix = "GraniteMoeShared",
    .module_k = "transformers.models.granitemoeshared.modeling_granitemoeshared",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeysShared,
    .defaults = kDefaultsMoe,
    .aliases = kAliasesShared,
    .tree = kTreeShared,
    .more_classes = "{P}ParallelExperts",
};

extern const Family kGraniteHybrid;
const Family kGraniteHybrid = {
    .architecture = "GraniteMoeHybridForCausalLM",
    .model_types = kModelTypesHybrid,
    .gguf_arch = "granitehybrid",
    .prefix = "GraniteMoeHybrid",
    .module_k = "transformers.models.granitemoehybrid.modeling_granitemoehybrid",
    .module_t = "",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::SparseStep,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::SoftmaxNormalised,
    .keys = kKeysHybrid,
    .defaults = kDefaultsHybrid,
    .aliases = kAliasesShared,
    .tree = kTreeHybrid,
    .more_classes = "{P}ParallelExperts",
};

}  // namespace ktx::families
