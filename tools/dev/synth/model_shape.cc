#include "tools/dev/synth/model_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/arch/hyper_params.h"
#include "lib/support/diag.h"

namespace ktx::synth {

using families::LayerPattern;
using families::RouterKind;
using families::SharedKind;

Result<ModelShape> ModelShape::read(const input::HfConfig& config, const SynthOptions& options) {
  ModelShape shape(config, options);
  shape.type = config.model_type();
  shape.family = families::find_model_type(shape.type);
  if (!shape.family) {
    return Error{fmt::format("{}: model_type '{}' is unknown", config.file(), shape.type)};
  }
  shape.arch = shape.family->gguf_arch;
  KTX_TRY(shape.read_sizes());
  return shape;
}

bool ModelShape::attends() const {
  const bool mixes =
      family->has_role(ir::Role::StateSpace) || family->has_role(ir::Role::SelectiveScan);
  return !mixes || family->has_role(ir::Role::Attention);
}

int64_t ModelShape::every_of(int64_t layer) const {
  const std::string kind = kind_of(layer);
  return kind == "compressed_sparse_attention"    ? 4
         : kind == "heavily_compressed_attention" ? 128
                                                  : 0;
}

bool ModelShape::has_expert_table(int64_t layer) const {
  return layer < config.i64("num_hash_layers").value_or(3);
}

bool ModelShape::has_window(int64_t layer) const {
  const auto types = config.strings("layer_types");
  if (types && layer < std::ssize(*types)) {
    return (*types)[static_cast<size_t>(layer)] == "sliding_attention";
  }
  return family->has_window(layer, family->window_period);
}

int64_t ModelShape::head_dim_of(int64_t layer) const {
  return is_global(layer) ? global_head_dim : head_dim;
}

bool ModelShape::has_delta_net(int64_t layer) const {
  if (by_channel) {
    const auto types = config.strings("layer_types");
    return types && (*types)[static_cast<size_t>(std::min(layer, std::ssize(*types) - 1))] ==
                        "linear_attention";
  }
  return delta_value_heads > 0 && layer < layers && (layer + 1) % full_attention_interval != 0;
}

std::string ModelShape::kind_of(int64_t layer) const {
  const auto types = config.strings("layer_types");
  if (!types || types->empty()) return "";
  return (*types)[static_cast<size_t>(std::min(layer, std::ssize(*types) - 1))];
}

bool ModelShape::has_state_space(int64_t layer) const {
  return space_heads > 0 &&
         (family->beside_attention || !attends() || kind_of(layer) == "linear_attention");
}

bool ModelShape::has_attention(int64_t layer) const {
  if (conv_taps > 0) return kind_of(layer) != "conv";
  if (scan_channels > 0) return attends() && kind_of(layer) != "linear_attention";
  return space_heads == 0 || family->beside_attention || kind_of(layer) == "full_attention";
}

bool ModelShape::has_sinks(int64_t layer) const {
  const families::ModuleRow* row = family->find_row(ir::Role::Attention);
  if (!has_param(ir::Role::Attention, "sinks")) return false;
  if (row->params[0].when != families::When::Sinks) return true;
  return flag(has_window(layer) ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias")
      .value_or(has_window(layer));
}

int64_t ModelShape::value_dim_of(int64_t layer) const {
  return value_head > 0 ? value_head : head_dim_of(layer);
}

bool ModelShape::has_head_gates() const {
  return family->head_gates && config.string("gating") != "per-element";
}

int64_t ModelShape::local_rotary() const {
  const double part = config.f64("local_rotary_factor").value_or(1);
  return static_cast<int64_t>(part * static_cast<double>(head_dim) + 1e-6) / 2 * 2;
}

bool ModelShape::has_feed_forward(int64_t layer) const {
  return !family->one_part || kind_of(layer) == "mlp" || kind_of(layer) == "moe";
}

bool ModelShape::has_indexer(int64_t layer) const {
  if (!is_mla() && index_pool > 0) return !has_delta_net(layer);
  if (!is_mla()) return index_heads > 0 && kind_of(layer) == "sparse_attention";
  return index_heads > 0 && is_full_indexer(layer) && !(by_channel && has_delta_net(layer));
}

bool ModelShape::is_full_indexer(int64_t layer) const {
  const auto types = config.strings("indexer_types");
  return !types || layer >= std::ssize(*types) || (*types)[static_cast<size_t>(layer)] == "full";
}

bool ModelShape::has_own_keys(int64_t layer) const {
  return layer < layers - shared_layers || layer >= layers;
}

bool ModelShape::has_own_values(int64_t layer) const {
  return has_own_keys(layer) && !(is_global(layer) && flag("attention_k_eq_v").value_or(false));
}

bool ModelShape::is_moe(int64_t layer) const {
  if (family->experts.layers == LayerPattern::ByKind)
    return has_experts() && kind_of(layer) == "moe";
  if (const auto kinds = config.strings("mlp_layer_types");
      kinds && layer < std::ssize(*kinds) && family->has_config_key("mlp_layer_types")) {
    return has_experts() && (*kinds)[static_cast<size_t>(layer)] == "sparse";
  }
  return has_experts() && layer >= dense && (layer + 1) % moe_step == 0;
}

bool ModelShape::has_param(ir::Role role, std::string_view name) const {
  const families::ModuleRow* row = family->find_row(role);
  return row && std::ranges::any_of(row->params, [&](const families::ParamRow& param) {
           return param.name != nullptr && param.name == name;
         });
}

bool ModelShape::always_has(ir::Role role, std::string_view name) const {
  const families::ModuleRow* row = family->find_row(role);
  return row && std::ranges::any_of(row->params, [&](const families::ParamRow& param) {
           return param.name != nullptr && param.name == name &&
                  (param.when == families::When::Always ||
                   (param.when == families::When::MlpBias && family->mlp_bias &&
                    flag("mlp_bias").value_or(false)));
         });
}

bool ModelShape::has_qkv_bias() const {
  if (family->bias == families::BiasKind::Qkv || always_has(ir::Role::QProj, "bias") ||
      always_has(ir::Role::QkvProj, "bias")) {
    return true;
  }
  return flag(config.has("use_qkv_bias") ? "use_qkv_bias" : "attention_bias").value_or(false);
}

int64_t ModelShape::shared_count() const {
  const std::string usual = default_of("n_shared_experts");
  const int64_t otherwise = usual.empty() || usual == "null" ? 0 : std::stoll(usual);
  return config.i64("n_shared_experts").value_or(otherwise);
}

std::optional<bool> ModelShape::flag(std::string_view key) const {
  if (const auto value = config.boolean(key)) return value;
  const std::string value = default_of(key);
  return value.empty() ? std::nullopt : std::optional(value == "true");
}

Result<int64_t> ModelShape::need(const char* key) const {
  const auto value = config.i64(key);
  if (value && *value > 0) return *value;
  return Error{fmt::format("{}: key '{}' is missing or no count above 0", config.file(), key)};
}

int64_t ModelShape::of_layer(const std::vector<int64_t>& values, int64_t layer) const {
  return values[std::min(layer, layers - 1)];
}

std::string ModelShape::default_of(std::string_view key) const {
  const char* found = family->find_default(key);
  const std::string_view value = found == nullptr ? "" : found;
  return std::string(value.starts_with('"') ? value.substr(1, value.size() - 2) : value);
}

Result<std::vector<int64_t>> ModelShape::by_layer(const char* key) const {
  const auto list = config.ints(key);
  if (!list) return std::vector<int64_t>(layers, KTX_TRY(need(key)));
  const auto count = static_cast<int64_t>(list->size());
  if (count >= layers && std::ranges::min(*list) > 0) return *list;
  return Error{fmt::format("{}: key '{}' has {} numbers, expected {} counts above 0", config.file(),
                           key, count, layers)};
}

Status ModelShape::read_sizes() {
  hidden = KTX_TRY(need("hidden_size"));
  layers = options.layers.value_or(KTX_TRY(need("num_hidden_layers")));
  if (layers < 1) return Error{"expected at least one layer"};
  heads.assign(layers, 0);
  if (attends()) heads = KTX_TRY(by_layer("num_attention_heads"));
  kv_heads = heads;
  if (const std::string usual = default_of("num_key_value_heads"); !usual.empty()) {
    kv_heads.assign(layers, std::stoll(usual));
  }
  if (config.has("num_key_value_heads")) kv_heads = KTX_TRY(by_layer("num_key_value_heads"));
  head_dim = config.i64("head_dim").value_or(hidden / std::max<int64_t>(heads[0], 1));
  const bool no_dense = family->experts.layers == LayerPattern::AllMoe;
  if (family->has_role(ir::Role::StateSpace)) KTX_TRY(read_state_space());
  if (family->has_role(ir::Role::SelectiveScan)) {
    scan_channels = config.i64("mamba_expand").value_or(2) * hidden;
    scan_rank = config.i64("mamba_dt_rank").value_or((hidden + 15) / 16);
    space_state = config.i64("mamba_d_state").value_or(16);
    space_taps = config.i64("mamba_d_conv").value_or(4);
  }
  if (family->has_role(ir::Role::ShortConv)) {
    conv_taps = config.i64("conv_L_cache").value_or(3);
  }
  ffn.assign(layers, 0);
  if (attends()) {
    ffn = KTX_TRY(by_layer(no_dense && !config.has(family->dense_width_key)
                               ? family->experts.width_key
                               : family->dense_width_key));
  }
  vocab = KTX_TRY(need("vocab_size"));
  const bool wants_experts = beside_dense() ? flag("enable_moe_block").value_or(false)
                                            : family->experts.layers != LayerPattern::AllDense &&
                                                  config.i64(family->experts.count_key) != 0;
  if (wants_experts) {
    experts = KTX_TRY(need(family->experts.count_key));
    used = KTX_TRY(need("num_experts_per_tok"));
    expert_ffn = KTX_TRY(need(family->experts.width_key));
  }
  if (is_mla()) {
    q_rank = config.i64("q_lora_rank").value_or(0);
    kv_rank = KTX_TRY(need("kv_lora_rank"));
    rope = family->has_role(ir::Role::Rotary) ? KTX_TRY(need("qk_rope_head_dim"))
                                              : config.i64("qk_rope_head_dim").value_or(0);
    nope = KTX_TRY(need("qk_nope_head_dim"));
    v_dim = KTX_TRY(need("v_head_dim"));
  }
  if (is_compressed()) {
    q_rank = KTX_TRY(need("q_lora_rank"));
    rope = KTX_TRY(need("qk_rope_head_dim"));
    out_groups = KTX_TRY(need("o_groups"));
    out_rank = KTX_TRY(need("o_lora_rank"));
  }
  if (family->has_role(ir::Role::AttentionStreams)) streams = config.i64("hc_mult").value_or(4);
  if (family->has_role(ir::Role::Indexer)) {
    index_heads = KTX_TRY(need("index_n_heads"));
    index_dim = KTX_TRY(need("index_head_dim"));
    if (family->has_config_key("index_kpool")) index_pool = KTX_TRY(need("index_kpool"));
  }
  if (family->has_config_key("first_k_dense_replace")) {
    dense = config.i64("first_k_dense_replace").value_or(0);
  }
  if (family->experts.layers == LayerPattern::FirstDenseThenStep ||
      family->experts.layers == LayerPattern::SparseStep) {
    moe_step = std::max<int64_t>(config.i64("decoder_sparse_step").value_or(1), 1);
  }
  if (!is_mla() && family->has_config_key("v_head_dim")) {
    value_head = config.i64("v_head_dim").value_or(0);
  }
  rotary = head_dim;
  if (family->partial_rotary) {
    const double part = config.f64("partial_rotary_factor").value_or(1);
    rotary = config.i64("rotary_dim")
                 .value_or(static_cast<int64_t>(part * static_cast<double>(head_dim)));
  }
  if (is_compressed()) rotary = rope;
  if (family->experts.shared == SharedKind::Count) {
    shared_ffn = shared_count() * expert_ffn;
  } else if (family->experts.shared == SharedKind::Width) {
    shared_ffn = KTX_TRY(need("shared_expert_intermediate_size"));
    if (!wants_experts) ffn.assign(ffn.size(), shared_ffn);  // Granite 4
  }
  read_kinds_of_layers();
  by_channel = family->has_role(ir::Role::DeltaForget);
  if (by_channel) {
    const char* const heads_key =
        config.has("linear_num_heads") ? "linear_num_heads" : "num_attention_heads";
    delta_key_heads = delta_value_heads = KTX_TRY(need(heads_key));
    delta_dim = KTX_TRY(need("linear_head_dim"));
    delta_taps = config.i64("linear_conv_kernel_dim").value_or(4);
  } else if (family->has_role(ir::Role::DeltaNet)) {
    delta_key_heads = KTX_TRY(need("linear_num_key_heads"));
    delta_value_heads = KTX_TRY(need("linear_num_value_heads"));
    delta_dim = KTX_TRY(need("linear_key_head_dim"));
    delta_taps = config.i64("linear_conv_kernel_dim").value_or(4);
    full_attention_interval =
        std::max<int64_t>(config.i64("full_attention_interval").value_or(4), 1);
  }
  if (family->has_role(ir::Role::StreamsDownProj)) {
    stream_rank = config.i64("hc_lowrank").value_or(320);
  }
  if (family->has_role(ir::Role::NgramPart)) KTX_TRY(read_ngrams());
  has_qk_norm = flag("use_qk_norm").value_or(true);
  tied = flag("tie_word_embeddings").value_or(false);
  scoring = config.string("scoring_func").value_or(default_of("scoring_func"));
  return {};
}

Status ModelShape::read_state_space() {
  space_heads = KTX_TRY(need("mamba_n_heads"));
  space_dim = KTX_TRY(need("mamba_d_head"));
  space_groups = KTX_TRY(need("mamba_n_groups"));
  space_state = KTX_TRY(need("mamba_d_state"));
  space_taps = config.i64("mamba_d_conv").value_or(4);
  return {};
}

// As the compiler has them (lib/arch).
Status ModelShape::read_ngrams() {
  DiagSink diags;
  const auto params = arch::read_hyper_params(*family, config, diags);
  if (!params) return Error{fmt::format("{}: {}", config.file(), diags.all().front().message)};
  for (size_t i = 0; i < params->shapes.size(); ++i) {
    if (params->shapes[i].ngrams) ngram_layer = static_cast<int64_t>(i);
  }
  ngrams = params->ngrams;
  ngram_taps = params->ngram_taps;
  ngram_width = params->ngram_width;
  ngram_rows = params->ngram_rows;
  return {};
}

void ModelShape::read_kinds_of_layers() {
  const auto number = [&](const char* key, int64_t otherwise) {
    return family->has_config_key(key) ? config.i64(key).value_or(otherwise) : 0;
  };
  shared_layers = number("num_kv_shared_layers", 0);
  layer_input = number("hidden_size_per_layer_input", 0);
  laurel_rank = number("laurel_rank", 64);
  if (has_altup()) streams = number("altup_num_inputs", 4);
  global_head_dim = number("global_head_dim", 512);
  const bool doubled = flag("use_double_wide_mlp").value_or(false);
  for (int64_t i = 0; i < layers; ++i) {
    if (doubled && !has_own_keys(i)) ffn[static_cast<size_t>(i)] *= 2;
    if (!is_global(i)) continue;
    auto& own = kv_heads[static_cast<size_t>(i)];
    own = config.i64("num_global_key_value_heads").value_or(own);
  }
}

}  // namespace ktx::synth
