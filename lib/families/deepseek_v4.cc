// DeepSeek-V4 (Flash and Pro): several residual streams around every part of a layer
// (hyper-connections); attention with one key for all heads over a window, and in most layers over
// entries that are made of the positions before it, every 4 positions one, of which an indexer
// chooses some, or every 128; experts in every layer, in the first ones by token id.
//
// Not here: the prediction layers, which converters leave out.
#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kGroupedLinear{"{P}GroupedLinear"};
constexpr ClassRow kUnweightedNorm{"{P}UnweightedRMSNorm"};
constexpr ClassRow kHyperConnection{"{P}HyperConnection"};
constexpr ClassRow kHyperHead{"{P}HyperHead"};
constexpr ClassRow kChosenCompressor{"{P}CSACompressor"};
constexpr ClassRow kWholeCompressor{"{P}HCACompressor"};
constexpr ClassRow kIndexerClass{"{P}Indexer"};
constexpr ClassRow kScorerClass{"{P}IndexerScorer"};
constexpr ClassRow kMoeBlock{"{P}SparseMoeBlock"};
constexpr ClassRow kExpertsClass{"{P}Experts"};
constexpr ClassRow kTableRouter{"{P}HashRouter"};
constexpr ClassRow kChoosingRouter{"{P}TopKRouter"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kForCausalLMGenerating}};
constexpr ModuleRow kSelfAttention[] = {
    {Role::CompressedAttention,
     "L.self_attn",
     &kAttention,
     When::Always,
     {{"sinks", "B.attn_sinks.weight"}}},
    {Role::QAProj,
     "L.self_attn.q_a_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_q_a.weight"}}},
    {Role::QANorm,
     "L.self_attn.q_a_norm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_q_a_norm.weight"}}},
    {Role::QBProj,
     "L.self_attn.q_b_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_q_b.weight"}}},
    {Role::QNorm, "L.self_attn.q_b_norm", &kUnweightedNorm},
    {Role::KProj, "L.self_attn.kv_proj", &kLinear, When::Always, {{"weight", "B.attn_kv.weight"}}},
    {Role::KNorm,
     "L.self_attn.kv_norm",
     &kNorm,
     When::Always,
     {{"weight", "B.attn_kv_a_norm.weight"}}},
    {Role::OAProj,
     "L.self_attn.o_a_proj",
     &kGroupedLinear,
     When::Always,
     {{"weight", "B.attn_output_a.weight"}}},
    {Role::OProj,
     "L.self_attn.o_b_proj",
     &kLinear,
     When::Always,
     {{"weight", "B.attn_output_b.weight"}}},
};
constexpr ParamRow kPositionBias{"position_bias", "B.attn_compressor_ape.weight"};
constexpr ModuleRow kCompressor[] = {
    {Role::Compressor,
     "L.self_attn.compressor",
     &kChosenCompressor,
     When::Indexer,
     {kPositionBias}},
    {Role::Compressor,
     "L.self_attn.compressor",
     &kWholeCompressor,
     When::CompressedAll,
     {kPositionBias}},
    {Role::CompressorKvProj,
     "L.self_attn.compressor.kv_proj",
     &kLinear,
     When::Compressed,
     {{"weight", "B.attn_compressor_kv.weight"}}},
    {Role::CompressorGateProj,
     "L.self_attn.compressor.gate_proj",
     &kLinear,
     When::Compressed,
     {{"weight", "B.attn_compressor_gate.weight"}}},
    {Role::CompressorNorm,
     "L.self_attn.compressor.kv_norm",
     &kNorm,
     When::Compressed,
     {{"weight", "B.attn_compressor_norm.weight"}}},
    {Role::Rotary, "L.self_attn.compressor.rotary_emb", &kRotary, When::Compressed},
};
constexpr ModuleRow kIndexer[] = {
    {Role::Indexer,
     "L.self_attn.compressor.indexer",
     &kIndexerClass,
     When::Indexer,
     {{"position_bias", "B.indexer_compressor_ape.weight"}}},
    {Role::CompressorKvProj,
     "L.self_attn.compressor.indexer.kv_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer_compressor_kv.weight"}}},
    {Role::CompressorGateProj,
     "L.self_attn.compressor.indexer.gate_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer_compressor_gate.weight"}}},
    {Role::CompressorNorm,
     "L.self_attn.compressor.indexer.kv_norm",
     &kNorm,
     When::Indexer,
     {{"weight", "B.indexer_compressor_norm.weight"}}},
    {Role::IndexQProj,
     "L.self_attn.compressor.indexer.q_b_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.attn_q_b.weight"}}},
    {Role::Rotary, "L.self_attn.compressor.indexer.rotary_emb", &kRotary, When::Indexer},
    {Role::IndexScorer, "L.self_attn.compressor.indexer.scorer", &kScorerClass, When::Indexer},
    {Role::IndexWeightsProj,
     "L.self_attn.compressor.indexer.scorer.weights_proj",
     &kLinear,
     When::Indexer,
     {{"weight", "B.indexer.proj.weight"}}},
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kMoeBlock, When::Moe},
    {Role::Router,
     "L.mlp.gate",
     &kTableRouter,
     When::ExpertTable,
     {{"weight", "B.ffn_gate_inp.weight"}, {"table", "B.ffn_gate_tid2eid.weight"}}},
    {Role::Router,
     "L.mlp.gate",
     &kChoosingRouter,
     When::NoExpertTable,
     {{"weight", "B.ffn_gate_inp.weight"}, kCorrectionBias}},
    {Role::Experts,
     "L.mlp.experts",
     &kExpertsClass,
     When::Moe,
     {kStackedGate, kStackedUp, kStackedDown}},
};
constexpr ModuleRow kLayerStreams[] = {
    {Role::AttentionStreams,
     "L.attn_hc",
     &kHyperConnection,
     When::Always,
     {{"fn", "B.hc_attn_fn.weight"},
      {"base", "B.hc_attn_base.weight"},
      {"scale", "B.hc_attn_scale.weight"}}},
    {Role::StreamsNorm, "L.attn_hc.input_norm", &kUnweightedNorm},
    {Role::MlpStreams,
     "L.ffn_hc",
     &kHyperConnection,
     When::Always,
     {{"fn", "B.hc_ffn_fn.weight"},
      {"base", "B.hc_ffn_base.weight"},
      {"scale", "B.hc_ffn_scale.weight"}}},
    {Role::StreamsNorm, "L.ffn_hc.input_norm", &kUnweightedNorm},
};
constexpr ModuleRow kHeadStreams[] = {
    {Role::HeadStreams,
     "model.hc_head",
     &kHyperHead,
     When::Always,
     {{"fn", "output_hc_fn.weight"},
      {"base", "output_hc_base.weight"},
      {"scale", "output_hc_scale.weight"}}},
    {Role::StreamsNorm, "model.hc_head.input_norm", &kUnweightedNorm},
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,        kStem,          kSelfAttention, kCompressor,   kIndexer,
    kExperts,     kSharedExperts, kLayerNorms,    kLayerStreams, kFinalNorm,
    kModelRotary, kHeadStreams,   kHead,
};

