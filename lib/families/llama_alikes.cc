// Models that compute what Llama does, but for a choice, and are stored under names of their own:
// InternLM2, XVERSE and Baichuan 7B, whose converters put rows of q and k in the order of pairs;
// openPangu-Embedded and Qwen of 2023, whose rows stay in halves and whose attention has biases;
// Maincoder, which norms heads behind their rotation; OpenELM, whose heads and widths differ by
// layer; PLaMo, whose parts are beside each other; Baichuan 13B and Refact, whose scores fall with
// the distance instead of a rotation; Orion with layer norms.
//
// Their modules have other names in their own code (attention.wqkv, feed_forward.w1); the tree is
// Llama's. No file says InternLM2's dynamic scaling, nor that of Qwen of 2023 with its logarithm,
// which begin behind the context that they were made for.
#include <cstdint>

#include "lib/families/layer_norm_rows.h"

namespace ktx::families {
namespace {

constexpr std::span<const ModuleRow> kTree[] = {kCausalStem, kGqaAttention, kDenseMlp, kLayerNorms,
                                                kTreeEnd};
constexpr std::span<const ModuleRow> kTreeAlibi[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                     kLayerNorms, kFinalNorm,    kHead};
constexpr ModuleRow kRotatedNorms[] = {
    norm(Role::QRotatedNorm, "L.self_attn.q_norm", "B.attn_q_norm."),
    norm(Role::KRotatedNorm, "L.self_attn.k_norm", "B.attn_k_norm."),
};
constexpr std::span<const ModuleRow> kTreeMaincoder[] = {kCausalStem, kGqaAttention, kRotatedNorms,
                                                         kDenseMlp,   kLayerNorms,   kTreeEnd};
constexpr std::span<const ModuleRow> kTreeOpenElm[] = {kCausalStem, kGqaAttention, kQkNorms,
                                                       kDenseMlp,   kLayerNorms,   kTreeEnd};
constexpr ModuleRow kOneNorm[] = {norm(Role::AttentionNorm, "L.input_layernorm", "B.attn_norm.")};
constexpr std::span<const ModuleRow> kTreePlamo[] = {kCausalStem, kGqaAttention, kDenseMlp,
                                                     kOneNorm, kTreeEnd};
constexpr std::span<const ModuleRow> kTreeOrion[] = {
    kCausalStem,      kGqaAttention, kDenseMlp, kBiasedLayerNorms,
    kBiasedFinalNorm, kModelRotary,  kHead};
constexpr std::span<const ConfigKey> kKeys[] = {kLlamaKeys, kAttentionBiasKeys, kRopeScalingKeys};
constexpr std::span<const ConfigKey> kKeysInternLm2[] = {kLlamaKeys, kAttentionBiasKeys};
constexpr ConfigKey kAlibiModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("rms_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-6"),
};
constexpr std::span<const ConfigKey> kKeysRefact[] = {kSizeKeys, kOneKeyHeadKeys, kMlpKeys,
                                                      kAlibiModelKeys, kTiedKeys};
constexpr std::span<const ConfigKey> kKeysAlibi[] = {kSizeKeys, kKvHeadKeys, kMlpKeys,
                                                     kAlibiModelKeys, kTiedKeys};
constexpr std::span<const ConfigKey> kKeysOrion[] = {kSizeKeys,           kKvHeadKeys, kMlpKeys,
                                                     kLayerNormModelKeys, kHeadKeys,   kTiedKeys};
// The width that configs and files say is that of gate and up together.
constexpr ConfigKey kHalfWidth[] = {
    {"mlp_width", "feed_forward_length", KeyRead::HalfCount, KeyKind::Count, KeyWeight::Structural,
     "", ""},
};
constexpr std::span<const ConfigKey> kKeysQwen[] = {kSizeKeys,  kKvHeadKeys, kHalfWidth,
                                                    kModelKeys, kHeadKeys,   kTiedKeys};
constexpr ConfigAlias kAliasesQwen[] = {
    {"intermediate_size", "mlp_width", "hidden_size", [](double both, double) { return both / 2; }},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"rotary_emb_base", "rope_theta"},
    {"kv_channels", "head_dim"},
    {"seq_length", "max_position_embeddings"},
};
constexpr ConfigAlias kAliasesBaichuan[] = {{"model_max_length", "max_position_embeddings"},
                                            {"max_sequence_length", "max_position_embeddings"}};
