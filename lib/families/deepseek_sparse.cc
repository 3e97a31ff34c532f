// DeepSeek-V3.2 and GLM-5 (also 5.1 and 5.2): DeepSeek V3 whose attention reads a part of the
// context, which an indexer with keys of its own chooses (DeepSeek sparse attention). GLM-5.2 has
// indexers in some layers only; the others take the positions of the last one before them.
//
// Both rotate pairs (2i, 2i+1) of attention. V3.2's indexer rotates halves.
#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kIndexer[] = {
    {Role::Indexer, "L.self_attn.indexer", &kIndexerModule, When::Indexer},
    linear(Role::IndexQProj, "L.self_attn.indexer.wq_b", "B.indexer.attn_q_b.", When::Indexer),
    linear(Role::IndexKProj, "L.self_attn.indexer.wk", "B.indexer.attn_k.", When::Indexer),
    layer_norm(Role::IndexKNorm, "L.self_attn.indexer.k_norm", "B.indexer.k_norm.", When::Indexer),
    linear(Role::IndexWeightsProj, "L.self_attn.indexer.weights_proj", "B.indexer.proj.",
           When::Indexer),
};
constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kLatentAttention, kMlaProjections,
                                                kIndexer,    kDenseMlp,        kDeepseekMoe,
                                                kLayerNorms, kTreeEnd};

constexpr ConfigKey kIndexerKeys[] = {
    count("index_n_heads", "attention.indexer.head_count"),
    count("index_head_dim", "attention.indexer.key_length"),
    count("index_topk", "attention.indexer.top_k"),
};
constexpr ConfigKey kIndexerTypeKeys[] = {
    {"indexer_types", "attention.indexer.types", KeyRead::IndexerTypes, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeysV32[] = {
    kLatentModelKeys,    kMscaleKeys,  kMlaKeys,           kIndexerKeys,
    kDeepseekExpertKeys, kScaleKeysV3, kSigmoidRoutingKeys};
constexpr std::span<const ConfigKey> kKeysGlm[] = {
    kLatentModelKeys, kMscaleKeys,         kMlaKeys,     kIndexerKeys,
    kIndexerTypeKeys, kDeepseekExpertKeys, kScaleKeysV3, kSigmoidRoutingKeys};
constexpr ConfigDefault kOwnDefaultsV32[] = {
    {"attention_bias", "false"},
    {"first_k_dense_replace", "3"},
    {"n_routed_experts", "256"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "2048"},
    {"q_lora_rank", "1536"},
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
constexpr auto kDefaultsV32 = join(kOwnDefaultsV32, kSigmoidRoutingDefaults);
constexpr ConfigDefault kOwnDefaultsGlm[] = {
    {"attention_bias", "false"},       {"first_k_dense_replace", "3"},
    {"n_routed_experts", "256"},       {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},      {"moe_intermediate_size", "2048"},
    {"q_lora_rank", "2048"},           {"routed_scaling_factor", "2.5"},
    {"num_nextn_predict_layers", "0"}, {"index_n_heads", "32"},
    {"index_head_dim", "128"},         {"index_topk", "2048"},
    {"rms_norm_eps", "1e-5"},          {"rope_theta", "10000"},
};
constexpr auto kDefaultsGlm = join(kOwnDefaultsGlm, kSigmoidRoutingDefaults);

}  // namespace

const Family kDeepseekV32 = {
    .architecture = "DeepseekV32ForCausalLM",
    .model_types = "deepseek_v32",
    .gguf_arch = "deepseek32",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeysV32, kDefaultsV32, kLatentAliases},
    .predicts = true,
};

const Family kGlmMoeDsa = {
    .architecture = "GlmMoeDsaForCausalLM",
    .model_types = "glm_moe_dsa",
    .gguf_arch = "glm-dsa",
    .attention = AttentionKind::Mla,
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .interleaved_index = true,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeysGlm, kDefaultsGlm, kLatentAliases},
    .predicts = true,
};

}  // namespace ktx::families
