#include "tools/dev/synth/synth_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "lib/families/family.h"
#include "lib/support/strings.h"
#include "tools/dev/synth/random_blocks.h"
#include "tools/dev/synth/type_mix.h"

namespace ktx::synth {
namespace {

using families::LayerPattern;
using families::RouterKind;
using families::SharedKind;

// Deviations that keep the residual stream made of the token's embedding, so that
// tokens differ and all experts are used (measured: 128 of 128, the busiest with
// 50 to 60 of 512 tokens).
constexpr float kSigma = 0.02f;
constexpr float kEmbeddingSigma = 50 * kSigma;
constexpr float kResidualSigma = 0.1f * kSigma;  // attn_output and ffn_down

// With `strong` weights: the deviation of a product of normed inputs, and what biases and norms
// have ten times more of.
constexpr float kStrongProduct = 1.5f;
constexpr float kStrongNoise = 10;

constexpr double kPi = 3.14159265358979323846;

class Synthesiser {
 public:
  Synthesiser(const input::HfConfig& config, const SynthOptions& options, TypeMix mix)
      : config_(config), options_(options), mix_(mix) {}

  Result<input::GgufWriter> run() {
    type_ = config_.model_type();
    family_ = families::find_model_type(type_);
    if (!family_) {
      return Error{fmt::format("{}: model_type '{}' is unknown", config_.file(), type_)};
    }
    arch_ = family_->gguf_arch;
    KTX_TRY(read_sizes());
    KTX_TRY(add_metadata());
    KTX_TRY(add_vocabulary(writer_, vocab_, options_.vocabulary));
    writer_.add_u32("general.quantization_version", 2);
    writer_.add_u32("general.file_type", mix_.file_type);
    add_tensors();
    return std::move(writer_);
  }

