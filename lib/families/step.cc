// Step-3.5 and 3.7 Flash: a gate for each head of attention's output, and more heads in layers with
// a window. Those rotate whole heads, the others the half of one, which alone llama3 scaling
// changes. Experts are as DeepSeek V3's without groups; units of the last layers clamp what their
// activation gives. Files hold 1 + w for the weights of norms.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRootClass{
    "Step3p7ForConditionalGeneration", "transformers.Step3p7ForConditionalGeneration",
    "Step3p7PreTrainedModel K.Step3p7PreTrainedModel " KTX_PRETRAINED KTX_GENERATION};

constexpr ModuleRow kRoot[] = {
    {Role::Root, "", &kRootClass},
    {Role::Model, "model", &kTextModel},
    embedding("model.embed_tokens"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    corrected_router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsModule, When::Moe),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,          kGqaAttention, kQkNorms,    kHeadGates, kMoe,         kExpertParts,
    kSharedExperts, kDenseMlp,     kLayerNorms, kFinalNorm, kTwoRotaries, kHead};

// That layers without a window rotate the half of a head goes with the architecture.
constexpr ConfigKey kOwnKeys[] = {
    count("head_dim", "attention.key_length", "=head_dim", "=head_dim"),
    {"partial_rotary_factor", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "0.5",
     "1"},
    {"local_rotary_factor", "", KeyRead::Nothing, KeyKind::Positive, KeyWeight::Plain, "1", "1"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,         kKvHeadKeys,           kMlpKeys,         kModelKeys,
    kTiedKeys,         kWindowKeys,           kLocalRopeKeys,   kRopeScalingKeys,
    kRoutedExpertKeys, kUsedExpertKeys,       kExpertWidthKeys, kSharedWidthKeys,
    kScaleKeys,        kAlwaysNormalisedKeys, kFirstDenseKeys,  kSigmoidKeys,
    kOwnKeys,          kUnitLimitKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_attention_groups", "num_key_value_heads"},
    {"moe_num_experts", "n_routed_experts"},
    {"num_local_experts", "n_routed_experts"},
    {"moe_top_k", "num_experts_per_tok"},
    {"share_expert_dim", "shared_expert_intermediate_size"},
    {"share_expert_dims", "shared_expert_intermediate_size"},
    {"moe_router_scaling_factor", "routed_scaling_factor"},
    {"norm_expert_weight", "norm_topk_prob"},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"head_dim", "128"},
    {"n_routed_experts", "288"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "1280"},
    {"shared_expert_intermediate_size", "1280"},
    {"first_k_dense_replace", "3"},
    {"routed_scaling_factor", "1"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kStep35 = {
    .architecture = "Step3p7ForConditionalGeneration",
    .model_types = "step3p5 step3p7",
    .gguf_arch = "step35",
    .prefix = "Step3p7",
    .module_k = "transformers.models.step3p7.modeling_step3p7",
    .partial_rotary = true,
    .windows = WindowPattern::PeriodFromFull,
    .window_period = 4,
    .head_gates = true,
    .experts = {LayerPattern::FirstDense, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Width, RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
