// Qwen4-Exp (Qwen4-preview: Qwen3.8-Flash-Next), its language model: Qwen3.5's delta nets, gated
// attention and experts between several residual streams. A part reads a gated mean of them and
// gives to each; no other norm stands before it, and the head reads such a mean, too. Delta nets
// have a sigmoid as their output's gate. Attention reads pools of positions that an indexer
// chooses by the mean of each pool's keys. Before one layer, a table of n-grams adds what it has of
// the last tokens.
//
// In its tree the indexer's index_qk_proj is index_q_proj and index_k_proj, as in files. GGUFs hold
// the norms' weights plus one, and the numbers of the table's hash, which otherwise follow from the
// config.
//
// Not here: the prediction layer, tables of several layers (no converter writes them), and the part
// that sees.
#include "lib/families/delta_net_rows.h"
#include "lib/families/stream_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRootClass{
    "Qwen4ExpForCausalLM", "transformers.Qwen4ExpForCausalLM",
    "Qwen4ExpPreTrainedModel K.Qwen4ExpPreTrainedModel " KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kPoolIndexer{"{P}QSAIndexer"};
constexpr ClassRow kNgramLayer{"{P}PLELayer"};
constexpr ClassRow kNgramEmbedding{"{P}NGramEmbedding"};
constexpr ClassRow kGatedResidual{"{P}GatedResidual"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kRootClass}};
constexpr ModuleRow kIndexer[] = {
    {Role::Indexer, "L.self_attn.indexer", &kPoolIndexer, When::Indexer},
    linear(Role::IndexQProj, "L.self_attn.indexer.index_q_proj", "B.indexer.q_proj.",
           When::Indexer),
    linear(Role::IndexKProj, "L.self_attn.indexer.index_k_proj", "B.indexer.k_proj.",
           When::Indexer),
    norm(Role::IndexQNorm, "L.self_attn.indexer.q_layernorm", "B.indexer.q_norm.", When::Indexer),
    norm(Role::IndexKNorm, "L.self_attn.indexer.k_layernorm", "B.indexer.k_norm.", When::Indexer),
};
constexpr ModuleRow kExperts[] = {
    {Role::Moe, "L.mlp", &kSparseMoeBlock, When::Moe},
    router("L.mlp.gate", &kTopKRouter, When::Moe),
    experts("L.mlp.experts", &kExpertsModule, When::Moe),
};
constexpr ModuleRow kNgrams[] = {
    {Role::NgramPart, "L.ple", &kNgramLayer, When::Ngrams, {{"conv", "B.ple_conv1d.weight"}}},
    {Role::Ngrams, "L.ple.ple_embedding", &kNgramEmbedding, When::Ngrams},
    weighted(Role::NgramTable, "L.ple.ple_embedding.ngram_embedding", &kEmbedding,
             "per_layer_token_embd.", When::Ngrams),
    linear(Role::NgramKeyProj, "L.ple.key_proj", "B.ple_key.", When::Ngrams),
    linear(Role::NgramValueProj, "L.ple.value_proj", "B.ple_value.", When::Ngrams),
    norm(Role::NgramKeyNorm, "L.ple.norm_key", "B.ple_norm_key.", When::Ngrams),
    norm(Role::NgramQueryNorm, "L.ple.norm_query", "B.ple_norm_query.", When::Ngrams),
    norm(Role::NgramConvNorm, "L.ple.norm_conv", "B.ple_norm_conv.", When::Ngrams),
    {Role::NgramConv, "L.ple.conv1d", &kConv1d, When::Ngrams},
};
constexpr ModuleRow kLayerGates[] = {
    {Role::AttentionStreams, "L.attn_hyper_connection", &kGatedResidual},
    norm(Role::StreamsNorm, "L.attn_hyper_connection.hc_norm", "B.hc_attn_norm."),
    linear(Role::StreamsDownProj, "L.attn_hyper_connection.input_mix_weight_down",
           "B.hc_attn_down."),
    linear(Role::StreamsUpProj, "L.attn_hyper_connection.input_mix_weight_up", "B.hc_attn_up."),
    linear(Role::StreamsGiveProj, "L.attn_hyper_connection.block_inject_weight",
           "B.hc_attn_inject."),
    {Role::MlpStreams, "L.mlp_hyper_connection", &kGatedResidual},
    norm(Role::StreamsNorm, "L.mlp_hyper_connection.hc_norm", "B.hc_ffn_norm."),
    linear(Role::StreamsDownProj, "L.mlp_hyper_connection.input_mix_weight_down", "B.hc_ffn_down."),
    linear(Role::StreamsUpProj, "L.mlp_hyper_connection.input_mix_weight_up", "B.hc_ffn_up."),
    linear(Role::StreamsGiveProj, "L.mlp_hyper_connection.block_inject_weight", "B.hc_ffn_inject."),
};
constexpr ModuleRow kHeadGates[] = {
    {Role::HeadStreams, "model.hyper_connection_mixer", &kGatedResidual},
    norm(Role::StreamsNorm, "model.hyper_connection_mixer.hc_norm", "output_hc_norm."),
    linear(Role::StreamsDownProj, "model.hyper_connection_mixer.input_mix_weight_down",
           "output_hc_down."),
    linear(Role::StreamsUpProj, "model.hyper_connection_mixer.input_mix_weight_up",
           "output_hc_up."),
};
constexpr std::span<const ModuleRow> kTree[] = {
    kRoot,           kStem,          kDeltaNetRows,      kSplitGates,
    kDeltaNetOutput, kFullAttention, kFullAttentionQkv,  kFullAttentionRest,
    kIndexer,        kExperts,       kGatedSharedExpert, kNgrams,
    kLayerGates,     kModelRotary,   kHeadGates,         kHead};