constexpr const char* kModelTypes[] = {"deepseek_v4"};

constexpr ConfigKey kAttentionKeys[] = {
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "1", "1"},
    {"head_dim", "attention.key_length", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"qk_rope_head_dim", "rope.dimension_count", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"q_lora_rank", "attention.q_lora_rank", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "", ""},
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"layer_types", "attention.compress_ratios", KeyRead::CompressedLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"compress_rope_theta", "attention.compress_rope_freq_base", KeyRead::Float, KeyKind::Positive,
     KeyWeight::Plain, "", ""},
    {"o_groups", "attention.output_group_count", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"o_lora_rank", "attention.output_lora_rank", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_n_heads", "attention.indexer.head_count", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_head_dim", "attention.indexer.key_length", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"index_topk", "attention.indexer.top_k", KeyRead::Int, KeyKind::Count, KeyWeight::Structural,
     "", ""},
};
constexpr ConfigKey kStreamKeys[] = {
    {"hc_mult", "hyper_connection.count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations", KeyRead::Int, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"hc_eps", "hyper_connection.epsilon", KeyRead::Float, KeyKind::Positive, KeyWeight::Plain, "",
     "1e-6"},
};
constexpr ConfigKey kRouterKeys[] = {
    {"num_hash_layers", "hash_layer_count", KeyRead::Int, KeyKind::Natural, KeyWeight::Structural,
     "", ""},
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "sqrtsoftplus", "sqrtsoftplus"},
    {"routed_scaling_factor", "expert_weights_scale", KeyRead::Scale, KeyKind::Positive,
     KeyWeight::Plain, "1", "1.5"},
    {"swiglu_limit", "swiglu_clamp_exp", KeyRead::FirstNumber, KeyKind::Amount, KeyWeight::Plain,
     "", "10"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,        kModelKeys,        kAttentionKeys,  kStreamKeys,
    kTiedKeys,        kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys,
    kSharedCountKeys, kRouterKeys,       kNormalisedKeys, kRopeScalingKeys,
};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"compress_rate_csa", "compress_rates.compressed_sparse_attention"},
    {"compress_rate_hca", "compress_rates.heavily_compressed_attention"},
    {"partial_rotary_factor", ""},  // qk_rope_head_dim says it
    {"intermediate_size", ""},      // no layer is dense
};
constexpr ConfigDefault kDefaults[] = {
    {"num_key_value_heads", "1"},
    {"n_shared_experts", "1"},
    {"num_hash_layers", "3"},
    {"scoring_func", "\"sqrtsoftplus\""},
    {"norm_topk_prob", "true"},
    {"routed_scaling_factor", "1.5"},
    {"swiglu_limit", "10"},
    {"hidden_act", "\"silu\""},
    {"hc_mult", "4"},
    {"hc_sinkhorn_iters", "20"},
    {"hc_eps", "1e-6"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
    {"compress_rope_theta", "160000"},
    {"num_nextn_predict_layers", "0"},
};

}  // namespace

extern const Family kDeepseekV4;
const Family kDeepseekV4 = {
    .architecture = "DeepseekV4ForCausalLM",
    .model_types = kModelTypes,
    .gguf_arch = "deepseek4",
    .prefix = "DeepseekV4",
    .module_k = "transformers.models.deepseek_v4.modeling_deepseek_v4",
    .module_t = "",
    .attention = AttentionKind::Compressed,
    .interleaved_rope = true,
    .layers = LayerPattern::AllMoe,
    .experts_key = "n_routed_experts",
    .expert_width_key = "moe_intermediate_size",
    .shared = SharedKind::Count,
    .router = RouterKind::RootOfSoftplus,
    .keys = kKeys,
    .defaults = kDefaults,
    .aliases = kAliases,
    .tree = kTree,
};

}  // namespace ktx::families
