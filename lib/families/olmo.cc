// OLMo 2, dense: norms stand behind attention and the feed-forward part instead of before them,
// and those of queries and keys take all heads together. Rotary exists at model level only.
// OLMo 3, which is stored under the same GGUF architecture, has windows besides, in all but every
// fourth layer; layers with a window are rotated without scaling. OLMoE has norms
// before the parts, and in every layer experts whose weights are not normalised. The first OLMo has
// layer norms without weights, and clamps queries, keys and values, as OLMoE may.
#include <cstdint>

#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kQkNorms,
                                                kDenseMlp,   kPostNorms,    kTreeEnd};

// transformers has one module for both, with frequencies by the type of the layer.
constexpr std::span<const ModuleRow> kTree3[] = {
    kCausalStem, kGqaAttention, kQkNorms, kDenseMlp, kPostNorms, kFinalNorm, kTwoRotaries, kHead};

constexpr ClassRow kRouterClass{"{P}TopKRouter",
                                "torch.nn.modules.linear.Linear torch.nn.Linear Linear"};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock},
    router("L.mlp.gate", &kRouterClass),
    experts("L.mlp.experts", &kExpertsOrList),
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {kCausalStem,  kGqaAttention, kQkNorms, kExperts,
                                                   kExpertParts, kLayerNorms,   kTreeEnd};

constexpr ClassRow kPlainNorm{"{P}LayerNorm"};
constexpr ModuleRow kPlainNorms[] = {
    {Role::AttentionNorm, "L.input_layernorm", &kPlainNorm},
    {Role::MlpNorm, "L.post_attention_layernorm", &kPlainNorm},
    {Role::FinalNorm, "model.norm", &kPlainNorm},
};
constexpr std::span<const ModuleRow> kTree1[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                 kPlainNorms, kModelRotary,  kHead};

constexpr GgufSign kSigns3[] = {
    {.key = "attention.sliding_window", .min = 1, .max = UINT64_MAX, .always_written = true},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kWindowKeys, kAttentionBiasKeys,
                                                kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeys3[] = {kLlamaKeys, kWindowKeys, kAttentionBiasKeys,
                                                 kRopeScalingKeys, kLocalRopeKeys};
constexpr ConfigDefault kDefaults3[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "500000"},
    {"sliding_window", "4096"},
};
constexpr ConfigKey kClampKeys[] = {
    amount("clip_qkv", "attention.clamp_kqv", "0", "0"),
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kLlamaKeys,      kAttentionBiasKeys, kClampKeys,        kRopeScalingKeys,
    kNumExpertsKeys, kUsedExpertKeys,    kNotNormalisedKeys};
constexpr std::span<const ConfigKey> kKeys1[] = {
    kSizeKeys, kKvHeadKeys,        kMlpKeys,   kLayerNormModelKeys, kHeadKeys,
    kTiedKeys, kAttentionBiasKeys, kClampKeys, kRopeScalingKeys};
constexpr ConfigDefault kDefaults1[] = {
    {"attention_bias", "false"}, {"layer_norm_eps", "1e-5"}, {"rope_theta", "10000"}};
constexpr ConfigDefault kDefaultsMoe[] = {
    {"attention_bias", "false"}, {"num_experts", "64"},    {"num_experts_per_tok", "8"},
    {"norm_topk_prob", "false"}, {"rms_norm_eps", "1e-5"}, {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

const Family kOlmo = {
    .architecture = "OlmoForCausalLM",
    .model_types = "olmo",
    .gguf_arch = "olmo",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layer_norms = true,
    .rows = {kTree1, kKeys1, kDefaults1},
};

const Family kOlmo2 = {
    .architecture = "Olmo2ForCausalLM",
    .model_types = "olmo2",
    .gguf_arch = "olmo2",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .rows = {kTree, kKeys, kDefaults},
};

const Family kOlmo3 = {
    .architecture = "Olmo3ForCausalLM",
    .model_types = "olmo3",
    .gguf_arch = "olmo2",
    .gguf_signs = kSigns3,
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .rows = {kTree3, kKeys3, kDefaults3},
};

const Family kOlmoe = {
    .architecture = "OlmoeForCausalLM",
    .model_types = "olmoe",
    .gguf_arch = "olmoe",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .experts = {LayerPattern::AllMoe, "num_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxByConfig},
    .rows = {kTreeMoe, kKeysMoe, kDefaultsMoe, kNumLocalExpertsAliases},
};

}  // namespace ktx::families
