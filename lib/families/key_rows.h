// Stretches of config keys that several families share. Data only; a family strings
// them together. The order is that of reading and of the messages.
#pragma once

#include "lib/families/family.h"

namespace ktx::families {

// Keys of the most usual kinds. What absence means is said where it is known: in a GGUF, in a
// config.json (config_key.h).
#define KTX_KEY_MAKER(name, read, kind, weight)                                                 \
  constexpr ConfigKey name(const char* key, const char* gguf_key, const char* gguf_absent = "", \
                           const char* config_absent = "") {                                    \
    return {key,         gguf_key,     KeyRead::read, KeyKind::kind, KeyWeight::weight,         \
            gguf_absent, config_absent};                                                        \
  }
KTX_KEY_MAKER(count, Int, Count, Structural)
KTX_KEY_MAKER(natural, Int, Natural, Structural)
KTX_KEY_MAKER(positive, Float, Positive, Plain)
KTX_KEY_MAKER(amount, Float, Amount, Plain)
KTX_KEY_MAKER(scale, Scale, Positive, Plain)
KTX_KEY_MAKER(flag, Flag, Flag, Plain)
#undef KTX_KEY_MAKER

// The vocabulary of texts, and how long one may be.
inline constexpr ConfigKey kVocabKey{
    "vocab_size", "vocab_size", KeyRead::Vocab, KeyKind::Count, KeyWeight::Structural, "", ""};
constexpr ConfigKey longest_text(const char* config_absent = "") {
  return {"max_position_embeddings",
          "context_length",
          KeyRead::Int,
          KeyKind::Count,
          KeyWeight::Plain,
          "",
          config_absent};
}

inline constexpr ConfigKey kSizeKeys[] = {
    count("hidden_size", "embedding_length"),
    {"num_hidden_layers", "block_count", KeyRead::Layers, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"num_attention_heads", "attention.head_count", KeyRead::Ints, KeyKind::Counts,
     KeyWeight::Structural, "", ""},
};
inline constexpr ConfigKey kKvHeadKeys[] = {
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::Ints, KeyKind::Counts,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
};
// One key head for all where nothing says more.
inline constexpr ConfigKey kOneKeyHeadKeys[] = {
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::Ints, KeyKind::Counts,
     KeyWeight::Structural, "1", "1"},
};
// MLA: 1 in files with attn_k_b, all heads in older ones; both mean all heads.
inline constexpr ConfigKey kMlaKvHeadKeys[] = {
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::MlaKvHeads, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
};
inline constexpr ConfigKey kMlpKeys[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::Ints, KeyKind::Counts,
     KeyWeight::Structural, "", ""},
};
// For families without a dense layer: the value is not used.
inline constexpr ConfigKey kUnusedMlpKeys[] = {
    {"intermediate_size", "feed_forward_length", KeyRead::Int, KeyKind::Count, KeyWeight::Plain, "",
     ""},
};
inline constexpr ConfigKey kModelKeys[] = {
    kVocabKey,
    longest_text(),
    positive("rms_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-6"),
    positive("rope_theta", "rope.freq_base", "10000", "10000"),
};
inline constexpr ConfigKey kHeadKeys[] = {
    count("head_dim", "attention.key_length", "=head_dim", "=head_dim"),
    {"partial_rotary_factor", "rope.dimension_count", KeyRead::RotaryFactor, KeyKind::Positive,
     KeyWeight::Plain, "1", "1"},
};
// From the tensors: output.weight, attention and MLP biases.
inline constexpr ConfigKey kTiedKeys[] = {
    {"tie_word_embeddings", "", KeyRead::Tied, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
inline constexpr ConfigKey kAttentionBiasKeys[] = {
    {"attention_bias", "", KeyRead::AttentionBias, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
// Biases of q, k and v, and norms of q and k heads, that some models of a family have.
inline constexpr ConfigKey kQkNormKeys[] = {
    {"use_qk_norm", "", KeyRead::QkNorm, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
inline constexpr ConfigKey kMlpBiasKeys[] = {
    {"mlp_bias", "", KeyRead::MlpBias, KeyKind::Flag, KeyWeight::Plain, "", "false"},
};
// Scaling of rotary positions. llama3 scaling is the tensor rope_freqs.weight.
inline constexpr ConfigKey kRopeScalingKeys[] = {
    {"rope_scaling.rope_type", "rope.scaling.type", KeyRead::RopeType, KeyKind::Text,
     KeyWeight::Plain, "default", "default"},
    {"rope_scaling.factor", "rope.scaling.factor", KeyRead::RopeFactor, KeyKind::Positive,
     KeyWeight::Plain, "", ""},
    {"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length",
     KeyRead::Int, KeyKind::Count, KeyWeight::Plain, "", ""},
    positive("rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast", "32", "32"),
    positive("rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow", "1", "1"),
    {"rope_scaling.attention_factor", "rope.scaling.attn_factor", KeyRead::AttentionFactor,
     KeyKind::Positive, KeyWeight::Plain, "", ""},
};
// Pairs of a head that turn by time, line and column where a text has images.
inline constexpr ConfigKey kSectionKeys[] = {
    {"mrope_section", "rope.dimension_sections", KeyRead::Sections, KeyKind::Amounts,
     KeyWeight::Plain, "", ""},
};
// Layers with a sliding window. Where nothing says which, the family does (WindowPattern).
inline constexpr ConfigKey kWindowKeys[] = {
    {"sliding_window", "attention.sliding_window", KeyRead::Int, KeyKind::Natural, KeyWeight::Plain,
     "", ""},
    {"layer_types", "attention.sliding_window_pattern", KeyRead::LayerTypes, KeyKind::Texts,
     KeyWeight::Structural, "=windows", "=windows"},
};
inline constexpr ConfigKey kUsedExpertKeys[] = {
    count("num_experts_per_tok", "expert_used_count"),
};
inline constexpr ConfigKey kExpertWidthKeys[] = {
    {"moe_intermediate_size", "expert_feed_forward_length", KeyRead::ExpertSize, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};

inline constexpr ConfigKey kMlaKeys[] = {
    {"q_lora_rank", "attention.q_lora_rank", KeyRead::QLora, KeyKind::CountOrNull,
     KeyWeight::Structural, "null", "null"},
    count("kv_lora_rank", "attention.kv_lora_rank"),
    count("qk_rope_head_dim", "rope.dimension_count"),
    {"qk_nope_head_dim", "attention.key_length_mla", KeyRead::NopeDim, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"v_head_dim", "attention.value_length_mla", KeyRead::VDim, KeyKind::Count,
     KeyWeight::Structural, "", ""},
};

// The converters write 0.1 * mscale_all_dim. mscale itself is in no GGUF; it
// equals mscale_all_dim in every published model.
inline constexpr ConfigKey kMscaleKeys[] = {
    {"rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier", KeyRead::MscaleAllDim,
     KeyKind::Amount, KeyWeight::Plain, "", ""},
    {"rope_scaling.mscale", "", KeyRead::Nothing, KeyKind::Amount, KeyWeight::Plain,
     "=rope_scaling.mscale_all_dim", "=rope_scaling.mscale_all_dim"},
};

// Growth of queries with the position (Ministral 3, Mistral 4 and Large 3).
inline constexpr ConfigKey kTemperatureKeys[] = {
    amount("rope_scaling.llama_4_scaling_beta", "attention.temperature_scale"),
};

// Routing after DeepSeek V3: scores with a correction bias, groups of experts, shared experts.
inline constexpr ConfigKey kRoutedExpertKeys[] = {
    count("n_routed_experts", "expert_count"),
};
inline constexpr ConfigKey kSharedCountKeys[] = {
    natural("n_shared_experts", "expert_shared_count", "0", "0"),
};
inline constexpr ConfigKey kFirstDenseKeys[] = {
    natural("first_k_dense_replace", "leading_dense_block_count", "0", "0"),
};
inline constexpr ConfigKey kGroupKeys[] = {
    count("n_group", "expert_group_count", "1", "1"),
    count("topk_group", "expert_group_used_count", "1", "1"),
};
inline constexpr ConfigKey kNormalisedKeys[] = {
    flag("norm_topk_prob", "expert_weights_norm", "false", "true"),
};
inline constexpr ConfigKey kScaleKeys[] = {
    scale("routed_scaling_factor", "expert_weights_scale", "1", "1"),
};
// A file without the key and without a config is sigmoid when it has correction biases.
inline constexpr ConfigKey kSigmoidKeys[] = {
    {"scoring_func", "expert_gating_func", KeyRead::Gating, KeyKind::Text, KeyWeight::Plain,
     "sigmoid", "sigmoid"},
};

inline constexpr ConfigKey kNumExpertsKeys[] = {count("num_experts", "expert_count")};
inline constexpr ConfigKey kNumLocalExpertsKeys[] = {count("num_local_experts", "expert_count")};
inline constexpr ConfigAlias kNumExpertsAliases[] = {{"num_experts", "num_local_experts"}};
inline constexpr ConfigAlias kNumLocalExpertsAliases[] = {{"num_local_experts", "num_experts"}};
inline constexpr ConfigKey kSharedWidthKeys[] = {
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", KeyRead::SharedSize,
     KeyKind::Count, KeyWeight::Structural, "", ""}};
inline constexpr ConfigKey kSoftmaxKeys[] = {{"scoring_func", "expert_gating_func", KeyRead::Gating,
                                              KeyKind::Text, KeyWeight::Plain, "softmax",
                                              "softmax"}};
inline constexpr ConfigKey kNotNormalisedKeys[] = {
    flag("norm_topk_prob", "expert_weights_norm", "false", "false")};
inline constexpr ConfigKey kAlwaysNormalisedKeys[] = {
    flag("norm_topk_prob", "expert_weights_norm", "true", "true")};
inline constexpr ConfigKey kScaleKeysV3[] = {
    scale("routed_scaling_factor", "expert_weights_scale", "1", "2.5")};

// Units that clamp what their activation gives, by layer: those of routed experts, and of dense
// parts and shared experts.
inline constexpr ConfigKey kUnitLimitKeys[] = {
    {"swiglu_limits", "swiglu_clamp_exp", KeyRead::Amounts, KeyKind::Amounts, KeyWeight::Plain, "",
     ""},
    {"swiglu_limits_shared", "swiglu_clamp_shexp", KeyRead::Amounts, KeyKind::Amounts,
     KeyWeight::Plain, "", ""},
};

inline constexpr ConfigKey kLocalRopeKeys[] = {
    positive("rope_local_base_freq", "rope.freq_base_swa", "=rope_theta", "=rope_theta")};
// transformers 5 has a second name for qk_rope_head_dim, head_dim.
inline constexpr ConfigAlias kLatentAliases[] = {{"num_local_experts", "n_routed_experts"},
                                                 {"num_experts", "n_routed_experts"},
                                                 {"head_dim", ""}};

inline constexpr ConfigDefault kSigmoidRoutingDefaults[] = {
    {"moe_layer_freq", "1"},
    {"topk_method", "\"noaux_tc\""},
    {"scoring_func", "\"sigmoid\""},
    {"norm_topk_prob", "true"},
    {"n_group", "1"},
    {"topk_group", "1"},
};

inline constexpr auto kLlamaKeys =
    join(kSizeKeys, kKvHeadKeys, kMlpKeys, kModelKeys, kHeadKeys, kTiedKeys);
inline constexpr auto kLatentModelKeys =
    join(kSizeKeys, kMlaKvHeadKeys, kMlpKeys, kModelKeys, kTiedKeys, kRopeScalingKeys);
inline constexpr auto kDeepseekExpertKeys =
    join(kRoutedExpertKeys, kUsedExpertKeys, kExpertWidthKeys, kNormalisedKeys, kSharedCountKeys);
inline constexpr auto kSigmoidRoutingKeys = join(kFirstDenseKeys, kGroupKeys, kSigmoidKeys);

// Models that score texts, and how the states of tokens become one. Neither is in a config.json.
inline constexpr ConfigKey kScoreKeys[] = {
    {"score_count", "", KeyRead::ScoreCount, KeyKind::Natural, KeyWeight::Plain, "0", "0"},
    {"pooling_type", "pooling_type", KeyRead::Pooling, KeyKind::Text, KeyWeight::Plain, "", ""},
};

// For models that consist of state spaces alone; their texts may have any length.
inline constexpr ConfigKey kMambaSizeKeys[] = {
    count("hidden_size", "embedding_length"),
    {"num_hidden_layers", "block_count", KeyRead::Layers, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    kVocabKey,
    longest_text("1048576"),
    positive("rms_norm_eps", "attention.layer_norm_rms_epsilon", "", "1e-5"),
};

}  // namespace ktx::families
