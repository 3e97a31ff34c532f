// GLM-5.3-Flash (GLM-5-Next), its language model: several residual streams run around every part of
// a layer (hyper-connections), and the head reads their mean. Three of four layers have Kimi delta
// attention with bounded decays. The fourth has latent attention without positions, for which an
// indexer chooses pools of positions by keys that are made of each pool's. The first layers are
// dense, then DeepSeek V3's routing; all units are clamped.
//
// A GGUF marks the layers with a delta net by 0 key heads. Two converters differ in the name of the
// architecture and of two tensors: those of the first files (glm5next, indexer_compressor_*) are
// those of DeepSeek-V4, llama.cpp's own are glm5-next and indexer.kpool_*.
//
// Not here: the prediction layer, and the part that sees.
#include "lib/families/channel_delta_rows.h"
#include "lib/families/layer_norm_rows.h"
#include "lib/families/stream_rows.h"

namespace ktx::families {
namespace {

constexpr ClassRow kRootClass{
    "Glm5NextForConditionalGeneration", "transformers.Glm5NextForConditionalGeneration",
    "Glm5NextPreTrainedModel K.Glm5NextPreTrainedModel " KTX_PRETRAINED KTX_GENERATION};
constexpr ClassRow kLinearAttention{"{P}LinearAttention"};

constexpr ModuleRow kRoot[] = {{Role::Root, "", &kRootClass}};
constexpr ModuleRow kDelta[] = {channel_delta(&kLinearAttention)};
constexpr ModuleRow kIndexer[] = {
    {Role::Indexer,
     "L.self_attn.indexer",
     &kIndexerModule,
     When::Indexer,
     {{"position_bias", "B.indexer_compressor_ape.weight | B.indexer.kpool_ape.weight"},
      {"pool_gate", "B.indexer_compressor_gate.weight | B.indexer.kpool_gate.weight"}}},
    linear(Role::IndexQProj, "L.self_attn.indexer.wq_b", "B.indexer.attn_q_b.", When::Indexer),
    linear(Role::IndexKProj, "L.self_attn.indexer.wk", "B.indexer.attn_k.", When::Indexer),
    layer_norm(Role::IndexKNorm, "L.self_attn.indexer.k_norm", "B.indexer.k_norm.", When::Indexer),
    linear(Role::IndexWeightsProj, "L.self_attn.indexer.weights_proj", "B.indexer.proj.",
           When::Indexer),
};
constexpr ModuleRow kHeadStreams[] = {{Role::HeadStreams, "model.hc_head", &kHyperHead}};
constexpr std::span<const ModuleRow> kTree[] = {kRoot,
                                                kStem,
                                                kDelta,
                                                kChannelDeltaInputs,
                                                kLatentForget,
                                                kChannelDeltaStrength,
                                                kLatentDeltaGate,
                                                kChannelDeltaEnd,
                                                kFullLatent,
                                                kFullLatentQueries,
                                                kFullLatentKeys,
                                                kIndexer,
                                                kDenseMlp,
                                                kDeepseekMoe,
                                                kLayerNorms,
                                                kLayerStreams,
                                                kFinalNorm,
                                                kHeadStreams,
                                                kHead};

constexpr ConfigKey kLatentKeys[] = {
    {"q_lora_rank", "attention.q_lora_rank", KeyRead::QLora, KeyKind::CountOrNull,
     KeyWeight::Structural, "null", "null"},
    count("kv_lora_rank", "attention.kv_lora_rank"),
    natural("qk_rope_head_dim", "rope.dimension_count", "0", "0"),
    {"qk_nope_head_dim", "attention.key_length_mla", KeyRead::NopeDim, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"v_head_dim", "attention.value_length_mla", KeyRead::VDim, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};
constexpr ConfigKey kOwnKeys[] = {
    {"kda_decay_bound", "kda.gate_lower_bound", KeyRead::Magnitude, KeyKind::Positive,
     KeyWeight::Plain, "null", ""},
    count("index_n_heads", "attention.indexer.head_count"),
    count("index_head_dim", "attention.indexer.key_length"),
    count("index_topk", "attention.indexer.top_k"),
    count("index_kpool", "attention.indexer.kpool", "4"),
    flag("index_kpool_always_select_tail", "attention.indexer.kpool_select_tail", "true", "true"),
    {"indexer_types", "attention.indexer.types", KeyRead::IndexerTypes, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"swiglu_limit", "swiglu_clamp_exp", KeyRead::FirstNumber, KeyKind::Amount, KeyWeight::Plain,
     "0", "10"},
};
constexpr std::span<const ConfigKey> kKeys[] = {
    kSizeKeys,           kMlpKeys,          kModelKeys,         kTiedKeys,
    kLatentKeys,         kChannelDeltaKeys, kOwnKeys,           kStreamKeys,
    kDeepseekExpertKeys, kScaleKeysV3,      kSigmoidRoutingKeys};
constexpr ConfigAlias kOwnAliases[] = {
    {"num_local_experts", "n_routed_experts"},
    {"num_experts", "n_routed_experts"},
    {"head_dim", ""},
    {"linear_lower_bound", "kda_decay_bound"},
    {"linear_attn_config.gate_lower_bound", "kda_decay_bound"},
};
constexpr auto kAliases = join(kOwnAliases, kLinearConfigAliases);
constexpr ConfigDefault kOwnDefaults[] = {
    {"first_k_dense_replace", "3"},
    {"n_routed_experts", "288"},
    {"n_shared_experts", "1"},
    {"num_experts_per_tok", "8"},
    {"moe_intermediate_size", "2048"},
    {"routed_scaling_factor", "2.5"},
    {"q_lora_rank", "1536"},
    {"kv_lora_rank", "512"},
    {"qk_rope_head_dim", "0"},
    {"qk_nope_head_dim", "256"},
    {"v_head_dim", "256"},
    {"linear_head_dim", "128"},
    {"linear_num_heads", "64"},
    {"linear_conv_kernel_dim", "4"},
    {"kda_decay_bound", "5"},
    {"index_n_heads", "32"},
    {"index_head_dim", "128"},
    {"index_topk", "2048"},
    {"index_kpool", "16"},
    {"swiglu_limit", "10"},
    {"hc_mult", "4"},
    {"hc_sinkhorn_iters", "20"},
    {"hc_eps", "1e-6"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000"},
    {"num_nextn_predict_layers", "0"},
};
constexpr auto kDefaults = join(kOwnDefaults, kSigmoidRoutingDefaults);

}  // namespace

const Family kGlm5Next = {
    .architecture = "Glm5NextForConditionalGeneration",
    .model_types = "glm5_next glm5_next_text",
    .gguf_arch = "glm5next",
    .gguf_alias = "glm5-next",
    .prefix = "Glm5NextText",
    .attention = AttentionKind::Mla,
    .experts = kDeepseekExperts,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

}  // namespace ktx::families
