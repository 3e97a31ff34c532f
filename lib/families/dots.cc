// dots.llm1: Qwen3's attention, the first layers dense, then DeepSeek V3's routing with shared
// experts.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,        kSelfAttention,   kGqaProjections, kQkNorms,    kDenseMlp,
    kMoeExperts,  kExpertParts, kCorrectedRouter, kSharedExperts,  kLayerNorms, kFinalNorm,
    kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"dots1"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,        kKvHeadKeys,        kMlpKeys,         kModelKeys,        kHeadKeys,
    kTiedKeys,        kAttentionBiasKeys, kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kNormalisedKeys,    kSharedCountKeys, kScaleKeys,        kFirstDenseKeys,
    kGroupKeys,       kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {{"num_local_experts", "n_routed_experts"}};
// Its windows begin at max_window_layers, which no layer of a released model reaches.
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"}, {"use_sliding_window", "false"}, {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},     {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "false"}, {"routed_scaling_factor", "1"},  {"n_group", "1"},
    {"topk_group", "1"},         {"rms_norm_eps", "1e-6"},        {"rope_theta", "10000"},
};

}  // namespace

extern const Family kDots1;
const Family kDots1 = {
    .architecture = "Dots1ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "dots1",
    .prefix = "Dots1",
    .module_k = "transformers.models.dots1.modeling_dots1",
    .module_t = "",
    .bias = BiasKind::Config,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