 private:
  bool is_mla() const { return family_->attention == families::AttentionKind::Mla; }
  // (Latent and compressed attention have roles of their own.)
  bool attends() const {
    return !family_->has_role(ir::Role::StateSpace) || family_->has_role(ir::Role::Attention);
  }
  bool is_compressed() const { return family_->attention == families::AttentionKind::Compressed; }
  // Positions of an entry of the layer's attention; 0: it has none.
  int64_t every_of(int64_t layer) const {
    const std::string kind = kind_of(layer);
    return kind == "compressed_sparse_attention"    ? 4
           : kind == "heavily_compressed_attention" ? 128
                                                    : 0;
  }
  bool has_expert_table(int64_t layer) const {
    return layer < config_.i64("num_hash_layers").value_or(3);
  }
  bool has_groups() const { return by_two_best() || routes_by(RouterKind::GroupsByBest); }
  bool beside_dense() const { return family_->experts.layers == LayerPattern::BesideDense; }
  // By the period of the family's windows, where the config does not say.
  bool has_window(int64_t layer) const {
    const auto types = config_.strings("layer_types");
    if (types && layer < std::ssize(*types)) {
      return (*types)[static_cast<size_t>(layer)] == "sliding_attention";
    }
    return family_->has_window(layer, family_->window_period);
  }
  bool is_global(int64_t layer) const { return global_head_dim_ > 0 && !has_window(layer); }
  int64_t head_dim_of(int64_t layer) const {
    return is_global(layer) ? global_head_dim_ : head_dim_;
  }
  // All layers but every n-th.
  bool has_delta_net(int64_t layer) const {
    if (by_channel_) {
      const auto types = config_.strings("layer_types");
      return types && (*types)[static_cast<size_t>(std::min(layer, std::ssize(*types) - 1))] ==
                          "linear_attention";
    }
    return delta_value_heads_ > 0 && layer < layers_ && (layer + 1) % full_attention_interval_ != 0;
  }
  std::string kind_of(int64_t layer) const {
    const auto types = config_.strings("layer_types");
    if (!types || types->empty()) return "";
    return (*types)[static_cast<size_t>(std::min(layer, std::ssize(*types) - 1))];
  }
  bool has_state_space(int64_t layer) const {
    return space_heads_ > 0 &&
           (family_->beside_attention || !attends() || kind_of(layer) == "linear_attention");
  }
  bool has_attention(int64_t layer) const {
    if (conv_taps_ > 0) return kind_of(layer) != "conv";
    return space_heads_ == 0 || family_->beside_attention || kind_of(layer) == "full_attention";
  }
  // Some families have them in layers with a window alone.
  bool has_sinks(int64_t layer) const {
    const families::ModuleRow* row = family_->find_row(ir::Role::Attention);
    if (!has_param(ir::Role::Attention, "sinks")) return false;
    if (row->params[0].when != families::When::Sinks) return true;
    return flag(has_window(layer) ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias")
        .value_or(has_window(layer));
  }
  // The width of a value head.
  int64_t value_dim_of(int64_t layer) const {
    return value_head_ > 0 ? value_head_ : head_dim_of(layer);
  }
  bool has_head_gates() const {
    return family_->head_gates && config_.string("gating") != "per-element";
  }
  int64_t local_rotary() const {
    const double part = config_.f64("local_rotary_factor").value_or(1);
    return static_cast<int64_t>(part * static_cast<double>(head_dim_) + 1e-6) / 2 * 2;
  }
  bool has_feed_forward(int64_t layer) const {
    return !family_->one_part || kind_of(layer) == "mlp" || kind_of(layer) == "moe";
  }
  int64_t space_width() const { return space_heads_ * space_dim_; }
  int64_t space_channels() const { return space_width() + 2 * space_groups_ * space_state_; }
  // All layers, or those that the config lists as full.
  bool has_indexer(int64_t layer) const {
    if (!is_mla()) return index_heads_ > 0 && kind_of(layer) == "sparse_attention";
    const auto types = config_.strings("indexer_types");
    const bool full =
        !types || layer >= std::ssize(*types) || (*types)[static_cast<size_t>(layer)] == "full";
    return index_heads_ > 0 && full;
  }
  int64_t delta_width() const { return delta_value_heads_ * delta_dim_; }
  int64_t delta_channels() const { return 2 * delta_key_heads_ * delta_dim_ + delta_width(); }
  // The layers at the end have none; one for multi-token prediction behind them has.
  bool has_own_keys(int64_t layer) const {
    return layer < layers_ - shared_layers_ || layer >= layers_;
  }
  bool has_own_values(int64_t layer) const {
    return has_own_keys(layer) && !(is_global(layer) && flag("attention_k_eq_v").value_or(false));
  }
  // Behind the dense ones, every n-th.
  bool is_moe(int64_t layer) const {
    if (family_->experts.layers == LayerPattern::ByKind)
      return has_experts() && kind_of(layer) == "moe";
    return has_experts() && layer >= dense_ && (layer + 1) % moe_step_ == 0;
  }
  bool by_two_best() const { return routes_by(RouterKind::GroupsByTwoBest); }
  bool routes_by(RouterKind router) const { return family_->experts.router == router; }
  bool has_correction_bias() const { return has_param(ir::Role::Router, "correction_bias"); }
  bool has_param(ir::Role role, std::string_view name) const {
    const families::ModuleRow* row = family_->find_row(role);
    return row && std::ranges::any_of(row->params, [&](const families::ParamRow& param) {
             return param.name != nullptr && param.name == name;
           });
  }
  // A parameter that every model of the family has, or every one with biases of that kind.
  bool always_has(ir::Role role, std::string_view name) const {
    const families::ModuleRow* row = family_->find_row(role);
    return row && std::ranges::any_of(row->params, [&](const families::ParamRow& param) {
             return param.name != nullptr && param.name == name &&
                    (param.when == families::When::Always ||
                     (param.when == families::When::MlpBias && family_->mlp_bias &&
                      flag("mlp_bias").value_or(false)));
           });
  }
  bool has_experts() const { return experts_ > 0; }
  bool has_qkv_bias() const {
    if (family_->bias == families::BiasKind::Qkv || always_has(ir::Role::QProj, "bias"))
      return true;
    return flag(config_.has("use_qkv_bias") ? "use_qkv_bias" : "attention_bias").value_or(false);
  }

  // As JSON text, without the quotes of a text; "" when the family has none.
  std::string default_of(std::string_view key) const {
    const char* found = family_->find_default(key);
    const std::string_view value = found == nullptr ? "" : found;
    return std::string(value.starts_with('"') ? value.substr(1, value.size() - 2) : value);
  }
  int64_t shared_count() const {
    const std::string usual = default_of("n_shared_experts");
    const int64_t otherwise = usual.empty() || usual == "null" ? 0 : std::stoll(usual);
    return config_.i64("n_shared_experts").value_or(otherwise);
  }
  std::optional<bool> flag(std::string_view key) const {
    if (const auto value = config_.boolean(key)) return value;
    const std::string value = default_of(key);
    return value.empty() ? std::nullopt : std::optional(value == "true");
  }

  Result<int64_t> need(const char* key) const {
    const auto value = config_.i64(key);
    if (value && *value > 0) return *value;
    return Error{fmt::format("{}: key '{}' is missing or no count above 0", config_.file(), key)};
  }

  // One number for each layer: the config's list, or its number for all of them.
  Result<std::vector<int64_t>> by_layer(const char* key) const {
    const auto list = config_.ints(key);
    if (!list) return std::vector<int64_t>(layers_, KTX_TRY(need(key)));
    const auto count = static_cast<int64_t>(list->size());
    if (count >= layers_ && std::ranges::min(*list) > 0) return *list;
    return Error{fmt::format("{}: key '{}' has {} numbers, expected {} counts above 0",
                             config_.file(), key, count, layers_)};
  }

  // Prediction layers, behind the others, are like the last one.
  int64_t of_layer(const std::vector<int64_t>& values, int64_t layer) const {
    return values[std::min(layer, layers_ - 1)];
  }

  Status read_sizes() {
    hidden_ = KTX_TRY(need("hidden_size"));
    layers_ = options_.layers.value_or(KTX_TRY(need("num_hidden_layers")));
    if (layers_ < 1) return Error{"expected at least one layer"};
    heads_.assign(layers_, 0);
    if (attends()) heads_ = KTX_TRY(by_layer("num_attention_heads"));
    kv_heads_ = heads_;
    if (config_.has("num_key_value_heads")) kv_heads_ = KTX_TRY(by_layer("num_key_value_heads"));
    head_dim_ = config_.i64("head_dim").value_or(hidden_ / std::max<int64_t>(heads_[0], 1));
    const bool no_dense = family_->experts.layers == LayerPattern::AllMoe;
    if (family_->has_role(ir::Role::StateSpace)) KTX_TRY(read_state_space());
    if (family_->has_role(ir::Role::ShortConv)) {
      conv_taps_ = config_.i64("conv_L_cache").value_or(3);
    }
    ffn_.assign(layers_, 0);
    if (attends()) {
      ffn_ = KTX_TRY(by_layer(no_dense && !config_.has(family_->dense_width_key)
                                  ? family_->experts.width_key
                                  : family_->dense_width_key));
    }
    vocab_ = KTX_TRY(need("vocab_size"));
    const bool wants_experts = beside_dense() ? flag("enable_moe_block").value_or(false)
                                              : family_->experts.layers != LayerPattern::AllDense &&
                                                    config_.i64(family_->experts.count_key) != 0;
    if (wants_experts) {
      experts_ = KTX_TRY(need(family_->experts.count_key));
      used_ = KTX_TRY(need("num_experts_per_tok"));
      expert_ffn_ = KTX_TRY(need(family_->experts.width_key));
    }
    if (is_mla()) {
      q_rank_ = config_.i64("q_lora_rank").value_or(0);
      kv_rank_ = KTX_TRY(need("kv_lora_rank"));
      rope_ = KTX_TRY(need("qk_rope_head_dim"));
      nope_ = KTX_TRY(need("qk_nope_head_dim"));
      v_dim_ = KTX_TRY(need("v_head_dim"));
    }
    if (is_compressed()) {
      q_rank_ = KTX_TRY(need("q_lora_rank"));
      rope_ = KTX_TRY(need("qk_rope_head_dim"));
      out_groups_ = KTX_TRY(need("o_groups"));
      out_rank_ = KTX_TRY(need("o_lora_rank"));
      streams_ = config_.i64("hc_mult").value_or(4);
    }
    if (family_->has_role(ir::Role::Indexer)) {
      index_heads_ = KTX_TRY(need("index_n_heads"));
      index_dim_ = KTX_TRY(need("index_head_dim"));
    }
    if (family_->has_config_key("first_k_dense_replace")) {
      dense_ = config_.i64("first_k_dense_replace").value_or(0);
    }
    if (family_->experts.layers == LayerPattern::FirstDenseThenStep ||
        family_->experts.layers == LayerPattern::SparseStep) {
      moe_step_ = std::max<int64_t>(config_.i64("decoder_sparse_step").value_or(1), 1);
    }
    if (!is_mla() && family_->has_config_key("v_head_dim")) {
      value_head_ = config_.i64("v_head_dim").value_or(0);
    }
    rotary_ = head_dim_;
    if (family_->partial_rotary) {
      const double part = config_.f64("partial_rotary_factor").value_or(1);
      rotary_ = config_.i64("rotary_dim")
                    .value_or(static_cast<int64_t>(part * static_cast<double>(head_dim_)));
    }
    if (is_compressed()) rotary_ = rope_;
    if (family_->experts.shared == SharedKind::Count) {
      shared_ffn_ = shared_count() * expert_ffn_;
    } else if (family_->experts.shared == SharedKind::Width) {
      shared_ffn_ = KTX_TRY(need("shared_expert_intermediate_size"));
      if (!wants_experts) ffn_.assign(ffn_.size(), shared_ffn_);  // Granite 4
    }
    read_kinds_of_layers();
    by_channel_ = family_->has_role(ir::Role::DeltaForget);
    if (by_channel_) {
      const char* const heads =
          config_.has("linear_num_heads") ? "linear_num_heads" : "num_attention_heads";
      delta_key_heads_ = delta_value_heads_ = KTX_TRY(need(heads));
      delta_dim_ = KTX_TRY(need("linear_head_dim"));
      delta_taps_ = config_.i64("linear_conv_kernel_dim").value_or(4);
    } else if (family_->has_role(ir::Role::DeltaNet)) {
      delta_key_heads_ = KTX_TRY(need("linear_num_key_heads"));
      delta_value_heads_ = KTX_TRY(need("linear_num_value_heads"));
      delta_dim_ = KTX_TRY(need("linear_key_head_dim"));
      delta_taps_ = config_.i64("linear_conv_kernel_dim").value_or(4);
      full_attention_interval_ =
          std::max<int64_t>(config_.i64("full_attention_interval").value_or(4), 1);
    }
    has_qk_norm_ = flag("use_qk_norm").value_or(true);
    tied_ = flag("tie_word_embeddings").value_or(false);
    scoring_ = config_.string("scoring_func").value_or(default_of("scoring_func"));
    facts_ = {layers_, experts_,      heads_[0] / std::max<int64_t>(kv_heads_[0], 1),
              tied_,   options_.seed, family_->has_role(ir::Role::DeltaNet)};
    return {};
  }

  Status read_state_space() {
    space_heads_ = KTX_TRY(need("mamba_n_heads"));
    space_dim_ = KTX_TRY(need("mamba_d_head"));
    space_groups_ = KTX_TRY(need("mamba_n_groups"));
    space_state_ = KTX_TRY(need("mamba_d_state"));
    space_taps_ = config_.i64("mamba_d_conv").value_or(4);
    return {};
  }

  // Of families whose layers without a window differ in more than that.
  void read_kinds_of_layers() {
    if (!family_->has_config_key("global_head_dim")) return;
    const auto number = [&](const char* key, int64_t otherwise) {
      return config_.i64(key).value_or(otherwise);
    };
    global_head_dim_ = number("global_head_dim", 512);
    shared_layers_ = number("num_kv_shared_layers", 0);
    layer_input_ = number("hidden_size_per_layer_input", 0);
    const bool doubled = flag("use_double_wide_mlp").value_or(false);
    for (int64_t i = 0; i < layers_; ++i) {
      if (doubled && !has_own_keys(i)) ffn_[static_cast<size_t>(i)] *= 2;
      if (!is_global(i)) continue;
      auto& kv_heads = kv_heads_[static_cast<size_t>(i)];
      kv_heads = number("num_global_key_value_heads", kv_heads);
    }
  }

  void u32(std::string_view key, int64_t value) {
    writer_.add_u32(fmt::format("{}.{}", arch_, key), static_cast<uint32_t>(value));
  }
  // One number where all layers have the same.
  void u32s(std::string_view key, const std::vector<int64_t>& values) {
    if (std::ranges::count(values, values[0]) == std::ssize(values)) return u32(key, values[0]);
    const std::vector<uint32_t> numbers(values.begin(), values.begin() + layers_);
    writer_.add_u32s(fmt::format("{}.{}", arch_, key), numbers);
  }
  void f32(std::string_view key, double value) {
    writer_.add_f32(fmt::format("{}.{}", arch_, key), static_cast<float>(value));
  }

  Status add_metadata() {
    writer_.add_string("general.architecture", arch_);
    writer_.add_string("general.type", "model");
    writer_.add_string("general.name", fmt::format("synthetic {}", type_));
    u32("block_count", layers_ + (options_.mtp ? 1 : 0));
    if (options_.mtp) u32("nextn_predict_layers", 1);
    u32("context_length", attends() ? KTX_TRY(need("max_position_embeddings")) : 1 << 20);
    u32("embedding_length", hidden_);
    if (family_->one_part && attends()) {
      std::vector<uint32_t> widths;
      for (int64_t i = 0; i < layers_; ++i) {
        widths.push_back(has_feed_forward(i) ? static_cast<uint32_t>(ffn_[0]) : 0);
      }
      writer_.add_u32s(arch_ + ".feed_forward_length", widths);
    } else {
      u32s("feed_forward_length", ffn_);
    }
    u32s("attention.head_count", heads_);
    const bool one_kv_head = is_mla() && !options_.unsplit_kv;
    if (by_channel_) {
      std::vector<uint32_t> counts;
      for (int64_t i = 0; i < layers_; ++i) counts.push_back(has_delta_net(i) ? 0 : 1);
      writer_.add_u32s(arch_ + ".attention.head_count_kv", counts);
    } else if (conv_taps_ > 0 || (space_heads_ > 0 && attends() && !family_->beside_attention)) {
      std::vector<uint32_t> counts;
      for (int64_t i = 0; i < layers_; ++i) {
        counts.push_back(has_attention(i) ? static_cast<uint32_t>(kv_heads_[0]) : 0);
      }
      writer_.add_u32s(arch_ + ".attention.head_count_kv", counts);
    } else if (attends()) {
      u32s("attention.head_count_kv", one_kv_head ? std::vector<int64_t>{1} : kv_heads_);
    }
    if (family_->has_role(ir::Role::Rotary)) {
      f32("rope.freq_base", config_.f64("rope_theta").value_or(10000));
    }
    if (family_->layer_norms) {
      f32("attention.layer_norm_epsilon", config_.f64(epsilon_key()).value_or(1e-5));
    } else {
      f32("attention.layer_norm_rms_epsilon", config_.f64("rms_norm_eps").value_or(1e-6));
    }
    if (family_->encoder) writer_.add_bool(arch_ + ".attention.causal", false);
    if (scores() > 0) u32("pooling_type", 4);
    if (scores() == 0 && family_->encoder) u32("pooling_type", 1);
    u32("vocab_size", vocab_);
    if (has_experts()) {
      u32("expert_count", experts_);
      u32("expert_used_count", used_);
      if (family_->has_gguf_key("expert_feed_forward_length")) {
        u32("expert_feed_forward_length", expert_ffn_);
      }
    }
    if (family_->has_gguf_key("moe_latent_size") && config_.i64("moe_latent_size")) {
      u32("moe_latent_size", config_.i64("moe_latent_size").value_or(0));
    }
    if (family_->has_gguf_key("expert_shared_feed_forward_length")) {
      u32("expert_shared_feed_forward_length", shared_ffn_);
    }
    if (is_mla()) {
      add_mla_metadata();
    } else if (global_head_dim_ > 0) {
      add_kinds_metadata();
    } else if (family_->has_role(ir::Role::Rotary) || (space_heads_ > 0 && attends())) {
      u32("rope.dimension_count", rotary_);
      if (config_.i64("head_dim")) {
        u32("attention.key_length", head_dim_);
        u32("attention.value_length", value_head_ > 0 ? value_head_ : head_dim_);
      }
      if (family_->has_gguf_key("rope.dimension_count_swa")) {
        u32("rope.dimension_count_swa", local_rotary());
      }
    }
    if (index_heads_ > 0) add_indexer_metadata();
    if (is_compressed()) add_compressed_metadata();
    if (delta_value_heads_ > 0) add_delta_metadata();
    if (space_heads_ > 0) add_state_space_metadata();
    if (conv_taps_ > 0) u32("shortconv.l_cache", conv_taps_);
    if (has_groups()) add_group_metadata();
    if (!has_groups() && family_->has_gguf_key("interleave_moe_layer_step")) {
      u32("interleave_moe_layer_step", moe_step_);
    }
    add_rope_metadata();
    add_window_metadata();
    return {};
  }

  // By the name that the family's config.json has.
  std::string epsilon_key() const {
    for (const families::ConfigAlias& alias : family_->rows.aliases) {
      if (std::string_view(alias.key) == "layer_norm_eps" && config_.has(alias.alias)) {
        return alias.alias;
      }
    }
    return "layer_norm_eps";
  }

  // Of a text, in the place of logits: where the config asks for them.
  int64_t scores() const { return config_.i64("score_count").value_or(0); }

  void add_kinds_metadata() {
    u32("rope.dimension_count", global_head_dim_);
    u32("rope.dimension_count_swa", head_dim_);
    u32("attention.key_length", global_head_dim_);
    u32("attention.value_length", global_head_dim_);
    u32("attention.key_length_swa", head_dim_);
    u32("attention.value_length_swa", head_dim_);
    u32("attention.shared_kv_layers", shared_layers_);
    u32("embedding_length_per_layer_input", layer_input_);
    std::vector<bool> windows;
    for (int64_t i = 0; i < layers_; ++i) windows.push_back(has_window(i));
    writer_.add_bools(arch_ + ".attention.sliding_window_pattern", windows);
  }

  void add_delta_metadata() {
    if (by_channel_) {
      u32("ssm.conv_kernel", delta_taps_);
      u32("kda.head_dim", delta_dim_);
      if (const auto bound = config_.f64("kda_decay_bound")) f32("kda.gate_lower_bound", -*bound);
      return;
    }
    u32("ssm.conv_kernel", delta_taps_);
    u32("ssm.state_size", delta_dim_);
    u32("ssm.group_count", delta_key_heads_);
    u32("ssm.time_step_rank", delta_value_heads_);
    u32("ssm.inner_size", delta_width());
    u32("full_attention_interval", full_attention_interval_);
    if (family_->has_role(ir::Role::DeltaBaProj)) return;
    // Qwen3.5: pairs that turn by the position in time, height and width, which are equal in text.
    const auto pairs = static_cast<int32_t>(rotary_ / 2);
    writer_.add_i32s(arch_ + ".rope.dimension_sections",
                     std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
  }

  void add_state_space_metadata() {
    u32("ssm.conv_kernel", space_taps_);
    u32("ssm.state_size", space_state_);
    u32("ssm.group_count", space_groups_);
    u32("ssm.time_step_rank", space_heads_);
    u32("ssm.inner_size", space_width());
    if (!family_->has_gguf_key("rope.scaling.finetuned")) return;
    writer_.add_bool(arch_ + ".rope.scaling.finetuned",
                     config_.string("position_embedding_type") == "rope");
  }

  void add_mla_metadata() {
    // Converters leave the key out where there is no such matrix, and llama.cpp tells those
    // models by their number of layers: a model with other layers than its config says 0.
    const bool whole = layers_ == config_.i64("num_hidden_layers").value_or(layers_);
    if (q_rank_ > 0 || !whole) u32("attention.q_lora_rank", q_rank_);
    u32("attention.kv_lora_rank", kv_rank_);
    u32("rope.dimension_count", rope_);
    if (options_.unsplit_kv) {
      u32("attention.key_length", nope_ + rope_);
      u32("attention.value_length", v_dim_);
    } else {
      u32("attention.key_length", kv_rank_ + rope_);
      u32("attention.value_length", kv_rank_);
      u32("attention.key_length_mla", nope_ + rope_);
      u32("attention.value_length_mla", v_dim_);
    }
  }

  void add_indexer_metadata() {
    u32("attention.indexer.head_count", index_heads_);
    u32("attention.indexer.key_length", index_dim_);
    if (!is_mla() && !is_compressed()) {
      u32("attention.indexer.top_k", config_.i64("index_topk_blocks").value_or(16));
      u32("attention.indexer.block_size", config_.i64("index_block_size").value_or(128));
      u32("attention.indexer.local_blocks", config_.i64("index_local_blocks").value_or(1));
      return;
    }
    u32("attention.indexer.top_k", config_.i64("index_topk").value_or(2048));
    if (!family_->has_gguf_key("attention.indexer.types")) return;
    std::vector<uint32_t> types;
    for (int64_t i = 0; i < layers_; ++i) types.push_back(has_indexer(i));
    writer_.add_u32s(arch_ + ".attention.indexer.types", types);
  }

  void add_compressed_metadata() {
    std::vector<int32_t> rates;
    std::vector<float> limits;
    for (int64_t i = 0; i < layers_; ++i) {
      rates.push_back(static_cast<int32_t>(every_of(i)));
      limits.push_back(static_cast<float>(config_.f64("swiglu_limit").value_or(10)));
    }
    writer_.add_i32s(arch_ + ".attention.compress_ratios", rates);
    writer_.add_f32s(arch_ + ".swiglu_clamp_exp", limits);
    writer_.add_f32s(arch_ + ".swiglu_clamp_shexp", limits);
    f32("attention.compress_rope_freq_base", config_.f64("compress_rope_theta").value_or(160000));
    u32("attention.q_lora_rank", q_rank_);
    u32("attention.output_group_count", out_groups_);
    u32("attention.output_lora_rank", out_rank_);
    u32("hyper_connection.count", streams_);
    u32("hyper_connection.sinkhorn_iterations", config_.i64("hc_sinkhorn_iters").value_or(20));
    f32("hyper_connection.epsilon", config_.f64("hc_eps").value_or(1e-6));
    u32("hash_layer_count", config_.i64("num_hash_layers").value_or(3));
    u32("expert_shared_count", shared_count());
    u32("expert_gating_func", 4);
    f32("expert_weights_scale", config_.f64("routed_scaling_factor").value_or(1.5));
    writer_.add_bool(arch_ + ".expert_weights_norm", true);
  }

  // Those that the family has.
  void add_group_metadata() {
    const auto known = [&](std::string_view key) { return family_->has_gguf_key(key); };
    const auto count = [&](std::string_view key, int64_t value) {
      if (known(key)) u32(key, value);
    };
    count("leading_dense_block_count", dense_);
    count("interleave_moe_layer_step", moe_step_);
    count("expert_shared_count", shared_count());
    count("expert_group_count", config_.i64("n_group").value_or(1));
    count("expert_group_used_count", config_.i64("topk_group").value_or(1));
    if (known("expert_weights_scale")) {
      f32("expert_weights_scale", config_.f64("routed_scaling_factor").value_or(1));
    }
    count("expert_gating_func", scoring_ == "sigmoid" ? 2 : 1);
    if (known("expert_weights_norm") && config_.boolean("norm_topk_prob").value_or(by_two_best())) {
      writer_.add_bool(arch_ + ".expert_weights_norm", true);
    }
  }

  void add_window_list() {
    constexpr std::string_view kKey = "attention.sliding_window_pattern";
    const auto types = config_.strings("layer_types");
    if (!types || !family_->windows_by_period()) return;
    if (global_head_dim_ > 0) return;  // add_kinds_metadata() writes it
    if (!family_->has_gguf_key(kKey)) return;
    std::vector<int32_t> list, usual;
    for (const std::string& type : *types) {
      const auto layer = static_cast<int32_t>(list.size());
      usual.push_back(family_->has_window(layer, family_->window_period));
      list.push_back(type == "sliding_attention");
    }
    if (list != usual) writer_.add_i32s(fmt::format("{}.{}", arch_, kKey), list);
  }

  // As converters do: no type and no factor, but what follows of it.
  void add_longrope_metadata() {
    const int64_t first =
        config_.i64("rope_scaling.original_max_position_embeddings").value_or(4096);
    const double all = config_.f64("max_position_embeddings").value_or(4096);
    const double factor =
        config_.f64("rope_scaling.factor").value_or(all / static_cast<double>(first));
    const double usual =
        factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(first)));
    u32("rope.scaling.original_context_length", first);
    f32("rope.scaling.attn_factor", config_.f64("rope_scaling.attention_factor").value_or(usual));
  }

