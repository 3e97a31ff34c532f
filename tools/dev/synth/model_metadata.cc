// The metadata of a synthetic model, with the keys that llama.cpp's converters write.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/support/normal_quantile.h"
#include "tools/dev/synth/model_tensors.h"

namespace ktx::synth {
namespace {

// Keys with the architecture in front.
struct Metadata {
  input::GgufWriter& writer;
  const std::string& arch;
  int64_t layers;

  void u32(std::string_view key, int64_t value) {
    writer.add_u32(fmt::format("{}.{}", arch, key), static_cast<uint32_t>(value));
  }
  // One number where all layers have the same.
  void u32s(std::string_view key, const std::vector<int64_t>& values) {
    if (std::ranges::count(values, values[0]) == std::ssize(values)) return u32(key, values[0]);
    const std::vector<uint32_t> numbers(values.begin(), values.begin() + layers);
    writer.add_u32s(fmt::format("{}.{}", arch, key), numbers);
  }
  void f32(std::string_view key, double value) {
    writer.add_f32(fmt::format("{}.{}", arch, key), static_cast<float>(value));
  }
};

// By the name that the family's config.json has.
std::string epsilon_key(const ModelShape& s) {
  for (const families::ConfigAlias& alias : s.family->rows.aliases) {
    if (std::string_view(alias.key) == "layer_norm_eps" && s.config.has(alias.alias)) {
      return alias.alias;
    }
  }
  return "layer_norm_eps";
}

void add_kinds_metadata(const ModelShape& s, Metadata& m) {
  m.u32("rope.dimension_count", s.global_head_dim);
  m.u32("rope.dimension_count_swa", s.head_dim);
  m.u32("attention.key_length", s.global_head_dim);
  m.u32("attention.value_length", s.global_head_dim);
  m.u32("attention.key_length_swa", s.head_dim);
  m.u32("attention.value_length_swa", s.head_dim);
  m.u32("attention.shared_kv_layers", s.shared_layers);
  m.u32("embedding_length_per_layer_input", s.layer_input);
  std::vector<bool> windows;
  for (int64_t i = 0; i < s.layers; ++i) windows.push_back(s.has_window(i));
  m.writer.add_bools(s.arch + ".attention.sliding_window_pattern", windows);
}

void add_altup_metadata(const ModelShape& s, Metadata& m) {
  m.u32("altup.num_inputs", s.streams);
  m.u32("altup.active_idx", s.config.i64("altup_active_idx").value_or(0));
  m.u32("attention.shared_kv_layers", s.shared_layers);
  m.u32("embedding_length_per_layer_input", s.layer_input);
  std::vector<bool> windows;
  for (int64_t i = 0; i < s.layers; ++i) windows.push_back(s.has_window(i));
  m.writer.add_bools(s.arch + ".attention.sliding_window_pattern", windows);
  std::vector<float> deviations;
  if (const auto shares = s.config.floats("activation_sparsity_pattern")) {
    for (const double share : *shares) {
      deviations.push_back(share > 0 ? static_cast<float>(normal_quantile(share))
                                     : -std::numeric_limits<float>::infinity());
    }
    m.writer.add_f32s(s.arch + ".activation_sparsity_scale", deviations);
  }
}

void add_delta_metadata(const ModelShape& s, Metadata& m) {
  if (s.by_channel) {
    m.u32("ssm.conv_kernel", s.delta_taps);
    m.u32("kda.head_dim", s.delta_dim);
    if (const auto bound = s.config.f64("kda_decay_bound")) m.f32("kda.gate_lower_bound", -*bound);
    return;
  }
  m.u32("ssm.conv_kernel", s.delta_taps);
  m.u32("ssm.state_size", s.delta_dim);
  m.u32("ssm.group_count", s.delta_key_heads);
  m.u32("ssm.time_step_rank", s.delta_value_heads);
  m.u32("ssm.inner_size", s.delta_width());
  m.u32("full_attention_interval", s.full_attention_interval);
}

// Pairs that turn by the position in time, height and width, which are equal in text.
void add_sections(const ModelShape& s, Metadata& m) {
  const families::ConfigKey* const key = s.family->find_config_key("mrope_section");
  if (!key) return;
  const auto pairs = static_cast<int32_t>(s.rotary / 2);
  std::vector<int32_t> sections = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3};
  if (const auto own = s.config.floats(key->key)) sections.assign(own->begin(), own->end());
  sections.resize(4, 0);
  m.writer.add_i32s(fmt::format("{}.{}", s.arch, key->gguf_key), sections);
}

void add_state_space_metadata(const ModelShape& s, Metadata& m) {
  m.u32("ssm.conv_kernel", s.space_taps);
  m.u32("ssm.state_size", s.space_state);
  m.u32("ssm.group_count", s.space_groups);
  m.u32("ssm.time_step_rank", s.space_heads);
  m.u32("ssm.inner_size", s.space_width());
  if (!s.family->has_gguf_key("rope.scaling.finetuned")) return;
  m.writer.add_bool(s.arch + ".rope.scaling.finetuned",
                    s.config.string("position_embedding_type") == "rope");
}

void add_mla_metadata(const ModelShape& s, Metadata& m) {
  // Converters leave the key out where there is no such matrix, and llama.cpp recognizes those
  // models by their number of layers: a model with other layers than its config's writes 0.
  const bool whole = s.layers == s.config.i64("num_hidden_layers").value_or(s.layers);
  if (s.q_rank > 0 || !whole) m.u32("attention.q_lora_rank", s.q_rank);
  m.u32("attention.kv_lora_rank", s.kv_rank);
  m.u32("rope.dimension_count", s.rope);
  if (s.options.unsplit_kv) {
    m.u32("attention.key_length", s.nope + s.rope);
    m.u32("attention.value_length", s.v_dim);
  } else {
    m.u32("attention.key_length", s.kv_rank + s.rope);
    m.u32("attention.value_length", s.kv_rank);
    m.u32("attention.key_length_mla", s.nope + s.rope);
    m.u32("attention.value_length_mla", s.v_dim);
  }
}

void add_indexer_metadata(const ModelShape& s, Metadata& m) {
  m.u32("attention.indexer.head_count", s.index_heads);
  m.u32("attention.indexer.key_length", s.index_dim);
  if (!s.is_mla() && s.index_pool > 0) {
    m.u32("attention.indexer.top_k", s.config.i64("index_topk").value_or(2048));
    std::vector<uint32_t> ratios;
    for (int64_t i = 0; i < s.layers; ++i) {
      ratios.push_back(s.has_indexer(i) ? static_cast<uint32_t>(s.index_pool) : 0);
    }
    m.writer.add_u32s(s.arch + ".attention.compress_ratios", ratios);
    return;
  }
  if (!s.is_mla() && !s.is_compressed()) {
    m.u32("attention.indexer.top_k", s.config.i64("index_topk_blocks").value_or(16));
    m.u32("attention.indexer.block_size", s.config.i64("index_block_size").value_or(128));
    m.u32("attention.indexer.local_blocks", s.config.i64("index_local_blocks").value_or(1));
    m.u32("expert_shared_count", s.shared_ffn / s.expert_ffn);  // which other loaders need
    return;
  }
  m.u32("attention.indexer.top_k", s.config.i64("index_topk").value_or(2048));
  if (s.index_pool > 0) m.u32("attention.indexer.kpool", s.index_pool);
  if (!s.family->has_gguf_key("attention.indexer.types")) return;
  std::vector<uint32_t> types;
  for (int64_t i = 0; i < s.layers; ++i) types.push_back(s.is_full_indexer(i));
  m.writer.add_u32s(s.arch + ".attention.indexer.types", types);
}

void add_ngram_metadata(const ModelShape& s, Metadata& m) {
  if (s.ngram_layer < 0) return;
  m.writer.add_u32s(s.arch + ".ple.layers",
                    std::vector<uint32_t>{static_cast<uint32_t>(s.ngram_layer)});
  m.u32("ple.ngram_size", s.ngrams.size);
  m.u32("ple.heads_per_ngram", s.ngrams.heads);
  m.u32("ple.conv_kernel", s.ngram_taps);
  m.u32("ple.eos_token_id", s.ngrams.end);
  m.u32("embedding_length_per_layer_input", s.ngram_width);
  m.writer.add_u64s(s.arch + ".ple.layer_multipliers", s.ngrams.multipliers);
  m.writer.add_u64s(s.arch + ".ple.head_vocab_sizes", s.ngrams.sizes);
  m.writer.add_u64s(s.arch + ".ple.head_offsets", s.ngrams.offsets);
}

void add_streams_metadata(const ModelShape& s, Metadata& m) {
  if (s.stream_rank > 0) {
    m.u32("hyper_connection.count", s.streams);
    m.u32("hyper_connection.low_rank", s.stream_rank);
    return add_ngram_metadata(s, m);
  }
  const std::vector<float> limits(static_cast<size_t>(s.layers),
                                  static_cast<float>(s.config.f64("swiglu_limit").value_or(10)));
  m.writer.add_f32s(s.arch + ".swiglu_clamp_exp", limits);
  m.writer.add_f32s(s.arch + ".swiglu_clamp_shexp", limits);
  m.u32("hyper_connection.count", s.streams);
  m.u32("hyper_connection.sinkhorn_iterations", s.config.i64("hc_sinkhorn_iters").value_or(20));
  m.f32("hyper_connection.epsilon", s.config.f64("hc_eps").value_or(1e-6));
}

void add_compressed_metadata(const ModelShape& s, Metadata& m) {
  std::vector<int32_t> rates;
  for (int64_t i = 0; i < s.layers; ++i) rates.push_back(static_cast<int32_t>(s.every_of(i)));
  m.writer.add_i32s(s.arch + ".attention.compress_ratios", rates);
  m.f32("attention.compress_rope_freq_base", s.config.f64("compress_rope_theta").value_or(160000));
  m.u32("attention.q_lora_rank", s.q_rank);
  m.u32("attention.output_group_count", s.out_groups);
  m.u32("attention.output_lora_rank", s.out_rank);
  m.u32("hash_layer_count", s.config.i64("num_hash_layers").value_or(3));
  m.u32("expert_shared_count", s.shared_count());
  m.u32("expert_gating_func", 4);
  m.f32("expert_weights_scale", s.config.f64("routed_scaling_factor").value_or(1.5));
  m.writer.add_bool(s.arch + ".expert_weights_norm", true);
}

// Those that the family has.
void add_group_metadata(const ModelShape& s, Metadata& m) {
  const auto known = [&](std::string_view key) { return s.family->has_gguf_key(key); };
  const auto count = [&](std::string_view key, int64_t value) {
    if (known(key)) m.u32(key, value);
  };
  count("leading_dense_block_count", s.dense);
  count("interleave_moe_layer_step", s.moe_step);
  count("expert_shared_count", s.shared_count());
  count("expert_group_count", s.config.i64("n_group").value_or(1));
  count("expert_group_used_count", s.config.i64("topk_group").value_or(1));
  if (known("expert_weights_scale")) {
    m.f32("expert_weights_scale", s.config.f64("routed_scaling_factor").value_or(1));
  }
  count("expert_gating_func", s.scoring == "sigmoid" ? 2 : 1);
  const auto norms = s.config.boolean("norm_topk_prob");
  if (known("expert_weights_norm") && (norms || s.by_two_best())) {
    m.writer.add_bool(s.arch + ".expert_weights_norm", norms.value_or(true));
  }
}

void add_window_list(const ModelShape& s, Metadata& m) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const auto types = s.config.strings("layer_types");
  if (!types || !s.family->windows_by_period()) return;
  if (s.global_head_dim > 0 || s.has_altup()) return;  // written beside other keys
  if (!s.family->has_gguf_key(kKey)) return;
  std::vector<int32_t> list, usual;
  for (const std::string& type : *types) {
    const auto layer = static_cast<int32_t>(list.size());
    usual.push_back(s.family->has_window(layer, s.family->window_period));
    list.push_back(type == "sliding_attention");
  }
  if (list != usual) m.writer.add_i32s(fmt::format("{}.{}", s.arch, kKey), list);
}

