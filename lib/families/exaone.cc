// EXAONE 4: norms behind attention and feed-forward part, queries and keys normed by head. Models
// with windows have them in all but every fourth layer, and rotate those layers alone. K-EXAONE:
// the same attention with norms before the parts, and experts as DeepSeek V3's. EXAONE 3 and 3.5
// (and Deep) are Llama under other config keys, in transformers, too.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kMoeBlock{"{P}SparseMoEBlock"};

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kQkNorms,
                                                kDenseMlp,   kPostNorms,    kTreeEnd};
constexpr std::span<const ModuleRow> kTree3[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                 kTreeEnd};
constexpr std::span<const ConfigKey> kKeys3[] = {kLlamaKeys, kRopeScalingKeys};
constexpr ConfigAlias kAliases3[] = {
    {"num_layers", "num_hidden_layers"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"activation_function", "hidden_act"},
};
constexpr ConfigDefault kDefaults3[] = {{"rms_norm_eps", "1e-5"}, {"rope_theta", "500000"}};

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kCausalStem,  kGqaAttention,    kQkNorms,       kDenseMlp,   kExperts,
    kExpertParts, kCorrectedRouter, kSharedExperts, kLayerNorms, kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kWindowKeys, kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeysMoe[] = {kLlamaKeys,       kWindowKeys,
                                                   kRopeScalingKeys, kDeepseekExpertKeys,
                                                   kScaleKeys,       kSigmoidRoutingKeys};
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
constexpr ConfigDefault kOwnDefaultsMoe[] = {
    {"sliding_window", "4096"}, {"n_routed_experts", "64"},     {"num_experts_per_tok", "8"},
    {"n_shared_experts", "1"},  {"first_k_dense_replace", "1"}, {"routed_scaling_factor", "2.5"},
    {"rms_norm_eps", "1e-5"},   {"rope_theta", "10000"},
};
constexpr auto kDefaultsMoe = join(kOwnDefaultsMoe, kSigmoidRoutingDefaults);

}  // namespace

const Family kExaone4 = {
    .architecture = "Exaone4ForCausalLM",
    .model_types = "exaone4",
    .gguf_arch = "exaone4",
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kExaone3 = {
    .architecture = "ExaoneForCausalLM",
    .model_types = "exaone",
    .gguf_arch = "exaone",
    .prefix = "Llama",
    .module_k = "transformers.models.llama.modeling_llama",
    .rows = {kTree3, kKeys3, kDefaults3, kAliases3},
};

const Family kExaoneMoe = {
    .architecture = "ExaoneMoeForCausalLM",
    .model_types = "exaone_moe",
    .gguf_arch = "exaone-moe",
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rotates_windows = true,
    .experts = kDeepseekExperts,
    .rows = {kTreeMoe, kKeysMoe, kDefaultsMoe, kAliasesMoe},
};

}  // namespace ktx::families
