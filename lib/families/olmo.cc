// OLMo 2, dense: norms stand behind attention and the feed-forward part instead of before them,
// and those of queries and keys take all heads together. Rotary exists at model level only.
// OLMo 3, which is stored under the same GGUF architecture, has windows besides. OLMoE has norms
// before the parts, and in every layer experts whose weights are not normalised.
#include "lib/families/key_rows.h"
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
constexpr const char* kModelTypesMoe[] = {"olmoe"};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys, kKvHeadKeys, kMlpKeys,           kModelKeys,       kHeadKeys,
    kTiedKeys, kWindowKeys, kAttentionBiasKeys, kRopeScalingKeys,
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