  void add_rope_metadata() {
    const std::string type = config_.string("rope_scaling.rope_type").value_or("default");
    if (type == "longrope") return add_longrope_metadata();
    if (type != "yarn" && type != "linear") return;  // llama3 is a tensor
    writer_.add_string(arch_ + ".rope.scaling.type", type);
    f32("rope.scaling.factor", config_.f64("rope_scaling.factor").value_or(1));
    if (type == "linear") return;
    if (const auto length = config_.i64("rope_scaling.original_max_position_embeddings")) {
      u32("rope.scaling.original_context_length", *length);
    }
    f32("rope.scaling.yarn_beta_fast", config_.f64("rope_scaling.beta_fast").value_or(32));
    f32("rope.scaling.yarn_beta_slow", config_.f64("rope_scaling.beta_slow").value_or(1));
    if (const auto factor = config_.f64("rope_scaling.attention_factor")) {
      f32("rope.scaling.yarn_attn_factor", *factor);
    }
    if (const auto scale = config_.f64("rope_scaling.mscale_all_dim")) {
      constexpr std::string_view kKey = "rope.scaling.yarn_log_multiplier";
      const families::ConfigKey* row = family_->find_gguf_key(kKey);
      const bool tenth = row && row->read == families::KeyRead::MscaleAllDim;
      f32(kKey, tenth ? 0.1 * *scale : *scale);
    }
    if (const auto growth = config_.f64("rope_scaling.llama_4_scaling_beta")) {
      f32("attention.temperature_scale", *growth);
    }
  }