// As converters do: no type and no factor, but what follows of it.
void add_longrope_metadata(const ModelShape& s, Metadata& m) {
  const int64_t first =
      s.config.i64("rope_scaling.original_max_position_embeddings").value_or(4096);
  const double all = s.config.f64("max_position_embeddings").value_or(4096);
  const double factor =
      s.config.f64("rope_scaling.factor").value_or(all / static_cast<double>(first));
  const double usual =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(first)));
  m.u32("rope.scaling.original_context_length", first);
  m.f32("rope.scaling.attn_factor", s.config.f64("rope_scaling.attention_factor").value_or(usual));
}

void add_rope_metadata(const ModelShape& s, Metadata& m) {
  const std::string type = s.config.string("rope_scaling.rope_type").value_or("default");
  if (type == "longrope") return add_longrope_metadata(s, m);
  if (type != "yarn" && type != "linear") return;  // llama3 is a tensor
  m.writer.add_string(s.arch + ".rope.scaling.type", type);
  m.f32("rope.scaling.factor", s.config.f64("rope_scaling.factor").value_or(1));
  if (type == "linear") return;
  if (const auto length = s.config.i64("rope_scaling.original_max_position_embeddings")) {
    m.u32("rope.scaling.original_context_length", *length);
  }
  m.f32("rope.scaling.yarn_beta_fast", s.config.f64("rope_scaling.beta_fast").value_or(32));
  m.f32("rope.scaling.yarn_beta_slow", s.config.f64("rope_scaling.beta_slow").value_or(1));
  if (const auto factor = s.config.f64("rope_scaling.attention_factor")) {
    m.f32("rope.scaling.yarn_attn_factor", *factor);
  }
  if (const auto scale = s.config.f64("rope_scaling.mscale_all_dim")) {
    constexpr std::string_view kKey = "rope.scaling.yarn_log_multiplier";
    const families::ConfigKey* row = s.family->find_gguf_key(kKey);
    const bool tenth = row && row->read == families::KeyRead::MscaleAllDim;
    m.f32(kKey, tenth ? 0.1 * *scale : *scale);
  }
  if (const auto growth = s.config.f64("rope_scaling.llama_4_scaling_beta")) {
    m.f32("attention.temperature_scale", *growth);
  }
}

