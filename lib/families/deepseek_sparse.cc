// DeepSeek-V3.2 and GLM-5 (also 5.1 and 5.2): DeepSeek V3 whose attention reads a part of the
// context, which an indexer with keys of its own chooses (DeepSeek sparse attention). GLM-5.2 has
// indexers in some layers only; the others take the positions of the last one before them.
//
// Both rotate pairs (2i, 2i+1) of attention. V3.2's indexer rotates halves.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kIndexerClass{"{P}Indexer"};
constexpr ClassRow kLayerNorm{"torch.nn.modules.normalization.LayerNorm",
                              "torch.nn.LayerNorm LayerNorm"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Mla, "L.self_attn", &kAttention}};
constexpr ModuleRow kIndexer[] = {
    {Role::Indexer, "L.self_attn.indexer", &kIndexerClass, When::Indexer},
    {Role::IndexQProj,
     "L.self_attn.indexer.wq_b",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.attn_q_b.weight"}}},
    {Role::IndexKProj,
     "L.self_attn.indexer.wk",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.attn_k.weight"}}},
    {Role::IndexKNorm,
     "L.self_attn.indexer.k_norm",
     &kLayerNorm,
     When::Indexer,
     {{"weight", "B.indexer.k_norm.weight"}, {"bias", "B.indexer.k_norm.bias"}}},
    {Role::IndexWeightsProj,
     "L.self_attn.indexer.weights_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.proj.weight"}}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,        kSelfAttention,   kMlaProjections, kIndexer,    kDenseMlp,
    kMoeExperts,  kExpertParts, kCorrectedRouter, kSharedExperts,  kLayerNorms, kFinalNorm,
    kModelRotary, kHead,
};

constexpr const char* kModelTypesV32[] = {"deepseek_v32"};
constexpr const char* kModelTypesGlm[] = {"glm_moe_dsa"};

constexpr ConfigKey kScaleKeysV32[] = {
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "2.5"},
};
constexpr ConfigKey kIndexerKeys[] = {
    {"index_n_heads", "attention.indexer.head_count", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_head_dim", "attention.indexer.key_length", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_topk", "attention.indexer.top_k", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "", ""},
};
constexpr ConfigKey kIndexerTypeKeys[] = {
    {"indexer_types", "attention.indexer.types", KeyRead::IndexerTypes, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeysV32[] = {
    kSizeKeys,        kMlaKvHeadKeys,   kMlpKeys,        kModelKeys,       kTiedKeys,
    kRopeScalingKeys, kMscaleKeys,      kMlaKeys,        kIndexerKeys,     kRoutedExpertKeys,
    kUsedExpertKeys,  kExpertWidthKeys, kNormalisedKeys, kSharedCountKeys, kScaleKeysV32,
    kFirstDenseKeys,  kGroupKeys,       kSigmoidKeys,
};
constexpr std::span<const ConfigKey> kKeysGlm[] = {
    kSizeKeys,         kMlaKvHeadKeys,  kMlpKeys,         kModelKeys,      kTiedKeys,
    kRopeScalingKeys,  kMscaleKeys,     kMlaKeys,         kIndexerKeys,    kIndexerTypeKeys,
    kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys, kNormalisedKeys, kSharedCountKeys,
    kScaleKeysV32,     kFirstDenseKeys, kGroupKeys,       kSigmoidKeys,
};
// transformers 5 has a second name for qk_rope_head_dim, head_dim.
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"head_dim", ""},
};
constexpr ConfigDefault kDefaultsV32[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "3"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "256"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "2048"},
    {"q_lora_rank", "1536"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "8"},
    {"topk_group", "4"},
    {"num_nextn_predict_layers", "0"},
    {"index_n_heads", "64"},
    {"index_head_dim", "128"},
    {"index_topk", "2048"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaultsGlm[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "3"},
    {"moe_layer_freq", "1"},
    {"n_routed_experts", "256"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "2048"},
    {"q_lora_rank", "2048"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2.5"},
    {"n_group", "1"},
    {"topk_group", "1"},
    {"num_nextn_predict_layers", "0"},
    {"index_n_heads", "32"},
    {"index_head_dim", "128"},
    {"index_topk", "2048"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
};

}  // namespace

extern const Family kDeepseekV32;
const Family kDeepseekV32 = {
    .architecture = "DeepseekV32ForCausalLM",
    .model_types = kModelTypesV32,
    .gguf_arch = "deepseek32",
    .prefix = "DeepseekV32",
    .module_k = "transformers.models.deepseek_v32.modeling_deepseek_v32",
    .module_t = "",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysV32,
    .defaults = kDefaultsV32,
    .aliases = kAliases,
    .tree = kTree,
    .predicts = true,
};

extern const Family kGlmMoeDsa;
const Family kGlmMoeDsa = {
    .architecture = "GlmMoeDsaForCausalLM",
    .model_types = kModelTypesGlm,
    .gguf_arch = "glm-dsa",
    .prefix = "GlmMoeDsa",
    .module_k = "transformers.models.glm_moe_dsa.modeling_glm_moe_dsa",
    .module_t = "",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .interleaved_index = true,
    .layers = LayerPattern::FirstDense,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysGlm,
    .defaults = kDefaultsGlm,
    .aliases = kAliases,
    .tree = kTree,
    .predicts = true,
};

}  // namespace ktx::families