  // Layers with windows as a converter leaves them out, by the family; others as a list.
  void add_window_metadata() {
    const auto window = config_.i64("sliding_window");
    if (window && *window > 0 && family_->has_gguf_key("attention.sliding_window")) {
      const families::ConfigKey* row = family_->find_gguf_key("attention.sliding_window");
      u32("attention.sliding_window", *window - (row->read == families::KeyRead::OneMore ? 1 : 0));
      add_window_list();
    }
    const auto number = [&](std::string_view config_key, std::string_view key) {
      const auto value = config_.f64(config_key);
      if (value && family_->has_gguf_key(key)) f32(key, *value);
    };
    number("rope_local_base_freq", "rope.freq_base_swa");
    number("attention_value_scale", "attention.value_scale");
    const auto limits = [&](std::string_view config_key, std::string_view key) {
      const auto list = config_.floats(config_key);
      if (!list || is_compressed() || !family_->has_gguf_key(key)) return;
      writer_.add_f32s(fmt::format("{}.{}", arch_, key),
                       std::vector<float>(list->begin(), list->end()));
    };
    limits("swiglu_limits", "swiglu_clamp_exp");
    limits("swiglu_limits_shared", "swiglu_clamp_shexp");
    number("attn_logit_softcapping", "attn_logit_softcapping");
    number("final_logit_softcapping", "final_logit_softcapping");
    number("embedding_multiplier", "embedding_scale");
    number("residual_multiplier", "residual_scale");
    if (const auto depth = config_.f64("scale_depth")) {  // MiniCPM
      f32("residual_scale", *depth / std::sqrt(static_cast<double>(layers_)));
      f32("logit_scale", static_cast<double>(hidden_) / config_.f64("dim_model_base").value_or(1));
    }
    number("logits_scaling", "logit_scale");
    number("logit_scale", "logit_scale");
    number("attention_multiplier", "attention.scale");
  }