// Layers with windows as a converter leaves them out, by the family; others as a list.
void add_window_metadata(const ModelShape& s, Metadata& m) {
  const auto window = s.config.i64("sliding_window");
  if (window && *window > 0 && s.family->has_gguf_key("attention.sliding_window")) {
    const families::ConfigKey* row = s.family->find_gguf_key("attention.sliding_window");
    m.u32("attention.sliding_window", *window - (row->read == families::KeyRead::OneMore ? 1 : 0));
    add_window_list(s, m);
  }
  const auto number = [&](std::string_view config_key, std::string_view key) {
    const auto value = s.config.f64(config_key);
    if (value && s.family->has_gguf_key(key)) m.f32(key, *value);
  };
  number("rope_local_base_freq", "rope.freq_base_swa");
  number("attention_value_scale", "attention.value_scale");
  const auto limits = [&](std::string_view config_key, std::string_view key) {
    const auto list = s.config.floats(config_key);
    if (!list || s.is_compressed() || !s.family->has_gguf_key(key)) return;
    m.writer.add_f32s(fmt::format("{}.{}", s.arch, key),
                      std::vector<float>(list->begin(), list->end()));
  };
  limits("swiglu_limits", "swiglu_clamp_exp");
  limits("swiglu_limits_shared", "swiglu_clamp_shexp");
  number("attn_logit_softcapping", "attn_logit_softcapping");
  number("final_logit_softcapping", "final_logit_softcapping");
  number("activation_situ_beta", "activation.situ_beta");
  number("activation_situ_linear_beta", "activation.situ_linear_beta");
  number("embedding_multiplier", "embedding_scale");
  number("residual_multiplier", "residual_scale");
  number("logits_scaling", "logit_scale");
  number("logit_scale", "logit_scale");
  number("attention_multiplier", "attention.scale");
  number("alibi_bias_max", "attention.max_alibi_bias");
  number("clip_qkv", "attention.clamp_kqv");
  for (const char* key : {"xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps"}) {
    const families::ConfigKey* const row = s.family->find_config_key(key);
    const auto list = s.config.floats(key);
    if (row && list)
      m.writer.add_f32s(row->gguf_key, std::vector<float>(list->begin(), list->end()));
  }
  if (s.family->has_gguf_key("use_parallel_residual")) {
    m.writer.add_bool(s.arch + ".use_parallel_residual",
                      s.flag("use_parallel_residual").value_or(true));
  }
}

}  // namespace

