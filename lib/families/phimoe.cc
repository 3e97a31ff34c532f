// Phi-3.5-MoE: layer norms and biases everywhere, the head's too, and experts that are chosen in
// rounds, each by the softmax of what is near the best (RouterKind::SparseMixer). Rotary positions
// have factors of two lengths (longrope) and a size of their own, which GGUFs do not say: their
// rope.scaling.attn_factor is the usual one.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kMoeBlock[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock},
    router("L.mlp.router", &kTopKRouter),
    experts("L.mlp.experts", &kExpertsModule),
};
constexpr ModuleRow kBiasedHead[] = {
    {Role::Head,
     "lm_head",
     &kLinear,
     When::Logits,
     {{"weight", "output.weight | token_embd.weight"}, {"bias", "output.bias"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem,      kSdpaAttention, kBiasedQkv,
                                                kBiasedOutput,    kMoeBlock,      kBiasedLayerNorms,
                                                kBiasedFinalNorm, kModelRotary,   kBiasedHead};

constexpr ConfigKey kNormKeys[] = {
    kVocabKey,
    longest_text(),
    positive("layer_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-5"),
    positive("rope_theta", "rope.freq_base", "10000", "10000"),
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,      kKvHeadKeys,      kMlpKeys,
    kNormKeys,      kHeadKeys,        kTiedKeys,
    kWindowKeys,    kRopeScalingKeys, kNumLocalExpertsKeys,
    kUsedExpertKeys};
constexpr ConfigAlias kAliases[] = {
    {"rms_norm_eps", "layer_norm_eps"},
    {"num_experts", "num_local_experts"},
};
constexpr ConfigDefault kDefaults[] = {
    {"layer_norm_eps", "1e-5"},
    {"num_local_experts", "16"},
    {"num_experts_per_tok", "2"},
    {"rope_scaling.long_mscale", "1.243163121016122"},
    {"rope_scaling.short_mscale", "1.243163121016122"},
    {"rope_theta", "1000000"},
};

}  // namespace

const Family kPhiMoe = {
    .architecture = "PhiMoEForCausalLM",
    .model_types = "phimoe",
    .gguf_arch = "phimoe",
    .prefix = "Phimoe",
    .windows = WindowPattern::All,
    .layer_norms = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::SparseMixer},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