  // A matrix in the type of the mix.
  void matrix(const std::string& name, int64_t layer, std::vector<int64_t> shape,
              float sigma = kSigma) {
    if (options_.strong) {
      const bool embedding = sigma == kEmbeddingSigma;
      sigma = embedding ? 1 : kStrongProduct / std::sqrt(static_cast<float>(shape[0]));
    }
    const DType dtype = mixed_type(mix_, facts_, name, layer, shape[0]);
    auto& pool = pools_[{dtype, sigma}];
    if (!pool) {
      pool = std::make_shared<BlockPool>(dtype, sigma, mix_bits(options_.seed ^ pools_.size()),
                                         options_.pool_bytes);
    }
    const uint64_t seed = next_seed();
    writer_.add_tensor(name, dtype, std::move(shape),
                       [pool = pool, seed](uint64_t offset, std::span<std::byte> out) {
                         pool->fill(seed, offset, out);
                       });
  }

  // An F32 tensor, value by value.
  template <class ValueAt>
  void values(const std::string& name, std::vector<int64_t> shape, ValueAt value_at) {
    writer_.add_tensor(name, DType::F32, std::move(shape),
                       [value_at](uint64_t offset, std::span<std::byte> out) {
                         for (size_t at = 0; at < out.size(); at += 4) {
                           const float value = value_at((offset + at) / 4);
                           std::memcpy(&out[at], &value, 4);
                         }
                       });
  }
  // The weights of a norm.
  void ones(const std::string& name, int64_t size) {
    if (options_.strong) return noise(name, size, 0.02f, 1);
    values(name, {size}, [](uint64_t) { return 1.f; });
  }
  void noise(const std::string& name, int64_t size, float sigma, float mean = 0) {
    noise(name, std::vector<int64_t>{size}, sigma, mean);
  }
  void noise(const std::string& name, std::vector<int64_t> shape, float sigma, float mean = 0) {
    const uint64_t seed = next_seed();
    if (options_.strong) sigma *= kStrongNoise;
    values(name, std::move(shape), [seed, sigma, mean](uint64_t i) {
      return mean + sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
    });
  }
  // A norm of a layer, where the family has it, under the name that the family's tree gives it.
  void norm(ir::Role role, int64_t layer, int64_t size) {
    const families::ModuleRow* row = family_->find_row(role);
    if (!row || row->params[0].name == nullptr) return;  // none, or one without weights
    if (row->when == families::When::MlpNorm && flag("use_parallel_residual").value_or(false)) {
      return;
    }
    std::string_view leaf = row->params[0].tensors;  // "B.attn_norm."
    leaf.remove_prefix(std::string_view("B.").size());
    leaf = leaf.substr(0, leaf.find(" | "));
    const std::string name =
        fmt::format("blk.{}.{}{}", layer, leaf, leaf.ends_with('.') ? "weight" : "");
    const bool post = role == ir::Role::AttentionPostNorm || role == ir::Role::MlpPostNorm ||
                      role == ir::Role::DensePostNorm || role == ir::Role::ExpertsPostNorm;
    const bool whole_row =
        size != head_dim_of(layer) && (role == ir::Role::QNorm || role == ir::Role::KNorm);
    // Elements that differ, where a norm of the wrong elements would not be noticed otherwise.
    const bool differ = !options_.strong && (post || whole_row);
    if (differ) {
      noise(name, size, 0.1f, 1);
    } else {
      ones(name, size);
    }
    if (always_has(role, "bias")) norm_bias(name, size);
  }
  // Of the norm whose weights have that name.
  void norm_bias(const std::string& weight, int64_t size) {
    noise(weight.substr(0, weight.rfind('.')) + ".bias", size, 0.02f);
  }
  float router_sigma() const {
    return options_.strong ? kStrongProduct / std::sqrt(static_cast<float>(hidden_)) : kSigma;
  }
  // Row e is expert e's; with skew the first ones have long rows and win.
  void router(const std::string& name) {
    const uint64_t seed = next_seed();
    values(name, {hidden_, experts_},
           [seed, hidden = static_cast<uint64_t>(hidden_), skew = options_.skew,
            sigma = router_sigma()](uint64_t i) {
             const auto expert = static_cast<float>(i / hidden);
             const float own = skew ? sigma * (1.f + 4.f / (1.f + expert)) : sigma;
             return own * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
           });
  }

  uint64_t next_seed() { return mix_bits(options_.seed * 0x10001 + ++tensor_count_); }

  void add_tensors() {
    if (family_->encoder) {
      add_encoder_tensors();
    } else {
      if (!tied_ && scores() == 0) matrix("output.weight", -1, {hidden_, vocab_});
      if (always_has(ir::Role::Head, "bias")) noise("output.bias", vocab_, kSigma);
      ones(conv_taps_ > 0 ? "token_embd_norm.weight" : "output_norm.weight", hidden_);
      if (always_has(ir::Role::FinalNorm, "bias")) norm_bias("output_norm.weight", hidden_);
      if (scores() > 0) matrix("cls.output.weight", -1, {hidden_, scores()});
    }
    if (streams_ > 0) add_streams("output_hc", streams_, 1);
    if (config_.string("rope_scaling.rope_type") == "llama3") add_rope_freqs();
    if (global_head_dim_ > 0) add_proportions();
    if (config_.string("rope_scaling.rope_type") == "longrope") {
      add_longrope("short");
      add_longrope("long");
    }
    matrix("token_embd.weight", -1, {hidden_, vocab_}, kEmbeddingSigma);
    if (layer_input_ > 0) {
      matrix("per_layer_token_embd.weight", -1, {layers_ * layer_input_, vocab_}, kEmbeddingSigma);
      matrix("per_layer_model_proj.weight", -1, {hidden_, layers_ * layer_input_});
      ones("per_layer_proj_norm.weight", layer_input_);
    }
    for (int64_t layer = 0; layer < layers_; ++layer) add_layer(layer);
    if (options_.mtp) add_mtp(layers_);
  }

  // What an encoder has in the place of a head.
  void add_encoder_tensors() {
    if (family_->has_role(ir::Role::PositionEmbedding)) {
      const int64_t positions = config_.i64("max_position_embeddings").value_or(1);
      matrix("position_embd.weight", -1, {hidden_, positions}, kEmbeddingSigma);
    }
    if (const auto types = config_.i64("type_vocab_size").value_or(0); types > 0) {
      matrix("token_types.weight", -1, {hidden_, types}, kEmbeddingSigma);
    }
    ones("token_embd_norm.weight", hidden_);
    norm_bias("token_embd_norm.weight", hidden_);
    if (scores() == 0) return;
    if (flag("score_dense").value_or(false)) {
      matrix("cls.weight", -1, {hidden_, hidden_});
      noise("cls.bias", hidden_, kSigma);
    }
    matrix("cls.output.weight", -1, {hidden_, scores()});
    noise("cls.output.bias", scores(), kSigma);
  }