Status add_metadata(const ModelShape& s, TensorMaker& t) {
  Metadata m{t.writer, s.arch, s.layers};
  m.writer.add_string("general.architecture", s.arch);
  m.writer.add_string("general.type", "model");
  m.writer.add_string("general.name", fmt::format("synthetic {}", s.type));
  m.u32("block_count", s.layers + (s.options.mtp ? 1 : 0));
  if (s.options.mtp) m.u32("nextn_predict_layers", 1);
  m.u32("context_length", s.attends() ? KTX_TRY(s.need("max_position_embeddings")) : 1 << 20);
  m.u32("embedding_length", s.hidden);
  if (s.family->one_part && s.attends()) {
    std::vector<uint32_t> widths;
    for (int64_t i = 0; i < s.layers; ++i) {
      widths.push_back(s.has_feed_forward(i) ? static_cast<uint32_t>(s.ffn[0]) : 0);
    }
    m.writer.add_u32s(s.arch + ".feed_forward_length", widths);
  } else {
    const families::ConfigKey* const width = s.family->find_gguf_key("feed_forward_length");
    std::vector<int64_t> widths = s.ffn;
    for (int64_t& one : widths) {
      one *= width && width->read == families::KeyRead::HalfCount ? 2 : 1;
    }
    m.u32s("feed_forward_length", widths);
  }
  m.u32s("attention.head_count", s.heads);
  const bool one_kv_head = s.is_mla() && !s.options.unsplit_kv;
  if (s.by_channel) {
    std::vector<uint32_t> counts;
    for (int64_t i = 0; i < s.layers; ++i) counts.push_back(s.has_delta_net(i) ? 0 : 1);
    m.writer.add_u32s(s.arch + ".attention.head_count_kv", counts);
  } else if (s.conv_taps > 0 || (s.scan_channels > 0 && s.attends()) ||
             (s.space_heads > 0 && s.attends() && !s.family->beside_attention)) {
    std::vector<uint32_t> counts;
    for (int64_t i = 0; i < s.layers; ++i) {
      counts.push_back(s.has_attention(i) ? static_cast<uint32_t>(s.kv_heads[0]) : 0);
    }
    m.writer.add_u32s(s.arch + ".attention.head_count_kv", counts);
  } else if (s.attends()) {
    m.u32s("attention.head_count_kv", one_kv_head ? std::vector<int64_t>{1} : s.kv_heads);
  }
  if (s.family->has_role(ir::Role::Rotary)) {
    m.f32("rope.freq_base", s.config.f64("rope_theta").value_or(10000));
  }
  if (s.family->layer_norms) {
    constexpr std::string_view kKey = "attention.layer_norm_epsilon";
    m.f32(s.family->has_gguf_key(kKey) ? kKey : "attention.layer_norm_rms_epsilon",
          s.config.f64(epsilon_key(s)).value_or(1e-5));
  } else {
    m.f32("attention.layer_norm_rms_epsilon", s.config.f64("rms_norm_eps").value_or(1e-6));
  }
  if (s.family->encoder) m.writer.add_bool(s.arch + ".attention.causal", false);
  if (const auto act = s.config.string("hidden_act"); act && s.family->has_gguf_key("hidden_act")) {
    m.writer.add_string(s.arch + ".hidden_act", *act);
  }
  if (s.scores() > 0) m.u32("pooling_type", 4);
  if (s.scores() == 0 && s.family->encoder) m.u32("pooling_type", 1);
  m.u32("vocab_size", s.vocab);
  if (s.has_experts()) {
    m.u32("expert_count", s.experts);
    m.u32("expert_used_count", s.used);
    if (s.family->has_gguf_key("expert_feed_forward_length")) {
      m.u32("expert_feed_forward_length", s.expert_ffn);
    }
  }
  const families::ConfigKey* const latent = s.family->find_config_key("moe_latent_size");
  if (latent && s.config.i64(latent->key)) m.u32(latent->gguf_key, *s.config.i64(latent->key));
  if (s.family->has_gguf_key("expert_shared_feed_forward_length")) {
    m.u32("expert_shared_feed_forward_length", s.shared_ffn);
  }
  if (s.is_mla()) {
    add_mla_metadata(s, m);
  } else if (s.global_head_dim > 0) {
    add_kinds_metadata(s, m);
  } else if (s.family->has_role(ir::Role::Rotary) || (s.space_heads > 0 && s.attends())) {
    m.u32("rope.dimension_count", s.rotary);
    add_sections(s, m);
    if (s.config.i64("head_dim")) {
      m.u32("attention.key_length", s.head_dim);
      m.u32("attention.value_length", s.value_head > 0 ? s.value_head : s.head_dim);
    }
    if (s.family->has_gguf_key("rope.dimension_count_swa")) {
      m.u32("rope.dimension_count_swa", s.local_rotary());
    }
  }
  if (s.has_altup()) add_altup_metadata(s, m);
  if (const auto block = s.config.i64("attn_res_block_size")) m.u32("attn_res.block_size", *block);
  if (s.index_heads > 0) add_indexer_metadata(s, m);
  if (s.streams > 0 && !s.has_altup()) add_streams_metadata(s, m);
  if (s.is_compressed()) add_compressed_metadata(s, m);
  if (s.delta_value_heads > 0) add_delta_metadata(s, m);
  if (s.space_heads > 0) add_state_space_metadata(s, m);
  if (s.scan_channels > 0) {
    m.u32("ssm.conv_kernel", s.space_taps);
    m.u32("ssm.inner_size", s.scan_channels);
    m.u32("ssm.state_size", s.space_state);
    m.u32("ssm.time_step_rank", s.scan_rank);
    if (!s.attends()) {
      m.writer.add_bool(s.arch + ".ssm.dt_b_c_rms", s.family->has_role(ir::Role::SsmStepNorm));
    }
  }
  if (s.conv_taps > 0) m.u32("shortconv.l_cache", s.conv_taps);
  const bool dense_first = s.has_experts() && s.family->has_gguf_key("leading_dense_block_count");
  if (s.has_groups() || dense_first) add_group_metadata(s, m);
  if (!s.has_groups() && !dense_first && s.family->has_gguf_key("interleave_moe_layer_step")) {
    m.u32("interleave_moe_layer_step", s.moe_step);
  }
  add_rope_metadata(s, m);
  add_window_metadata(s, m);
  return {};
}

}  // namespace ktx::synth