constexpr ConfigAlias kAliasesRefact[] = {
    {"n_embd", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_inner", "intermediate_size"},
    {"n_positions", "max_position_embeddings"},
    {"layer_norm_epsilon", "rms_norm_eps"},
    {"activation_function", ""},
};
constexpr ConfigAlias kAliasesOpenElm[] = {
    {"model_dim", "hidden_size"},
    {"num_transformer_layers", "num_hidden_layers"},
    {"num_query_heads", "num_attention_heads"},
    {"num_kv_heads", "num_key_value_heads"},
    {"max_context_length", "max_position_embeddings"},
    {"rope_freq_constant", "rope_theta"},
    {"activation_fn_name", ""},
};
constexpr ConfigAlias kAliasesOrion[] = {{"rms_norm_eps", "layer_norm_eps"}};
constexpr ConfigAlias kAliases[] = {{"bias", "attention_bias"}};
constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", "false"},
    {"rms_norm_eps", "1e-6"},
    {"rope_theta", "10000"},
};
constexpr ConfigDefault kDefaultsOrion[] = {{"layer_norm_eps", "1e-5"}, {"rope_theta", "10000"}};
constexpr ConfigDefault kDefaultsRefact[] = {{"num_key_value_heads", "1"},
                                             {"rms_norm_eps", "1e-5"}};
constexpr ConfigDefault kDefaultsOpenElm[] = {
    {"rms_norm_eps", "1e-6"}, {"rope_theta", "10000"}, {"tie_word_embeddings", "true"}};
// No file says it: models of more layers than 7B has.
constexpr GgufSign kDeep[] = {
    {.key = "block_count", .min = 33, .max = UINT64_MAX, .always_written = true}};

}  // namespace

const Family kInternLm2 = {
    .architecture = "InternLM2ForCausalLM",
    .model_types = "internlm2",
    .gguf_arch = "internlm2",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTree, kKeysInternLm2, kDefaults, kAliases},
};

const Family kXverse = {
    .architecture = "XverseForCausalLM",
    .model_types = "xverse",
    .gguf_arch = "xverse",
    .bias = BiasKind::Config,
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kPanguEmbedded = {
    .architecture = "PanguEmbeddedForCausalLM",
    .model_types = "PanguEmbedded pangu_embedded",
    .gguf_arch = "pangu-embedded",
    .bias = BiasKind::Config,
    .rows = {kTree, kKeys, kDefaults, kAliases},
};

const Family kBaichuan = {
    .architecture = "BaichuanForCausalLM",
    .model_types = "baichuan",
    .gguf_arch = "baichuan",
    .interleaved_rope = true,
    .rows = {kTree, kKeys, kDefaults, kAliasesBaichuan},
};

const Family kBaichuan13 = {
    .architecture = "BaichuanForCausalLM",
    .model_types = "baichuan_13b",
    .gguf_arch = "baichuan",
    .gguf_signs = kDeep,
    .alibi = 8,
    .rows = {kTreeAlibi, kKeysAlibi, kDefaults, kAliasesBaichuan},
};

const Family kRefact = {
    .architecture = "GPTRefactForCausalLM",
    .model_types = "gpt_refact",
    .gguf_arch = "refact",
    .alibi = 8,
    .rows = {kTreeAlibi, kKeysRefact, kDefaultsRefact, kAliasesRefact},
};

const Family kQwen = {
    .architecture = "QWenLMHeadModel",
    .model_types = "qwen",
    .gguf_arch = "qwen",
    .prefix = "QWen",
    .bias = BiasKind::Qkv,
    .dense_width_key = "mlp_width",
    .rows = {kTree, kKeysQwen, kDefaults, kAliasesQwen},
};

const Family kMaincoder = {
    .architecture = "MaincoderForCausalLM",
    .model_types = "maincoder",
    .gguf_arch = "maincoder",
    .interleaved_rope = true,
    .rows = {kTreeMaincoder, kKeys, kDefaults},
};

const Family kOpenElm = {
    .architecture = "OpenELMForCausalLM",
    .model_types = "openelm",
    .gguf_arch = "openelm",
    .rows = {kTreeOpenElm, kKeysInternLm2, kDefaultsOpenElm, kAliasesOpenElm},
};

const Family kPlamo = {
    .architecture = "PlamoForCausalLM",
    .model_types = "plamo",
    .gguf_arch = "plamo",
    .rows = {kTreePlamo, kKeysInternLm2, kDefaults},
};

const Family kOrion = {
    .architecture = "OrionForCausalLM",
    .model_types = "orion",
    .gguf_arch = "orion",
    .layer_norms = true,
    .rows = {kTreeOrion, kKeysOrion, kDefaultsOrion, kAliasesOrion},
};

}  // namespace ktx::families