constexpr ConfigKey kOwnKeys[] = {
    {"output_gate_type", "", KeyRead::Nothing, KeyKind::Text, KeyWeight::Plain, "sigmoid", ""},
    count("hc_mult", "hyper_connection.count"),
    count("hc_lowrank", "hyper_connection.low_rank"),
    count("index_n_heads", "attention.indexer.head_count"),
    count("index_head_dim", "attention.indexer.key_length"),
    count("index_topk", "attention.indexer.top_k"),
    {"index_kpool", "attention.compress_ratios", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"ple_layer_ids", "ple.layers", KeyRead::OneBased, KeyKind::Counts, KeyWeight::Structural, "",
     ""},
    count("ngram_size", "ple.ngram_size"),
    count("heads_per_ngram", "ple.heads_per_ngram"),
    count("ple_conv_kernel_size", "ple.conv_kernel"),
    natural("ple_eos_token_id", "ple.eos_token_id", "", "=file"),
    {"ple_head_dim", "embedding_length_per_layer_input", KeyRead::NgramWidth, KeyKind::Count,
     KeyWeight::Structural, "", "=file"},
    {"ple_layer_multipliers", "ple.layer_multipliers", KeyRead::WideNumbers, KeyKind::Texts,
     KeyWeight::Structural, "", "=file"},
    {"ple_head_vocab_sizes", "ple.head_vocab_sizes", KeyRead::WideNumbers, KeyKind::Texts,
     KeyWeight::Structural, "", "=file"},
    {"ple_head_offsets", "ple.head_offsets", KeyRead::WideNumbers, KeyKind::Texts,
     KeyWeight::Structural, "", "=file"},
    {"ple_table_rows", "", KeyRead::NgramRows, KeyKind::Count, KeyWeight::Plain, "", "=file"},
};
constexpr std::span<const ConfigKey> kKeys[] = {kSizeKeys,
                                                kKvHeadKeys,
                                                kModelKeys,
                                                kHeadKeys,
                                                kTiedKeys,
                                                kRopeScalingKeys,
                                                kNumExpertsKeys,
                                                kUsedExpertKeys,
                                                kExpertWidthKeys,
                                                kSharedWidthKeys,
                                                kAlwaysNormalisedKeys,
                                                kDeltaNetKeys,
                                                kOwnKeys};
constexpr ConfigAlias kAliases[] = {
    {"num_local_experts", "num_experts"}, {"hc_count", "hc_mult"},
    {"indexer_n_heads", "index_n_heads"}, {"indexer_head_dim", "index_head_dim"},
    {"indexer_budget", "index_topk"},     {"indexer_compress_ratio", "index_kpool"},
};
constexpr ConfigDefault kOwnDefaults[] = {
    {"hc_mult", "4"},
    {"hc_lowrank", "320"},
    {"ngram_size", "3"},
    {"heads_per_ngram", "8"},
    {"ple_conv_kernel_size", "4"},
    {"ngram_vocab_size_base", "20000000"},
    {"make_ngram_vocab_size_divisible_by", "128"},
    {"seed", "1234"},
};
constexpr auto kDefaults = join(kDeltaNetDefaults, kWideExpertDefaults, kOwnDefaults);

}  // namespace

const Family kQwen4Exp = {
    .architecture = "Qwen4ExpForCausalLM",
    .model_types = "qwen4_exp_text qwen4_exp",
    .gguf_arch = "qwen4exp",
    .prefix = "Qwen4ExpText",
    .module_k = "transformers.models.qwen4_exp.modeling_qwen4_exp",
    .partial_rotary = true,
    .gated_attention = true,
    .tiled_value_heads = true,
    .experts = {LayerPattern::AllMoe, "num_experts", "moe_intermediate_size", SharedKind::Width,
                RouterKind::SoftmaxByConfig},
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
