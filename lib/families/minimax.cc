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

constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kRouterClass{"{P}TopKRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {{Role::Attention, "L.self_attn", &kAttention}};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock},
    {Role::Router,
     "L.mlp.gate",
     &kRouterClass,
     When::Always,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsOrList,
     When::Always,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,    kStem,        kSelfAttention, kGqaProjections, kOptionalQkNorms,
    kExperts, kExpertParts, kLayerNorms,    kFinalNorm,      kModelRotary,
    kHead,
};

constexpr ClassRow kTextModel{"{P}TextModel", "transformers.{P}TextModel", KTX_PRETRAINED};
constexpr ClassRow kDenseClass{"{P}DenseMLP"};
constexpr ClassRow kExpertsClass{"{P}Experts"};
constexpr ClassRow kIndexerClass{"{P}Indexer"};
constexpr ModuleRow kTextStem[] = {
    {Role::Model, "model", &kTextModel},
    {Role::Embedding,
     "model.embed_tokens",
     &kEmbedding,
     When::Always,
     {{"weight", "token_embd.weight"}}},
    {Role::LayerList, "model.layers", &kModuleList},
    {Role::Layer, "model.layers.{layer}", &kDecoderLayer},
};
constexpr ModuleRow kBlockIndexer[] = {
    {Role::Indexer, "L.self_attn.indexer", &kIndexerClass, When::Indexer},
    {Role::IndexQProj,
     "L.self_attn.indexer.q_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.q_proj.weight"}}},
    {Role::IndexKProj,
     "L.self_attn.indexer.k_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.k_proj.weight"}}},
    {Role::IndexQNorm,
     "L.self_attn.indexer.q_norm",
     &kNorm,
     When::Indexer,
     {{"weight", "B.indexer.q_norm.weight"}}},
    {Role::IndexKNorm,
     "L.self_attn.indexer.k_norm",
     &kNorm,
     When::Indexer,
     {{"weight", "B.indexer.k_norm.weight"}}},
};
constexpr ModuleRow kClampedMlp[] = {
    {Role::Mlp, "L.mlp", &kDenseClass, When::Dense},
    {Role::GateUpProj,
     "L.mlp.gate_up_proj",
     &kLinear,
     When::Dense,
     {{"gate", "B.ffn_gate.weight"}, {"up", "B.ffn_up.weight"}}},
    {Role::DownProj, "L.mlp.down_proj", &kLinear, When::Dense, {{"weight", "B.ffn_down.weight"}}},
};
constexpr ModuleRow kSharedExpertsM3[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router,
     "L.mlp.gate",
     &kRouterClass,
     When::Moe,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsClass,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
    {Role::SharedMlp, "L.mlp.shared_experts", &kDenseClass, When::Moe},
    {Role::GateUpProj,
     "L.mlp.shared_experts.gate_up_proj",
     &kLinear,
     When::Moe,
     {{"gate", "B.ffn_gate_shexp.weight"}, {"up", "B.ffn_up_shexp.weight"}}},
    {Role::DownProj,
     "L.mlp.shared_experts.down_proj",
     &kLinear,
     When::Moe,
     {{"weight", "B.ffn_down_shexp.weight"}}},
};
constexpr std::span<const ModuleRow> kTreeM3[] = {
    kRoot,       kTextStem,        kSelfAttention, kGqaProjections, kQkNorms,     kBlockIndexer,
    kClampedMlp, kSharedExpertsM3, kLayerNorms,    kFinalNorm,      kModelRotary, kHead,
};

constexpr const char* kModelTypes[] = {"minimax_m2"};
constexpr ConfigKey kExpertKeys[] = {
    {"num_local_experts", "expert_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
};
// The width of an expert, under both keys of a GGUF.
constexpr ConfigKey kWidthKeys[] = {
    {"intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kRotaryKeys[] = {
    {"head_dim", "attention.key_length", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "=head_dim", "=head_dim"},
    {"rotary_dim", "rope.dimension_count", KeyRead::Int, KeyKind::Count, KeyWeight::Plain,
     "=head_dim", ""},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,   kKvHeadKeys,      kWidthKeys,  kModelKeys,      kRotaryKeys,  kTiedKeys,
    kQkNormKeys, kRopeScalingKeys, kExpertKeys, kUsedExpertKeys, kSigmoidKeys,
};
constexpr ConfigAlias kAliases[] = {{"num_experts", "num_local_experts"}};

constexpr const char* kModelTypesM3[] = {"minimax_m3", "minimax_m3_vl_text", "minimax_m3_vl"};
constexpr ConfigKey kDenseWidthKeys[] = {
    {"dense_intermediate_size", "feed_forward_length", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kSharedWidthKeys[] = {
    {"shared_expert_intermediate_size", "", KeyRead::SharedSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kScaleKeysM3[] = {
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "2"},
};
constexpr ConfigKey kIndexerKeys[] = {
    {"index_n_heads", "attention.indexer.head_count", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_head_dim", "attention.indexer.key_length", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_topk_blocks", "attention.indexer.top_k", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_block_size", "attention.indexer.block_size", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_local_blocks", "attention.indexer.local_blocks", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"layer_types", "", KeyRead::SparseLayers, KeyKind::Texts, KeyWeight::Structural, "", ""},
};
constexpr std::span<const ConfigKey> kKeysM3[] = {
    kSizeKeys,       kKvHeadKeys,     kDenseWidthKeys,  kModelKeys,
    kRotaryKeys,     kTiedKeys,       kIndexerKeys,     kExpertKeys,
    kUsedExpertKeys, kWidthKeys,      kSharedWidthKeys, kScaleKeysM3,
    kNormalisedKeys, kFirstDenseKeys, kSigmoidKeys,     kRopeScalingKeys,
};
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

extern const Family kMiniMaxM2;
const Family kMiniMaxM2 = {
    .architecture = "MiniMaxM2ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "minimax-m2",
    .prefix = "MiniMaxM2",
    .module_k = "transformers.models.minimax_m2.modeling_minimax_m2",
    .module_t = "",
    .qk_norm = QkNormKind::Row,
    .partial_rotary = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

extern const Family kMiniMaxM3;
const Family kMiniMaxM3 = {
    .architecture = "MiniMaxM3VLForCausalLM",
    .model_types = kModelTypesM3,
    .gguf_arch = "minimax-m3",
    .prefix = "MiniMaxM3VL",
    .module_k = "transformers.models.minimax_m3_vl.modeling_minimax_m3_vl",
    .module_t = "",
    .partial_rotary = true,
    .activation = Activation::GptOss,
    .layers = LayerPattern::FirstDense,
    .experts_key = "num_local_experts",
    .expert_width_key = "intermediate_size",
    .dense_width_key = "dense_intermediate_size",
    .shared = SharedKind::Width,
    .router = RouterKind::GroupsByTwoBest,
    .keys = kKeysM3,
    .defaults = kDefaultsM3,
    .aliases = kAliasesM3,
    .tree = kTreeM3,
};

}  // namespace ktx::families