  void add_layer(int64_t layer) {
    const std::string blk = fmt::format("blk.{}.", layer);
    norm(ir::Role::AttentionNorm, layer, hidden_);
    if (by_channel_ && has_delta_net(layer)) {
      add_channel_delta_net(layer, blk);
    } else if (is_mla()) {
      add_mla(layer, blk);
    } else if (is_compressed()) {
      add_compressed_attention(layer, blk);
    } else if (has_delta_net(layer)) {
      add_delta_net(layer, blk);
    } else if (has_attention(layer)) {
      add_attention(layer, blk);
    }
    if (has_state_space(layer)) add_state_space(layer, blk);
    if (conv_taps_ > 0 && !has_attention(layer)) add_short_conv(layer, blk);
    norm(ir::Role::AttentionPostNorm, layer, hidden_);
    norm(ir::Role::AttentionSumNorm, layer, hidden_);
    if (!family_->one_part) norm(ir::Role::MlpNorm, layer, hidden_);
    if (is_moe(layer)) add_experts(layer, blk);
    if (has_feed_forward(layer) && (!is_moe(layer) || beside_dense())) {
      const int64_t width = of_layer(ffn_, layer);
      const bool fused = has_param(ir::Role::GateUpProj, "weight");
      if (!fused && !family_->gateless) matrix(blk + "ffn_gate.weight", layer, {hidden_, width});
      matrix(blk + "ffn_up.weight", layer, {hidden_, fused ? 2 * width : width});
      matrix(blk + "ffn_down.weight", layer, {width, hidden_}, kResidualSigma);
      if (always_has(ir::Role::UpProj, "bias")) {
        noise(blk + "ffn_up.bias", width, kSigma);
        noise(blk + "ffn_down.bias", hidden_, kSigma);
      }
    }
    norm(ir::Role::MlpPostNorm, layer, hidden_);
    norm(ir::Role::MlpSumNorm, layer, hidden_);
    for (const char* part : {"hc_attn", "hc_ffn"}) {
      if (streams_ > 0) add_streams(blk + part, streams_ * (streams_ + 2), 3);
    }
    if (layer_input_ > 0) {
      matrix(blk + "inp_gate.weight", layer, {hidden_, layer_input_});
      matrix(blk + "proj.weight", layer, {layer_input_, hidden_}, kResidualSigma);
      norm(ir::Role::LayerInputPostNorm, layer, hidden_);
    }
    if (has_param(ir::Role::Layer, "output_scale")) {
      const float scale = options_.strong ? 0.5f + 0.25f * static_cast<float>(layer % 3) : 1;
      values(blk + "layer_output_scale.weight", {1}, [scale](uint64_t) { return scale; });
    }
  }

  void add_attention(int64_t layer, const std::string& blk) {
    if (has_indexer(layer)) add_block_indexer(layer, blk + "indexer.");
    const int64_t head_dim = head_dim_of(layer);
    const int64_t q = of_layer(heads_, layer) * head_dim;
    const int64_t kv = of_layer(kv_heads_, layer) * head_dim;
    const int64_t v = of_layer(kv_heads_, layer) * value_dim_of(layer);
    const int64_t read = of_layer(heads_, layer) * value_dim_of(layer);
    const bool fused = family_->has_role(ir::Role::QkvProj);
    if (fused) {
      matrix(blk + "attn_qkv.weight", layer, {hidden_, q + 2 * kv});
    } else {
      matrix(blk + "attn_q.weight", layer, {hidden_, family_->gated_attention ? 2 * q : q});
      if (has_own_keys(layer)) matrix(blk + "attn_k.weight", layer, {hidden_, kv});
      if (has_own_values(layer)) matrix(blk + "attn_v.weight", layer, {hidden_, v});
    }
    matrix(blk + "attn_output.weight", layer, {read, hidden_}, kResidualSigma);
    if (has_qkv_bias() && fused) {
      noise(blk + "attn_qkv.bias", q + 2 * kv, kSigma);
    } else if (has_qkv_bias()) {
      noise(blk + "attn_q.bias", q, kSigma);
      noise(blk + "attn_k.bias", kv, kSigma);
      noise(blk + "attn_v.bias", v, kSigma);
      if (family_->bias == families::BiasKind::Config || always_has(ir::Role::OProj, "bias")) {
        noise(blk + "attn_output.bias", hidden_, kSigma);
      }
    }
    if (has_sinks(layer)) {
      noise(blk + "attn_sinks.weight", of_layer(heads_, layer), 0.5f);
    }
    if (family_->has_role(ir::Role::AttentionGateProj)) {
      matrix(blk + "attn_gate.weight", layer,
             {hidden_, has_head_gates() ? of_layer(heads_, layer) : q});
    }
    const bool rows = family_->qk_norm == families::QkNormKind::Row;
    if (!has_qk_norm_) return;
    if (family_->qk_norm == families::QkNormKind::EachHead) {
      noise(blk + "attn_q_norm.weight", {head_dim, of_layer(heads_, layer)}, 0.02f, 1);
      noise(blk + "attn_k_norm.weight", {head_dim, of_layer(kv_heads_, layer)}, 0.02f, 1);
      return;
    }
    norm(ir::Role::QRotatedNorm, layer, head_dim_);
    norm(ir::Role::KRotatedNorm, layer, head_dim_);
    norm(ir::Role::QNorm, layer, rows ? q : head_dim);
    if (has_own_keys(layer)) norm(ir::Role::KNorm, layer, rows ? kv : head_dim);
  }

  void add_delta_net(int64_t layer, const std::string& blk) {
    matrix(blk + "attn_qkv.weight", layer, {hidden_, delta_channels()});
    matrix(blk + "attn_gate.weight", layer, {hidden_, delta_width()});
    if (family_->has_role(ir::Role::DeltaBaProj)) {
      matrix(blk + "ssm_ba.weight", layer, {hidden_, 2 * delta_value_heads_});
    } else {
      matrix(blk + "ssm_beta.weight", layer, {hidden_, delta_value_heads_});
      matrix(blk + "ssm_alpha.weight", layer, {hidden_, delta_value_heads_});
    }
    noise(blk + "ssm_conv1d.weight", {delta_taps_, delta_channels()},
          1 / std::sqrt(static_cast<float>(delta_taps_)));
    // Heads forget at rates from 1 to 16, in steps of 0.001 to 0.1, as they are before training.
    const auto part = [last = std::max<int64_t>(delta_value_heads_ - 1, 1)](uint64_t head) {
      return static_cast<float>(head) / static_cast<float>(last);
    };
    values(blk + "ssm_a", {delta_value_heads_}, [part](uint64_t h) { return -1 - 15 * part(h); });
    values(blk + "ssm_dt.bias", {delta_value_heads_}, [part](uint64_t h) {
      return std::log(std::expm1(0.001f * std::pow(100.f, part(h))));  // softplus the other way
    });
    ones(blk + "ssm_norm.weight", delta_dim_);
    matrix(blk + "ssm_out.weight", layer, {delta_width(), hidden_}, kResidualSigma);
  }

  void add_state_space(int64_t layer, const std::string& blk) {
    const int64_t channels = space_channels(), heads = space_heads_;
    matrix(blk + "ssm_in.weight", layer, {hidden_, space_width() + channels + heads});
    noise(blk + "ssm_conv1d.weight", {space_taps_, channels},
          1 / std::sqrt(static_cast<float>(space_taps_)));
    if (flag("mamba_conv_bias").value_or(true)) noise(blk + "ssm_conv1d.bias", channels, 0.02f);
    values(blk + "ssm_a", {1, heads},
           [](uint64_t head) { return -1 - static_cast<float>(head % 16); });
    noise(blk + "ssm_d", {1, heads}, 0.1f, 1);
    noise(blk + "ssm_dt.bias", heads, 0.5f, -3);
    if (flag("mamba_rms_norm").value_or(true)) {
      noise(blk + "ssm_norm.weight", {space_width() / space_groups_, space_groups_}, 0.02f, 1);
    }
    matrix(blk + "ssm_out.weight", layer, {space_width(), hidden_}, kResidualSigma);
  }

