// The sizes and kinds of layers of a synthetic model, from its config and the data of its
// family (lib/families/family.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/families/family.h"
#include "lib/input/hf_config.h"
#include "lib/support/result.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::synth {

struct ModelShape {
  // Fails for a config without what the family needs. Both must outlive the shape.
  static Result<ModelShape> read(const input::HfConfig& config, const SynthOptions& options);

  const input::HfConfig& config;
  const SynthOptions& options;
  const families::Family* family = nullptr;
  std::string type, arch;
  int64_t hidden = 0, layers = 0, head_dim = 0, vocab = 0;
  std::vector<int64_t> heads, kv_heads, ffn;  // by layer
  int64_t experts = 0, used = 0, expert_ffn = 0, shared_ffn = 0, dense = 0;
  int64_t moe_step = 1, rotary = 0;
  int64_t global_head_dim = 0;  // of layers without a window; 0: as all
  int64_t shared_layers = 0, layer_input = 0;
  // Delta nets; without value heads the model has none.
  int64_t delta_key_heads = 0, delta_value_heads = 0, delta_dim = 0, delta_taps = 0;
  int64_t full_attention_interval = 4;
  // State spaces; without heads the model has none.
  int64_t space_heads = 0, space_dim = 0, space_groups = 0, space_state = 0, space_taps = 0;
  // Selective scans (Mamba-1); without channels the model has none.
  int64_t scan_channels = 0, scan_rank = 0;
  int64_t value_head = 0;   // of grouped-query attention; 0: as keys
  int64_t conv_taps = 0;    // of short convolutions; 0: the model has none
  bool by_channel = false;  // Kimi delta attention
  bool has_qk_norm = true;
  std::string scoring;
  int64_t q_rank = 0, kv_rank = 0, rope = 0, nope = 0, v_dim = 0;
  int64_t index_heads = 0, index_dim = 0;  // of indexers; no heads: the model has none
  int64_t index_pool = 0;                  // positions that they choose together
  int64_t out_groups = 0, out_rank = 0;    // of compressed attention; 0: it is none
  int64_t streams = 0, laurel_rank = 0;    // of hyper-connections, or of AltUp, which has a rank
  int64_t stream_rank = 0;                 // of gates of streams; 0: they have weights
  // N-grams; without a size the model has none.
  ir::NgramsInfo ngrams;
  int64_t ngram_layer = -1, ngram_taps = 0, ngram_width = 0, ngram_rows = 0;
  bool tied = false;

  bool is_mla() const { return family->attention == families::AttentionKind::Mla; }
  // (Latent and compressed attention have roles of their own.)
  bool attends() const;
  bool is_compressed() const { return family->attention == families::AttentionKind::Compressed; }
  // Positions of an entry of the layer's attention; 0: it has none.
  int64_t every_of(int64_t layer) const;
  bool has_expert_table(int64_t layer) const;
  bool has_groups() const { return by_two_best() || routes_by(families::RouterKind::GroupsByBest); }
  bool beside_dense() const {
    return family->experts.layers == families::LayerPattern::BesideDense;
  }
  // By the period of the family's windows, where the config does not say.
  bool has_window(int64_t layer) const;
  bool has_altup() const { return laurel_rank > 0; }
  bool is_global(int64_t layer) const { return global_head_dim > 0 && !has_window(layer); }
  int64_t head_dim_of(int64_t layer) const;
  // All layers but every n-th.
  bool has_delta_net(int64_t layer) const;
  std::string kind_of(int64_t layer) const;
  bool has_state_space(int64_t layer) const;
  bool has_attention(int64_t layer) const;
  // Some families have them in layers with a window alone.
  bool has_sinks(int64_t layer) const;
  // The width of a value head.
  int64_t value_dim_of(int64_t layer) const;
  bool has_head_gates() const;
  int64_t local_rotary() const;
  bool has_feed_forward(int64_t layer) const;
  int64_t space_width() const { return space_heads * space_dim; }
  int64_t space_channels() const { return space_width() + 2 * space_groups * space_state; }
  // All layers, or those that the config lists as full.
  bool has_indexer(int64_t layer) const;
  bool is_full_indexer(int64_t layer) const;  // as the config says it of layers without one, too
  int64_t delta_width() const { return delta_value_heads * delta_dim; }
  int64_t delta_channels() const { return 2 * delta_key_heads * delta_dim + delta_width(); }
  // The layers at the end have none; one for multi-token prediction behind them has.
  bool has_own_keys(int64_t layer) const;
  bool has_own_values(int64_t layer) const;
  // Behind the dense ones, every n-th.
  bool is_moe(int64_t layer) const;
  bool by_two_best() const { return routes_by(families::RouterKind::GroupsByTwoBest); }
  bool routes_by(families::RouterKind router) const { return family->experts.router == router; }
  bool has_correction_bias() const { return has_param(ir::Role::Router, "correction_bias"); }
  bool has_param(ir::Role role, std::string_view name) const;
  // A parameter that every model of the family has, or every one with biases of that kind.
  bool always_has(ir::Role role, std::string_view name) const;
  bool has_experts() const { return experts > 0; }
  bool has_qkv_bias() const;
  int64_t shared_count() const;
  std::optional<bool> flag(std::string_view key) const;
  Result<int64_t> need(const char* key) const;
  // Prediction layers, behind the others, are like the last one.
  int64_t of_layer(const std::vector<int64_t>& values, int64_t layer) const;
  // How many scores a text gets instead of logits; 0 unless the config has them.
  int64_t scores() const { return config.i64("score_count").value_or(0); }

 private:
  ModelShape(const input::HfConfig& given, const SynthOptions& wanted)
      : config(given), options(wanted) {}
  // As JSON text, without the quotes of a text; "" when the family has none.
  std::string default_of(std::string_view key) const;
  // One number for each layer: the config's list, or its number for all of them.
  Result<std::vector<int64_t>> by_layer(const char* key) const;
  Status read_sizes();
  Status read_state_space();
  Status read_ngrams();
  // For families whose layers without a window differ in more than that.
  void read_kinds_of_layers();
};

}  // namespace ktx::synth
