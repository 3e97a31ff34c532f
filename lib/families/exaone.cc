// EXAONE 4: norms behind attention and feed-forward part, queries and keys normed by head. Models
// with windows have them in all but every fourth layer, and rotate those layers alone. K-EXAONE:
// the same attention with norms before the parts, and experts as DeepSeek V3's. EXAONE 3 and 3.5
// (and Deep) are Llama under other config keys, in transformers, too.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoEBlock"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kPostNorms[] = {
    {Role::AttentionPostNorm,
     "L.post_attention_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_attention_norm.weight"}}},
    {Role::MlpPostNorm,
     "L.post_feedforward_layernorm",
     &kNorm,
     When::Always,
     {{"weight", "B.post_ffw_norm.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,     kStem,      kSelfAttention, kGqaProjections, kQkNorms,
    kDenseMlp, kPostNorms, kFinalNorm,     kModelRotary,    kHead,
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot,       kStem,      kSelfAttention, kGqaProjections, kDenseMlp,
    kLayerNorms, kFinalNorm, kModelRotary,   kHead,
};
constexpr const char* kModelTypes3[] = {"exaone"};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys, kHeadKeys, kTiedKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases3[] = {
    {"num_layers", "num_hidden_layers"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"activation_function", "hidden_act"},
};
constexpr ConfigDefault kDefaults3[] = {{"rms_norm_eps", "1e-5"}, {"rope_theta", "500000"}};

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kRoot,        kStem,        kSelfAttention,   kGqaProjections, kQkNorms,    kDenseMlp,
    kExperts,     kExpertParts, kCorrectedRouter, kSharedExperts,  kLayerNorms, kFinalNorm,
    kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"exaone4"};
constexpr const char* kModelTypesMoe[] = {"exaone_moe"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,    kModelKeys,
    kHeadKeys, kTiedKeys,   kWindowKeys, kRopeScalingKeys,
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,        kKvHeadKeys,     kMlpKeys,         kModelKeys,        kHeadKeys,
    kTiedKeys,        kWindowKeys,     kRopeScalingKeys, kRoutedExpertKeys, kUsedExpertKeys,
    kExpertWidthKeys, kNormalisedKeys, kSharedCountKeys, kScaleKeys,        kFirstDenseKeys,
    kGroupKeys,       kSigmoidKeys,
};
// "LLLG" says what layer_types says.
constexpr ConfigAlias kAliases[] = {{"sliding_window_pattern", ""}};
constexpr ConfigAlias kAliasesMoe[] = {
    {"sliding_window_pattern", ""},
    {"num_experts", "n_routed_experts"},
    {"num_local_experts", "n_routed_experts"},
    {"num_shared_experts", "n_shared_experts"},
    {"first_last_k_dense_replace", "first_k_dense_replace"},
};
constexpr ConfigDefault kDefaults[] = {{"rms_norm_eps", "1e-5"}, {"rope_theta", "10000"}};
constexpr ConfigDefault kDefaultsMoe[] = {
    {"sliding_window", "4096"},
    {"n_routed_experts", "64"},
    {"num_experts_per_tok", "8"},
    {"n_shared_experts", "1"},
    {"first_k_dense_replace", "1"},
    {"moe_layer_freq", "1"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kExaone4;
const Family kExaone4 = {
    .architecture = "Exaone4ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "exaone4",
    .prefix = "Exaone4",
    .module_k = "transformers.models.exaone4.modeling_exaone4",
    .module_t = "",
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kExaone3;
const Family kExaone3 = {
    .architecture = "ExaoneForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "exaone",
    .prefix = "Llama",
    .module_k = "transformers.models.llama.modeling_llama",
    .module_t = "",
    .keys = kKeys3,
    .defaults = kDefaults3,
    .aliases = kAliases3,
    .tree = kTree3,
};

extern const Family kExaoneMoe;
const Family kExaoneMoe = {
    .architecture = "ExaoneMoeForCausalLM",
    .model_types = kModelTypesMoe,
    .gguf_arch = "exaone-moe",
    .prefix = "ExaoneMoe",
    .module_k = "transformers.models.exaone_moe.modeling_exaone_moe",
    .module_t = "",
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysMoe,
    .defaults = kDefaultsMoe,
    .aliases = kAliasesMoe,
    .tree = kTreeMoe,
};

}  // namespace ktx::families