  void add_short_conv(int64_t layer, const std::string& blk) {
    noise(blk + "shortconv.conv.weight", {conv_taps_, hidden_},
          1 / std::sqrt(static_cast<float>(conv_taps_)));
    matrix(blk + "shortconv.in_proj.weight", layer, {hidden_, 3 * hidden_});
    matrix(blk + "shortconv.out_proj.weight", layer, {hidden_, hidden_}, kResidualSigma);
  }

  void add_channel_delta_net(int64_t layer, const std::string& blk) {
    const int64_t width = delta_width(), heads = delta_value_heads_;
    for (const char* part : {"q", "k", "v"}) {
      matrix(fmt::format("{}attn_{}.weight", blk, part), layer, {hidden_, width});
      noise(fmt::format("{}ssm_conv1d_{}.weight", blk, part), {delta_taps_, 1, width, 1},
            1 / std::sqrt(static_cast<float>(delta_taps_)));
    }
    const bool latent = family_->has_role(ir::Role::DeltaForgetAProj);
    matrix(blk + "ssm_f_a.weight", layer, {hidden_, latent ? delta_dim_ : width});
    if (latent) matrix(blk + "ssm_f_b.weight", layer, {delta_dim_, width});
    matrix(blk + "ssm_beta.weight", layer, {hidden_, heads});
    matrix(blk + "ssm_g_a.weight", layer, {hidden_, latent ? delta_dim_ : width});
    if (latent) matrix(blk + "ssm_g_b.weight", layer, {delta_dim_, width});
    values(blk + "ssm_a", {1, heads, 1, 1}, [latent](uint64_t head) {
      const float size = 1 + static_cast<float>(head % 16);
      return latent ? -size : size / 16;
    });
    noise(blk + "ssm_dt.bias", width, 1, -3);
    ones(blk + "ssm_norm.weight", delta_dim_);
    matrix(blk + "attn_output.weight", layer, {width, hidden_}, kResidualSigma);
  }

  void add_mla(int64_t layer, const std::string& blk) {
    const int64_t heads = heads_[0], q = heads * (nope_ + rope_);
    if (q_rank_ > 0) {
      matrix(blk + "attn_q_a.weight", layer, {hidden_, q_rank_});
      ones(blk + "attn_q_a_norm.weight", q_rank_);
      matrix(blk + "attn_q_b.weight", layer, {q_rank_, q});
    } else {
      matrix(blk + "attn_q.weight", layer, {hidden_, q});
    }
    matrix(blk + "attn_kv_a_mqa.weight", layer, {hidden_, kv_rank_ + rope_});
    ones(blk + "attn_kv_a_norm.weight", kv_rank_);
    if (options_.unsplit_kv) {
      matrix(blk + "attn_kv_b.weight", layer, {kv_rank_, heads * (nope_ + v_dim_)});
    } else {
      matrix(blk + "attn_k_b.weight", layer, {nope_, kv_rank_, heads});
      matrix(blk + "attn_v_b.weight", layer, {kv_rank_, v_dim_, heads});
    }
    matrix(blk + "attn_output.weight", layer, {heads * v_dim_, hidden_}, kResidualSigma);
    if (family_->has_role(ir::Role::AttentionGateProj)) {
      matrix(blk + "attn_gate.weight", layer, {hidden_, heads});
    }
    if (has_indexer(layer)) add_indexer(layer, blk + "indexer.");
  }

  void add_compressed_attention(int64_t layer, const std::string& blk) {
    const int64_t heads = heads_[0], every = every_of(layer);
    matrix(blk + "attn_q_a.weight", layer, {hidden_, q_rank_});
    ones(blk + "attn_q_a_norm.weight", q_rank_);
    matrix(blk + "attn_q_b.weight", layer, {q_rank_, heads * head_dim_});
    matrix(blk + "attn_kv.weight", layer, {hidden_, head_dim_});
    ones(blk + "attn_kv_a_norm.weight", head_dim_);
    matrix(blk + "attn_output_a.weight", layer,
           {heads * head_dim_ / out_groups_, out_groups_ * out_rank_});
    matrix(blk + "attn_output_b.weight", layer, {out_groups_ * out_rank_, hidden_}, kResidualSigma);
    noise(blk + "attn_sinks.weight", heads, 0.1f);
    if (every == 0) return;
    add_compressor(layer, blk + "attn_compressor", head_dim_);
    if (every != 4) return;
    add_compressor(layer, blk + "indexer_compressor", index_dim_);
    matrix(blk + "indexer.attn_q_b.weight", layer, {q_rank_, index_heads_ * index_dim_});
    matrix(blk + "indexer.proj.weight", layer, {hidden_, index_heads_});
  }

  // Entries of 4 positions overlap.
  void add_compressor(int64_t layer, const std::string& name, int64_t dim) {
    const int64_t every = every_of(layer), channels = dim * (every == 4 ? 2 : 1);
    matrix(name + "_kv.weight", layer, {hidden_, channels});
    matrix(name + "_gate.weight", layer, {hidden_, channels});
    noise(name + "_ape.weight", {channels, every}, 0.1f);
    ones(name + "_norm.weight", dim);
  }

  // Of hyper-connections.
  void add_streams(const std::string& name, int64_t width, int64_t scales) {
    const int64_t in = streams_ * hidden_;
    const uint64_t seed = next_seed();
    const float sigma =
        options_.strong ? kStrongProduct / std::sqrt(static_cast<float>(in)) : kSigma;
    values(name + "_fn.weight", {in, width}, [seed, sigma](uint64_t i) {
      return sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
    });
    noise(name + "_base.weight", width, 0.05f);
    noise(name + "_scale.weight", scales, 0.02f, 1);
  }

  // Experts of each token id, all different.
  void add_expert_table(const std::string& name) {
    const uint64_t seed = next_seed();
    writer_.add_tensor(
        name, DType::I32, {used_, vocab_},
        [seed, used = static_cast<uint64_t>(used_), experts = static_cast<uint64_t>(experts_)](
            uint64_t offset, std::span<std::byte> out) {
          for (size_t at = 0; at < out.size(); at += 4) {
            const uint64_t i = (offset + at) / 4;
            const uint64_t first = mix_bits(seed ^ mix_bits(i / used)) % experts;
            const auto expert = static_cast<int32_t>((first + i % used) % experts);
            std::memcpy(&out[at], &expert, 4);
          }
        });
  }

  void add_indexer(int64_t layer, const std::string& indexer) {
    matrix(indexer + "attn_q_b.weight", layer, {q_rank_, index_heads_ * index_dim_});
    matrix(indexer + "attn_k.weight", layer, {hidden_, index_dim_});
    ones(indexer + "k_norm.weight", index_dim_);
    noise(indexer + "k_norm.bias", index_dim_, 0.02f);
    matrix(indexer + "proj.weight", layer, {hidden_, index_heads_});
  }

  void add_block_indexer(int64_t layer, const std::string& indexer) {
    matrix(indexer + "q_proj.weight", layer, {hidden_, index_heads_ * index_dim_});
    matrix(indexer + "k_proj.weight", layer, {hidden_, index_dim_});
    ones(indexer + "q_norm.weight", index_dim_);
    ones(indexer + "k_norm.weight", index_dim_);
  }

