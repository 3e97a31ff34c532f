// dots.llm1: Qwen3's attention, the first layers dense, then DeepSeek V3's routing with shared
// experts.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,  kGqaAttention, kQkNorms, kDenseMlp,
                                                kDeepseekMoe, kLayerNorms,   kTreeEnd};

constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys,       kAttentionBiasKeys,
                                                kRopeScalingKeys, kDeepseekExpertKeys,
                                                kScaleKeys,       kSigmoidRoutingKeys};
constexpr ConfigAlias kAliases[] = {{"num_local_experts", "n_routed_experts"}};
// Its windows begin at max_window_layers, which no layer of a released model reaches.
constexpr ConfigDefault kOwnDefaults[] = {
    {"attention_bias", "false"}, {"use_sliding_window", "false"}, {"first_k_dense_replace", "0"},
    {"norm_topk_prob", "false"}, {"routed_scaling_factor", "1"},  {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kDots1 = {
    .architecture = "Dots1ForCausalLM",
    .model_types = "dots1",
    .gguf_arch = "dots1",
    .bias = BiasKind::Config,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
