// Laguna: a gate of attention's output by softplus, with a number for each head or for each
// element, heads that differ by layer, and experts as DeepSeek V3's without groups behind the first
// dense layers. Where it has windows, every fourth layer, the first among them, sees the whole
// context; these rotate a part of a head by yarn, and those with a window whole heads.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    corrected_router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsOrList, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem,  kGqaAttention,  kQkNorms,    kHeadGates, kDenseMlp,    kMoe,
    kExpertParts, kSharedExperts, kLayerNorms, kFinalNorm, kTwoRotaries, kHead};

constexpr ConfigKey kOwnKeys[] = {
    {"gating", "", KeyRead::GateKind, KeyKind::Text, KeyWeight::Structural, "per-head", "per-head"},
    {"local_rotary_factor", "rope.dimension_count_swa", KeyRead::RotaryFactor, KeyKind::Positive,
     KeyWeight::Plain, "", ""},
    {"router_logit_softcapping", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain, "0", "0"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,
                                                kKvHeadKeys,
                                                kMlpKeys,
                                                kModelKeys,
                                                kHeadKeys,
                                                kTiedKeys,
                                                kAttentionBiasKeys,
                                                kWindowKeys,
                                                kLocalRopeKeys,
                                                kRopeScalingKeys,
                                                kNumExpertsKeys,
                                                kUsedExpertKeys,
                                                kExpertWidthKeys,
                                                kSharedWidthKeys,
                                                kScaleKeys,
                                                kAlwaysNormalisedKeys,
                                                kFirstDenseKeys,
                                                kSigmoidKeys,
                                                kOwnKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"},
    {"moe_routed_scaling_factor", "routed_scaling_factor"},
    {"moe_router_logit_softcapping", "router_logit_softcapping"},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"attention_bias", "false"},
    {"head_dim", "128"},
    {"gating", "\"per-head\""},
    {"num_experts", "256"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "512"},
    {"first_k_dense_replace", "1"},
    {"routed_scaling_factor", "1"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "500000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kLaguna = {
    .architecture = "LagunaForCausalLM",
    .model_types = "laguna",
    .gguf_arch = "laguna",
    .bias = BiasKind::Config,
    .partial_rotary = true,
    .windows = WindowPattern::PeriodFromFull,
    .window_period = 4,
    .attention_gate = HeadGate::Softplus,
    .head_gates = true,
    .experts = {LayerPattern::FirstDense, "num_experts", "moe_intermediate_size", SharedKind::Width,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
