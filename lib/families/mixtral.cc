// Mixtral: Llama's attention, and in every layer experts named w1 (gate), w2
// (down) and w3 (up) below `block_sparse_moe`. Its GGUF architecture is "llama".
#include "lib/families/key_rows.h"

#include <cstdint>
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kExpert{"{P}BlockSparseTop2MLP"};

// Files of before 2024-04 hold one tensor per expert.
constexpr ModuleRow kMoe[] = {
    {Role::Moe, "L.block_sparse_moe", &kSparseMoeBlock},
    router("L.block_sparse_moe.gate", &kLinearRouter),
    {Role::Experts,
     "L.block_sparse_moe.experts",
     &kExpertList,
     When::Always,
     {{"gate", "B.ffn_gate_exps.weight | B.ffn_gate.{expert}.weight"},
      {"up", "B.ffn_up_exps.weight | B.ffn_up.{expert}.weight"},
      {"down", "B.ffn_down_exps.weight | B.ffn_down.{expert}.weight"}}},
    {Role::Expert, "L.block_sparse_moe.experts.{expert}", &kExpert},
    {Role::GateProj, "L.block_sparse_moe.experts.{expert}.w1", &kLinear, When::Always, {{"gate"}}},
    {Role::DownProj, "L.block_sparse_moe.experts.{expert}.w2", &kLinear, When::Always, {{"down"}}},
    {Role::UpProj, "L.block_sparse_moe.experts.{expert}.w3", &kLinear, When::Always, {{"up"}}},
    {Role::Activation, "L.block_sparse_moe.experts.{expert}.act_fn", &kSilu},
};
constexpr std::span<const ModuleRow> kTree[] = {kPlainRoot,      kStem,        kSdpaAttention,
                                                kGqaProjections, kLayerRotary, kMoe,
                                                kLayerNorms,     kFinalNorm,   kHead};

// Llama's GGUFs have no experts.
constexpr GgufSign kSigns[] = {
    {.key = "expert_count", .min = 1, .max = UINT64_MAX, .always_written = true},
};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kRopeScalingKeys, kNumLocalExpertsKeys,
                                                kUsedExpertKeys};
constexpr ConfigDefault kDefaults[] = {
    {"num_local_experts", "8"},
    {"num_experts_per_tok", "2"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "1000000"},
};

}  // namespace

const Family kMixtral = {
    .architecture = "MixtralForCausalLM",
    .model_types = "mixtral",
    .gguf_arch = "llama",
    .gguf_signs = kSigns,
    .module_k = "ktransformers.models.modeling_mixtral",
    .module_t = "transformers.models.mixtral.modeling_mixtral",
    .interleaved_rope = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::SoftmaxNormalised},
    .rows = {kTree, kKeys, kDefaults, kNumExpertsAliases},
};

}  // namespace ktx::families
