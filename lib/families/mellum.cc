// Mellum 2: Qwen3's attention and experts, with a sliding window in the layers that layer_types
// names; those are rotated by a base of their own, without scaling.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock},
    router("L.mlp.gate", &kTopKRouter),
    experts("L.mlp.experts", &kExpertsOrList),
};
// One module in transformers, with frequencies for each kind of layer.
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kQkNorms,
                                                kExperts,    kExpertParts,  kLayerNorms,
                                                kFinalNorm,  kTwoRotaries,  kHead};

// Never written to a GGUF.
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,       kKvHeadKeys,     kUnusedMlpKeys,     kModelKeys,           kHeadKeys,
    kTiedKeys,       kWindowKeys,     kAttentionBiasKeys, kRopeScalingKeys,     kLocalRopeKeys,
    kNumExpertsKeys, kUsedExpertKeys, kExpertWidthKeys,   kAlwaysNormalisedKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"num_mtp_layers", "num_nextn_predict_layers"},
};
constexpr ConfigDefault kDefaults[] = {
    {"num_experts", "64"},       {"num_experts_per_tok", "8"}, {"moe_intermediate_size", "896"},
    {"norm_topk_prob", "true"},  {"sliding_window", "1024"},   {"rms_norm_eps", "1e-6"},
    {"attention_bias", "false"}, {"rope_theta", "500000"},
};

}  // namespace

const Family kMellum = {
    .architecture = "MellumForCausalLM",
    .model_types = "mellum",
    .gguf_arch = "mellum",
    .bias = BiasKind::Config,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .experts = {LayerPattern::AllMoe, "num_experts", "moe_intermediate_size", SharedKind::None,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