  void add_experts(int64_t layer, const std::string& blk) {
    router(blk + "ffn_gate_inp.weight");
    if (family_->has_role(ir::Role::RouterNorm)) {
      // The router's input is divided by the root of its width.
      const float root = std::sqrt(static_cast<float>(hidden_));
      noise(blk + "ffn_gate_inp.scale", hidden_, 0.02f * root, root);
      norm(ir::Role::ExpertsNorm, layer, hidden_);
      norm(ir::Role::DensePostNorm, layer, hidden_);
      norm(ir::Role::ExpertsPostNorm, layer, hidden_);
      noise(blk + "ffn_down_exps.scale", experts_, 0.02f, 1);
    }
    const auto add = [&](const char* part, int64_t rows_of, int64_t rows, float sigma) {
      if (!options_.split_experts) {
        return matrix(fmt::format("{}{}_exps.weight", blk, part), layer, {rows_of, rows, experts_},
                      sigma);
      }
      for (int64_t e = 0; e < experts_; ++e) {
        matrix(fmt::format("{}{}.{}.weight", blk, part, e), layer, {rows_of, rows}, sigma);
      }
    };
    const int64_t latent = config_.i64("moe_latent_size").value_or(hidden_);
    if (!family_->gateless) add("ffn_gate", latent, expert_ffn_, kSigma);
    add("ffn_up", latent, expert_ffn_, kSigma);
    add("ffn_down", expert_ffn_, latent, kResidualSigma);
    if (latent != hidden_) {
      matrix(blk + "ffn_latent_down.weight", layer, {hidden_, latent});
      matrix(blk + "ffn_latent_up.weight", layer, {latent, hidden_}, kResidualSigma);
    }
    if (is_compressed() && has_expert_table(layer)) {
      add_expert_table(blk + "ffn_gate_tid2eid.weight");
    } else if (is_compressed() || has_correction_bias()) {
      noise(blk + "exp_probs_b.bias", experts_, 0.01f);
    }
    if (has_param(ir::Role::Router, "bias")) noise(blk + "ffn_gate_inp.bias", experts_, kSigma);
    if (has_param(ir::Role::Experts, "gate_bias")) {
      noise(blk + "ffn_gate_exps.bias", {expert_ffn_, experts_}, kSigma);
      noise(blk + "ffn_up_exps.bias", {expert_ffn_, experts_}, kSigma);
      noise(blk + "ffn_down_exps.bias", {hidden_, experts_}, kSigma);
    }
    if (shared_ffn_ == 0) return;
    if (family_->has_role(ir::Role::SharedGate))
      noise(blk + "ffn_gate_inp_shexp.weight", hidden_, kSigma);
    if (!family_->gateless) matrix(blk + "ffn_gate_shexp.weight", layer, {hidden_, shared_ffn_});
    matrix(blk + "ffn_up_shexp.weight", layer, {hidden_, shared_ffn_});
    matrix(blk + "ffn_down_shexp.weight", layer, {shared_ffn_, hidden_}, kResidualSigma);
  }

  // What it reads is the token's own embedding for the most part, and its head is the model's: its
  // draft tokens are often those of the model, where an embedding decides (not with strong
  // weights).
  void add_mtp(int64_t layer) {
    add_layer(layer);
    const std::string blk = fmt::format("blk.{}.nextn.", layer);
    const uint64_t seed = next_seed();
    const float sigma = options_.strong ? kStrongProduct / std::sqrt(2.f * hidden_) : kSigma;
    values(blk + "eh_proj.weight", {2 * hidden_, hidden_},
           [seed, sigma, width = static_cast<uint64_t>(2 * hidden_)](uint64_t i) {
             const float noise = sigma * normal_from_bits(mix_bits(seed ^ mix_bits(i)));
             return i % width == i / width ? 1 + noise : noise;
           });
    ones(blk + "enorm.weight", hidden_);
    ones(blk + "hnorm.weight", hidden_);
    ones(blk + "shared_head_norm.weight", hidden_);
  }

  // What llama3 scaling divides each frequency by: 1 for short waves, `factor` for
  // long ones, a blend between.
  void add_rope_freqs() {
    const double theta = config_.f64("rope_theta").value_or(10000);
    const double factor = config_.f64("rope_scaling.factor").value_or(8);
    const double low = config_.f64("rope_scaling.low_freq_factor").value_or(1);
    const double high = config_.f64("rope_scaling.high_freq_factor").value_or(4);
    const auto length = static_cast<double>(
        config_.i64("rope_scaling.original_max_position_embeddings").value_or(8192));
    // Where layers with a window rotate more of a head, nothing of theirs is divided.
    const int64_t pairs =
        std::max(rotary_, family_->has_role(ir::Role::LocalRotary) ? local_rotary() : 0) / 2;
    values("rope_freqs.weight", {pairs}, [=, dim = rotary_](uint64_t i) {
      if (static_cast<int64_t>(i) >= dim / 2) return 1.f;
      const double wave =
          2 * kPi * std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
      if (wave < length / high) return 1.f;
      if (wave > length / low) return static_cast<float>(factor);
      const double smooth = (length / wave - low) / (high - low);
      return static_cast<float>(1 / ((1 - smooth) / factor + smooth));
    });
  }

  // 1 for the pairs that turn, the first ones; the others' frequencies become nothing.
  void add_proportions() {
    const double part = config_.f64("partial_rotary_factor").value_or(0.25);
    const auto turning = static_cast<uint64_t>(part * static_cast<double>(global_head_dim_) / 2);
    values("rope_freqs.weight", {global_head_dim_ / 2},
           [turning](uint64_t i) { return i < turning ? 1.f : 1e30f; });
  }

  void add_longrope(const std::string& which) {
    const auto divisors = config_.floats("rope_scaling." + which + "_factor");
    if (!divisors) return;
    values("rope_factors_" + which + ".weight", {static_cast<int64_t>(divisors->size())},
           [=](uint64_t i) { return static_cast<float>((*divisors)[i]); });
  }

  const input::HfConfig& config_;
  const SynthOptions& options_;
  TypeMix mix_;
  MixFacts facts_;
  const families::Family* family_ = nullptr;
  std::string type_, arch_;
  int64_t hidden_ = 0, layers_ = 0, head_dim_ = 0, vocab_ = 0;
  std::vector<int64_t> heads_, kv_heads_, ffn_;  // by layer
  int64_t experts_ = 0, used_ = 0, expert_ffn_ = 0, shared_ffn_ = 0, dense_ = 0;
  int64_t moe_step_ = 1, rotary_ = 0;
  int64_t global_head_dim_ = 0;  // of layers without a window; 0: as all
  int64_t shared_layers_ = 0, layer_input_ = 0;
  // Of delta nets; no value heads: the model has none.
  int64_t delta_key_heads_ = 0, delta_value_heads_ = 0, delta_dim_ = 0, delta_taps_ = 0;
  int64_t full_attention_interval_ = 4;
  // Of state spaces; no heads: the model has none.
  int64_t space_heads_ = 0, space_dim_ = 0, space_groups_ = 0, space_state_ = 0, space_taps_ = 0;
  int64_t value_head_ = 0;   // of grouped-query attention; 0: as keys
  int64_t conv_taps_ = 0;    // of short convolutions; 0: the model has none
  bool by_channel_ = false;  // Kimi delta attention
  bool has_qk_norm_ = true;
  std::string scoring_;
  int64_t q_rank_ = 0, kv_rank_ = 0, rope_ = 0, nope_ = 0, v_dim_ = 0;
  int64_t index_heads_ = 0, index_dim_ = 0;  // of indexers; no heads: the model has none
  int64_t out_groups_ = 0, out_rank_ = 0, streams_ = 0;  // of compressed attention; 0: it is none
  bool tied_ = false;
  uint64_t tensor_count_ = 0;
  input::GgufWriter writer_;
  std::map<std::pair<DType, float>, std::shared_ptr<BlockPool>> pools_;
};

}  // namespace

Result<input::GgufWriter> synthesise(const input::HfConfig& config, const SynthOptions& options) {
  const auto mix = find_type_mix(options.types);
  if (!mix) {
    const auto names = type_mix_names();
    return Error{fmt::format("type mix '{}' is unknown{} (known are {})", options.types,
                             did_you_mean(options.types, names), join(names, ", "))};
  }
  return Synthesiser(config, options, *mix).run();
}

}  // namespace ktx::synth
