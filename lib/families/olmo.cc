// OLMo 2, dense: norms stand behind attention and the feed-forward part instead of before them,
// and those of queries and keys take all heads together. Rotary exists at model level only.
// OLMo 3, which is stored under the same GGUF architecture, has windows besides, in all but every
// fourth layer; layers with a window are rotated without scaling. OLMoE has norms
// before the parts, and in every layer experts whose weights are not normalised.
#include "lib/families/key_rows.h"

#include <cstdint>
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

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

// transformers has one module for both, with frequencies by the type of the layer.
constexpr ModuleRow kRotaries[] = {
    {Role::Rotary, "model.rotary_emb", &kRotary},
    {Role::LocalRotary, "model.rotary_emb_local", &kRotary},
};
constexpr std::span<const ModuleRow> kTree3[] = {
    kRoot,     kStem,      kSelfAttention, kGqaProjections, kQkNorms,
    kDenseMlp, kPostNorms, kFinalNorm,     kRotaries,       kHead,
};

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouterClass{"{P}TopKRouter",
                                "torch.nn.modules.linear.Linear torch.nn.Linear Linear"};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock},
    {Role::Router,
     "L.mlp.gate",
     &kRouterClass,
     When::Always,
     {{"weight", "B.ffn_gate_inp.weight"}}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTreeMoe[] = {
    kRoot,        kStem,       kSelfAttention, kGqaProjections, kQkNorms, kExperts,
    kExpertParts, kLayerNorms, kFinalNorm,     kModelRotary,    kHead,
};

constexpr const char* kModelTypes[] = {"olmo2"};
constexpr const char* kModelTypes3[] = {"olmo3"};
constexpr GgufSign kSigns3[] = {
    {.key = "attention.sliding_window", .min = 1, .max = UINT64_MAX, .always_written = true},
};
constexpr const char* kModelTypesMoe[] = {"olmoe"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,       kHeadKeys,
    kTiedKeys, kWindowKeys, kAttentionBiasKeys, kRopeScalingKeys,
};
constexpr ConfigKey kLocalRopeKeys[] = {
    {"rope_local_base_freq", "rope.freq_base_swa", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "=rope_theta", "=rope_theta"},
};
constexpr std::span<const ConfigKey> kKeys3[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,       kHeadKeys,
    kTiedKeys, kWindowKeys, kAttentionBiasKeys, kRopeScalingKeys, kLocalRopeKeys,
};
constexpr ConfigDefault kDefaults3[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "500000"},
    {"sliding_window", "4096"},
};
constexpr ConfigKey kExpertKeys[] = {
    {"num_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kNormKeys[] = {
    {"norm_topk_prob", "expert_weights_norm", KeyRead::Flag, KeyKind::Flag, KeyWeight::Plain,
     "false", "false"},
};
constexpr ConfigKey kClampKeys[] = {
    {"clip_qkv", "attention.clamp_kqv", KeyRead::Float, KeyKind::Amount, KeyWeight::Plain, "0",
     "0"},
};
constexpr std::span<const ConfigKey> kKeysMoe[] = {
    kSizeKeys,          kKvHeadKeys, kMlpKeys,         kModelKeys,  kHeadKeys,       kTiedKeys,
    kAttentionBiasKeys, kClampKeys,  kRopeScalingKeys, kExpertKeys, kUsedExpertKeys, kNormKeys,
};
constexpr ConfigAlias kAliasesMoe[] = {{"num_local_experts", "num_experts"}};
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

extern const Family kOlmo2;
const Family kOlmo2 = {
    .architecture = "Olmo2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "olmo2",
    .prefix = "Olmo2",
    .module_k = "transformers.models.olmo2.modeling_olmo2",
    .module_t = "",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .keys = kKeys,
    .defaults = kDefaults,
    .tree = kTree,
};

extern const Family kOlmo3;
const Family kOlmo3 = {
    .architecture = "Olmo3ForCausalLM",
    .model_types = kModelTypes3,
    .gguf_arch = "olmo2",
    .gguf_signs = kSigns3,
    .prefix = "Olmo3",
    .module_k = "transformers.models.olmo3.modeling_olmo3",
    .module_t = "",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .windows = WindowPattern::Period,
    .window_period = 4,
    .keys = kKeys3,
    .defaults = kDefaults3,
    .tree = kTree3,
};

extern const Family kOlmoe;
const Family kOlmoe = {
    .architecture = "OlmoeForCausalLM",
    .model_types = kModelTypesMoe,
    .gguf_arch = "olmoe",
    .prefix = "Olmoe",
    .module_k = "transformers.models.olmoe.modeling_olmoe",
    .module_t = "",
    .bias = BiasKind::Config,
    .qk_norm = QkNormKind::Row,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_experts",
    .expert_width_key = "intermediate_size",
    .router = RouterKind::SoftmaxByConfig,
    .keys = kKeysMoe,
    .defaults = kDefaultsMoe,
    .aliases = kAliasesMoe,
    .tree = kTreeMoe,
};

}  // namespace ktx::families
