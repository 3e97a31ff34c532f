// DeepSeek-V4 (Flash and Pro): several residual streams around every part of a layer
// (hyper-connections); attention with one key for all heads over a window, and in most layers over
// entries that are made of the positions before it, every 4 positions one, of which an indexer
// chooses some, or every 128; experts in every layer, in the first ones by token id.
//
// Not here: the prediction layers, which converters leave out.
#include "lib/families/stream_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kGroupedLinear{"{P}GroupedLinear"};
constexpr ClassRow kChosenCompressor{"{P}CSACompressor"};
constexpr ClassRow kWholeCompressor{"{P}HCACompressor"};
constexpr ClassRow kScorerClass{"{P}IndexerScorer"};
constexpr ClassRow kTableRouter{"{P}HashRouter"};

constexpr ModuleRow kSelfAttention[] = {
    {Role::CompressedAttention,
     "L.self_attn",
     &kAttention,
     When::Always,
     {{"sinks", "B.attn_sinks.weight"}}},
    linear(Role::QAProj, "L.self_attn.q_a_proj", "B.attn_q_a."),
    norm(Role::QANorm, "L.self_attn.q_a_norm", "B.attn_q_a_norm."),
    linear(Role::QBProj, "L.self_attn.q_b_proj", "B.attn_q_b."),
    {Role::QNorm, "L.self_attn.q_b_norm", &kUnweightedNorm},
    linear(Role::KProj, "L.self_attn.kv_proj", "B.attn_kv."),
    norm(Role::KNorm, "L.self_attn.kv_norm", "B.attn_kv_a_norm."),
    weighted(Role::OAProj, "L.self_attn.o_a_proj", &kGroupedLinear, "B.attn_output_a."),
    linear(Role::OProj, "L.self_attn.o_b_proj", "B.attn_output_b."),
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
    linear(Role::CompressorKvProj, "L.self_attn.compressor.kv_proj", "B.attn_compressor_kv.",
           When::Compressed),
    linear(Role::CompressorGateProj, "L.self_attn.compressor.gate_proj", "B.attn_compressor_gate.",
           When::Compressed),
    norm(Role::CompressorNorm, "L.self_attn.compressor.kv_norm", "B.attn_compressor_norm.",
         When::Compressed),
    {Role::Rotary, "L.self_attn.compressor.rotary_emb", &kRotary, When::Compressed},
};
constexpr ModuleRow kIndexer[] = {
    {Role::Indexer,
     "L.self_attn.compressor.indexer",
     &kIndexerModule,
     When::Indexer,
     {{"position_bias", "B.indexer_compressor_ape.weight"}}},
    linear(Role::CompressorKvProj, "L.self_attn.compressor.indexer.kv_proj",
           "B.indexer_compressor_kv.", When::Indexer),
    linear(Role::CompressorGateProj, "L.self_attn.compressor.indexer.gate_proj",
           "B.indexer_compressor_gate.", When::Indexer),
    norm(Role::CompressorNorm, "L.self_attn.compressor.indexer.kv_norm",
         "B.indexer_compressor_norm.", When::Indexer),
    linear(Role::IndexQProj, "L.self_attn.compressor.indexer.q_b_proj", "B.indexer.attn_q_b.",
           When::Indexer),
    {Role::Rotary, "L.self_attn.compressor.indexer.rotary_emb", &kRotary, When::Indexer},
    {Role::IndexScorer, "L.self_attn.compressor.indexer.scorer", &kScorerClass, When::Indexer},
    linear(Role::IndexWeightsProj, "L.self_attn.compressor.indexer.scorer.weights_proj",
           "B.indexer.proj.", When::Indexer),
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    {Role::Router,
     "L.mlp.gate",
     &kTableRouter,
     When::ExpertTable,
     {{"weight", "B.ffn_gate_inp.weight"}, {"table", "B.ffn_gate_tid2eid.weight"}}},
    corrected_router("L.mlp.gate", &kTopKRouter, When::NoExpertTable),
    experts("L.mlp.experts", &kExpertsModule, When::Moe),
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
    kCausalStem, kSelfAttention, kCompressor, kIndexer,     kExperts,     kSharedExperts,
    kLayerNorms, kLayerStreams,  kFinalNorm,  kModelRotary, kHeadStreams, kHead};

constexpr ConfigKey kAttentionKeys[] = {
    count("num_key_value_heads", "attention.head_count_kv", "1", "1"),
    count("head_dim", "attention.key_length"),
    count("qk_rope_head_dim", "rope.dimension_count"),
    count("q_lora_rank", "attention.q_lora_rank"),
    count("sliding_window", "attention.sliding_window"),
    {"layer_types", "attention.compress_ratios", KeyRead::CompressedLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    positive("compress_rope_theta", "attention.compress_rope_freq_base"),
    count("o_groups", "attention.output_group_count"),
    count("o_lora_rank", "attention.output_lora_rank"),
    count("index_n_heads", "attention.indexer.head_count"),
    count("index_head_dim", "attention.indexer.key_length"),
    count("index_topk", "attention.indexer.top_k"),
};
constexpr ConfigKey kRouterKeys[] = {
    natural("num_hash_layers", "hash_layer_count"),
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "sqrtsoftplus", "sqrtsoftplus"},
    scale("routed_scaling_factor", "expert_weights_scale", "1", "1.5"),
    {"swiglu_limit", "swiglu_clamp_exp", KeyRead::FirstNumber, KeyKind::Amount, KeyWeight::Plain,
     "", "10"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,        kModelKeys,        kAttentionKeys,  kStreamKeys,
    kTiedKeys,        kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys,
    kSharedCountKeys, kRouterKeys,       kNormalisedKeys, kRopeScalingKeys};
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

const Family kDeepseekV4 = {
    .architecture = "DeepseekV4ForCausalLM",
    .model_types = "deepseek_v4",
    .gguf_arch = "deepseek4",
    .attention = AttentionKind::Compressed,
    .interleaved_rope = true,
    .experts = {LayerPattern::AllMoe, "n_routed_experts", "moe_intermediate_size",
                SharedKind::Count, RouterKind::RootOfSoftplus},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
