// MiniMax-M2 and M3.
//
// M2: in every layer experts with a correction bias and no shared one; the norms of queries and
// keys take all heads together, and a part of each head is rotated. Paths and classes are
// transformers'; MiniMax's own code calls the feed-forward part `block_sparse_moe`.
//
// M3 (its language model): the first layers are dense and attend to all positions; the others have
// routed experts with a shared one and attend to blocks of positions, which an indexer chooses for
// each key head. Norms of queries and keys are by head, and units are gpt-oss' clamped ones.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock},
    corrected_router("L.mlp.gate", &kTopKRouter),
    experts("L.mlp.experts", &kExpertsOrList),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kCausalStem, kGqaAttention, kOptionalQkNorms, kExperts, kExpertParts, kLayerNorms, kTreeEnd};

constexpr ClassRow kDenseClass{"{P}DenseMLP"};
constexpr ModuleRow kTextStem[] = {
    {Role::Model, "model", &kTextModel},
    embedding("model.embed_tokens"),
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kBlockIndexer[] = {
    {Role::Indexer, "L.self_attn.indexer", &kIndexerModule, When::Indexer},
    linear(Role::IndexQProj, "L.self_attn.indexer.q_proj", "B.indexer.q_proj.", When::Indexer),
    linear(Role::IndexKProj, "L.self_attn.indexer.k_proj", "B.indexer.k_proj.", When::Indexer),
    norm(Role::IndexQNorm, "L.self_attn.indexer.q_norm", "B.indexer.q_norm.", When::Indexer),
    norm(Role::IndexKNorm, "L.self_attn.indexer.k_norm", "B.indexer.k_norm.", When::Indexer),
};
constexpr ModuleRow kClampedMlp[] = {
    {Role::Mlp, "L.mlp", &kDenseClass, When::Dense},
    gate_up("L.mlp.gate_up_proj", "B.ffn_gate.weight", "B.ffn_up.weight", When::Dense),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down.", When::Dense),
};
constexpr ModuleRow kSharedExpertsM3[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    corrected_router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsModule, When::Moe),
    {Role::SharedMlp, "L.mlp.shared_experts", &kDenseClass, When::Moe},
    gate_up("L.mlp.shared_experts.gate_up_proj", "B.ffn_gate_shexp.weight", "B.ffn_up_shexp.weight",
            When::Moe),
    linear(Role::DownProj, "L.mlp.shared_experts.down_proj", "B.ffn_down_shexp.", When::Moe),
};
constexpr std::span<const ModuleRow> kTreeM3[] = {kCausalRoot,      kTextStem,     kGqaAttention,
                                                  kQkNorms,         kBlockIndexer, kClampedMlp,
                                                  kSharedExpertsM3, kLayerNorms,   kTreeEnd};

// The width of an expert, under both keys of a GGUF.
constexpr ConfigKey kWidthKeys[] = {
    {"intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kRotaryKeys[] = {
    count("head_dim", "attention.key_length", "=head_dim", "=head_dim"),
    {"rotary_dim", "rope.dimension_count", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "=head_dim", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,   kKvHeadKeys,      kWidthKeys,           kModelKeys,      kRotaryKeys, kTiedKeys,
    kQkNormKeys, kRopeScalingKeys, kNumLocalExpertsKeys, kUsedExpertKeys, kSigmoidKeys};

constexpr ConfigKey kDenseWidthKeys[] = {
    count("dense_intermediate_size", "feed_forward_length"),
};
constexpr ConfigKey kSharedWidthKeys[] = {
    {"shared_expert_intermediate_size", "", KeyRead::SharedSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kScaleKeysM3[] = {
    scale("routed_scaling_factor", "expert_weights_scale", "1", "2"),
};
constexpr ConfigKey kIndexerKeys[] = {
    count("index_n_heads", "attention.indexer.head_count"),
    count("index_head_dim", "attention.indexer.key_length"),
    count("index_topk_blocks", "attention.indexer.top_k"),
    count("index_block_size", "attention.indexer.block_size"),
    count("index_local_blocks", "attention.indexer.local_blocks"),
    {"layer_types", "", KeyRead::SparseLayers, KeyKind::Texts, KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeysM3[] = {
    kSizeKeys,       kKvHeadKeys,     kDenseWidthKeys,  kModelKeys,
    kRotaryKeys,     kTiedKeys,       kIndexerKeys,     kNumLocalExpertsKeys,
    kUsedExpertKeys, kWidthKeys,      kSharedWidthKeys, kScaleKeysM3,
    kNormalisedKeys, kFirstDenseKeys, kSigmoidKeys,     kRopeScalingKeys};
constexpr ConfigAlias kAliasesM3[] = {
    {"num_experts", "num_local_experts"},
    {"shared_intermediate_size", "shared_expert_intermediate_size"},
    {"partial_rotary_factor", ""},  // rotary_dim says it
    {"sparse_attention_config.sparse_num_index_heads", "index_n_heads"},
    {"sparse_attention_config.sparse_index_dim", "index_head_dim"},
    {"sparse_attention_config.sparse_topk_blocks", "index_topk_blocks"},
    {"sparse_attention_config.sparse_block_size", "index_block_size"},
    {"sparse_attention_config.sparse_local_block", "index_local_blocks"},
};
constexpr ConfigDefault kDefaultsM3[] = {
    {"num_local_experts", "128"},
    {"num_experts_per_tok", "4"},
    {"intermediate_size", "3072"},
    {"dense_intermediate_size", "12288"},
    {"shared_expert_intermediate_size", "3072"},
    {"head_dim", "128"},
    {"rotary_dim", "64"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "2"},
    {"first_k_dense_replace", "0"},
    {"moe_layer_freq", "1"},
    {"index_n_heads", "4"},
    {"index_head_dim", "128"},
    {"index_topk_blocks", "16"},
    {"index_block_size", "128"},
    {"index_local_blocks", "1"},
    {"swiglu_limit", "7"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "5000000"},
};
constexpr ConfigDefault kDefaults[] = {
    {"use_qk_norm", "true"},         {"num_local_experts", "256"},    {"num_experts_per_tok", "8"},
    {"topk_method", "\"noaux_tc\""}, {"scoring_func", "\"sigmoid\""}, {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1"},  {"rms_norm_eps", "1e-6"},        {"rope_theta", "5000000"},
};

}  // namespace

const Family kMiniMaxM2 = {
    .architecture = "MiniMaxM2ForCausalLM",
    .model_types = "minimax_m2",
    .gguf_arch = "minimax-m2",
    .qk_norm = QkNormKind::Row,
    .partial_rotary = true,
    .experts = {LayerPattern::AllMoe, "num_local_experts", "intermediate_size", SharedKind::None,
                RouterKind::GroupsByTwoBest},
    .rows = {kTree, kKeys, kDefaults, kNumExpertsAliases},
};

const Family kMiniMaxM3 = {
    .architecture = "MiniMaxM3VLForCausalLM",
    .model_types = "minimax_m3 minimax_m3_vl_text minimax_m3_vl",
    .gguf_arch = "minimax-m3",
    .module_k = "transformers.models.minimax_m3_vl.modeling_minimax_m3_vl",
    .partial_rotary = true,
    .activation = Activation::GptOss,
    .experts = {LayerPattern::FirstDense, "num_local_experts", "intermediate_size",
                SharedKind::Width, RouterKind::GroupsByTwoBest},
    .dense_width_key = "dense_intermediate_size",
    .rows = {kTreeM3, kKeysM3, kDefaultsM3, kAliasesM3},
};

}  // namespace ktx::families
