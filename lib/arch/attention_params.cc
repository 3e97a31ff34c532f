// Grouped-query attention and latent attention: heads, windows, layers that are not rotated,
// indexers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/indexer_layers.h"
#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class AttentionParams : ParamPart {
 public:
  explicit AttentionParams(const ParamPart& part) : ParamPart(part) {}

  void read_gqa() {
    const std::vector<int64_t> heads = by_layer("num_attention_heads", 1, kMaxHeads);
    std::vector<int64_t> kv_heads = heads;
    const bool usual = family_.find_default("num_key_value_heads") != nullptr;
    if (usual || in_.has("num_key_value_heads"))
      kv_heads = by_layer("num_key_value_heads", 1, kMaxHeads);
    if (heads.empty() || kv_heads.empty()) return;
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].heads = static_cast<int32_t>(heads[i]);
      p_.shapes[i].kv_heads = static_cast<int32_t>(kv_heads[i]);
    }
    for (size_t i = 0; i < heads.size(); ++i) {
      if (heads[i] % kv_heads[i] == 0) continue;
      in_.fail(fmt::format("'num_key_value_heads' {} does not divide 'num_attention_heads' {}{}",
                           kv_heads[i], heads[i], of_layer(i)));
      break;
    }
    read_head_dim();
    p_.gated_attention = family_.gated_attention;
    read_gate();
    read_values();
    if (family_.has_role(ir::Role::DeltaNet)) arch::read_delta_nets(*this);
    if (family_.has_role(ir::Role::StateSpace)) arch::read_state_spaces(*this);
    if (family_.has_role(ir::Role::SelectiveScan)) arch::read_selective_scans(*this);
    if (family_.has_role(ir::Role::ShortConv)) arch::read_short_convs(*this);
    if (family_.has_config_key("index_kpool")) {
      read_pool_indexers();
    } else if (family_.has_role(ir::Role::Indexer)) {
      read_block_indexers();
    }
    read_window();
    read_sinks();
    read_rotated_layers();
    read_global_heads();
    read_shared_keys();
    read_temperature();
    read_layer_inputs();
  }

  void read_mla() {
    const int32_t heads = small("num_attention_heads", 1, kMaxHeads);
    for (LayerShape& shape : p_.shapes) shape.heads = heads;
    read_gate();
    p_.q_lora_rank =
        static_cast<int32_t>(in_.integer_or_null("q_lora_rank", 0, kMaxRank).value_or(0));
    p_.kv_lora_rank = small("kv_lora_rank", 1, kMaxRank);
    p_.nope_dim = small("qk_nope_head_dim", 1, kMaxHeadDim);
    p_.rope_dim =
        small("qk_rope_head_dim", family_.has_role(ir::Role::Rotary) ? 2 : 0, kMaxHeadDim);
    p_.value_dim = small("v_head_dim", 1, kMaxHeadDim);
    expect_even("qk_rope_head_dim", p_.rope_dim);
    p_.latent_norm_eps = family_.latent_norm_eps;
    p_.output_gate = in_.flag("mla_use_output_gate").value_or(true);
    if (!in_.flag("mla_use_nope").value_or(true)) {
      in_.fail("'mla_use_nope' is false: rotated latent attention is not known for this family");
    }
    if (family_.has_role(ir::Role::DeltaForget)) arch::read_channel_delta_nets(*this);
    if (family_.has_role(ir::Role::Indexer)) read_indexers();
  }

 private:
  // " in layer 3" where layers differ.
  std::string of_layer(size_t layer) const {
    const bool differ = std::ranges::any_of(p_.shapes, [&](const LayerShape& shape) {
      return shape.heads != p_.shapes[0].heads || shape.kv_heads != p_.shapes[0].kv_heads;
    });
    return differ ? fmt::format(" in layer {}", layer) : "";
  }

  void read_head_dim() {
    const int32_t heads = p_.shapes[0].heads;
    auto head_dim = in_.integer_or_null("head_dim", 2, kMaxHeadDim);
    const bool one_count = std::ranges::all_of(
        p_.shapes, [&](const LayerShape& shape) { return shape.heads == heads; });
    if (!head_dim && !one_count) {
      in_.fail("'num_attention_heads' differs by layer and there is no 'head_dim'");
    } else if (!head_dim && (p_.hidden % heads != 0 || p_.hidden / heads > kMaxHeadDim)) {
      in_.fail(
          fmt::format("'num_attention_heads' {} does not divide 'hidden_size' {} and there is "
                      "no 'head_dim'",
                      heads, p_.hidden));
    } else if (!head_dim) {
      head_dim = p_.hidden / heads;
    }
    for (LayerShape& shape : p_.shapes) {
      shape.head_dim = static_cast<int32_t>(head_dim.value_or(0));
    }
    expect_even("head_dim", p_.shapes[0].head_dim);
  }

  void read_gate() {
    p_.gate = static_cast<int32_t>(family_.attention_gate);
    const std::string kind = in_.text("gating");
    p_.head_gates = family_.head_gates && kind != "per-element";
    if (kind.empty() || kind == "per-head" || kind == "per-element") return;
    in_.fail(fmt::format("'gating' is '{}', expected per-head or per-element", printable(kind)));
  }

  // Value heads may have another width than those of queries and keys, and a factor.
  void read_values() {
    if (family_.attention != AttentionKind::Gqa || !family_.has_config_key("v_head_dim")) return;
    p_.value_head = small("v_head_dim", 1, kMaxHeadDim);
    p_.value_scale =
        static_cast<float>(in_.number_or_null("attention_value_scale", 1e-6, 1e6).value_or(1));
  }

  // In layers with a window, or in the others, or in both.
  void read_sinks() {
    if (!family_.has_config_key("add_swa_attention_sink_bias")) return;
    const bool local = in_.flag("add_swa_attention_sink_bias").value_or(true);
    const bool full = in_.flag("add_full_attention_sink_bias").value_or(false);
    for (LayerShape& shape : p_.shapes) shape.sinks = shape.window > 0 ? local : full;
  }

  // Layers without a window may have heads of another size and number than the others.
  void read_global_heads() {
    if (!family_.has_config_key("global_head_dim")) return;
    const auto head_dim = small("global_head_dim", 2, kMaxHeadDim);
    const auto kv_heads = in_.integer_or_null("num_global_key_value_heads", 1, kMaxHeads);
    const bool keys_as_values = in_.flag("attention_k_eq_v").value_or(false);
    if (in_.text("use_bidirectional_attention") == "all") {
      in_.fail("'use_bidirectional_attention' is 'all': attention to later tokens is not known");
    }
    expect_even("global_head_dim", head_dim);
    for (LayerShape& shape : p_.shapes) {
      if (shape.window > 0) continue;
      shape.head_dim = head_dim;
      shape.kv_heads = static_cast<int32_t>(kv_heads.value_or(shape.kv_heads));
      shape.keys_as_values = keys_as_values;
      if (shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0) continue;
      return in_.fail(
          fmt::format("'num_global_key_value_heads' {} does not divide 'num_attention_heads' {}",
                      shape.kv_heads, shape.heads));
    }
  }

  // The last layers may read the keys and values of the last layer of their kind that has its own.
  void read_shared_keys() {
    if (!family_.has_config_key("num_kv_shared_layers")) return;
    const auto own =
        p_.layers - in_.integer_or_null("num_kv_shared_layers", 0, kMaxLayers).value_or(0);
    int32_t latest[2] = {-1, -1};  // with keys of its own: without a window, with one
    for (int32_t i = 0; i < p_.layers; ++i) {
      LayerShape& shape = p_.shapes[i];
      int32_t& last = latest[shape.window > 0 ? 1 : 0];
      if (i < own) {
        last = i;
      } else if (last < 0) {
        return in_.fail(fmt::format(
            "'num_kv_shared_layers' leaves layer {} no earlier layer of its kind to read the keys of",
            i));
      } else {
        shape.keys_of_layer = last;
      }
    }
  }

  // Queries of layers that are not rotated grow with the context (Llama 4).
  void read_temperature() {
    p_.chunked_windows = family_.chunked_windows;
    if (!in_.flag("attn_temperature_tuning").value_or(false)) return;
    p_.grown_unrotated = {static_cast<float>(in_.number("attn_scale", 0, 1e3)),
                          small("floor_scale", 1, INT32_MAX)};
  }

  // A list with 0 for the layers that are not rotated, or every n-th is not.
  void read_rotated_layers() {
    auto flags = in_.config().floats("no_rope_layers");
    if (flags && flags->empty()) flags.reset();
    if (flags && flags->size() < p_.shapes.size()) {
      in_.fail(fmt::format("'no_rope_layers' has {} entries for {} layers", flags->size(),
                           p_.shapes.size()));
      return;
    }
    const bool rotates =
        in_.flag("use_rope").value_or(true) && in_.text("position_embedding_type") != "nope";
    const int64_t period = family_.unrotated_period == 0
                               ? 0
                               : in_.integer_or_null("no_rope_layer_interval", 1, kMaxLayers)
                                     .value_or(family_.unrotated_period);
    if (family_.rotates_windows && !flags &&
        in_.integer_or_null("sliding_window", 0, kMaxContext).value_or(0) > 0) {
      const std::vector<bool> windowed = windowed_layers();
      for (size_t i = 0; i < windowed.size(); ++i) p_.shapes[i].rotated = windowed[i];
      return;
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      const auto nth = static_cast<int64_t>(i) + 1;
      p_.shapes[i].rotated =
          rotates && (flags ? (*flags)[i] != 0 : period == 0 || nth % period != 0);
    }
  }

  void read_window() {
    const auto window = in_.integer_or_null("sliding_window", 0, kMaxContext);
    if (!window || *window == 0) return;
    // Layers with a window may differ in more than that.
    if (*window >= p_.context && !family_.has_role(ir::Role::LocalRotary)) return;
    if (!in_.flag("use_sliding_window").value_or(true)) return;
    if (family_.windows == WindowPattern::None) {
      p_.windows_left_out = true;
      return in_.warn(
          fmt::format("'sliding_window' {} is not applied: attention looks at the whole context, "
                      "so answers may differ beyond {} tokens",
                      *window, *window));
    }
    if (*window > kMaxWidth) {
      return in_.fail(
          fmt::format("'sliding_window' is {}, expected at most {}", *window, kMaxWidth));
    }
    // That of an encoder is its width: a half on each side of the token.
    const int64_t reach = family_.encoder ? *window / 2 + 1 : *window;
    const std::vector<bool> windowed = windowed_layers();
    for (size_t i = 0; i < windowed.size(); ++i) {
      if (windowed[i]) p_.shapes[i].window = static_cast<int32_t>(reach);
    }
  }

  std::vector<bool> windowed_layers() {
    std::vector<bool> windowed(p_.shapes.size());
    if (const auto types = in_.config().strings("layer_types"); types && !types->empty()) {
      if (types->size() != windowed.size()) {
        in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                             windowed.size()));
        return {};
      }
      for (size_t i = 0; i < windowed.size(); ++i) {
        windowed[i] =
            (*types)[i] == (family_.chunked_windows ? "chunked_attention" : "sliding_attention");
        if (windowed[i] || (*types)[i] == "full_attention") continue;
        in_.fail(fmt::format(
            "'layer_types' has '{}' for layer {}, expected full_attention or sliding_attention",
            printable((*types)[i]), i));
        return {};
      }
      return windowed;
    }
    int64_t period = 0, late = 0;
    if (family_.windows_by_period()) {
      period = in_.integer_or_null("sliding_window_pattern", 1, kMaxLayers)
                   .value_or(family_.window_period);
    } else if (family_.windows == WindowPattern::Late) {
      late = in_.integer_or_null("max_window_layers", 0, kMaxLayers).value_or(kMaxLayers);
    }
    for (size_t i = 0; i < windowed.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      windowed[i] = layer >= late && (period == 0 || family_.has_window(layer, period));
    }
    return windowed;
  }

  void read_layer_inputs() {
    p_.layer_input_width = static_cast<int32_t>(
        in_.integer_or_null("hidden_size_per_layer_input", 0, kMaxWidth).value_or(0));
    const auto rows = in_.integer_or_null("vocab_size_per_layer_input", 1, kMaxVocab);
    if (p_.layer_input_width == 0 || rows.value_or(p_.vocab) == p_.vocab) return;
    in_.fail(fmt::format("'vocab_size_per_layer_input' is {}, expected 'vocab_size' {}", *rows,
                         p_.vocab));
  }

  void read_indexers() {
    p_.index_heads = small("index_n_heads", 1, kMaxHeads);
    p_.index_dim = small("index_head_dim", 2, kMaxHeadDim);
    p_.index_top_k = small("index_topk", 1, kMaxChosenPositions);
    p_.interleaved_index = family_.interleaved_index;
    if (p_.index_dim < p_.rope_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below 'qk_rope_head_dim' {}", p_.index_dim,
                           p_.rope_dim));
    }
    if (p_.q_lora_rank == 0) {
      in_.fail("'q_lora_rank' is null: an indexer without a query latent is not known");
    }
    if (family_.has_config_key("index_kpool")) read_index_pools();
    std::vector<bool> attends;
    for (const LayerShape& shape : p_.shapes) attends.push_back(!shape.delta_net);
    const std::vector<bool> full = layers_with_indexers(in_, attends);
    int32_t last = 0;
    for (size_t i = 0; i < full.size(); ++i) {
      if (!attends[i]) continue;
      if (full[i]) last = static_cast<int32_t>(i);
      p_.shapes[i].indexer = full[i];
      p_.shapes[i].positions_of_layer = full[i] ? -1 : last;
    }
  }

  // Indexers that choose pools of positions.
  void read_index_pools() {
    p_.index_pool = small("index_kpool", 2, kMaxIndexBlock);
    const int32_t pool = std::max(p_.index_pool, 2);  // of one that was refused, too
    if (!entries_fit_blocks(pool)) {
      in_.fail(
          fmt::format("'index_kpool' is {}, expected 2, 4, 8, 16, 32 or a multiple of 64", pool));
    } else if (p_.index_top_k % pool != 0) {
      in_.fail(
          fmt::format("'index_kpool' {} does not divide 'index_topk' {}", pool, p_.index_top_k));
    }
    p_.index_top_k /= pool;
    if (p_.index_dim % kCompressedChannels != 0) {
      in_.fail(fmt::format("'index_head_dim' is {}, expected a multiple of {}", p_.index_dim,
                           kCompressedChannels));
    }
    if (!in_.flag("index_kpool_always_select_tail").value_or(true)) {
      in_.fail(
          "'index_kpool_always_select_tail' is false: attention without the positions behind the "
          "last whole pool is not known");
    }
  }

  // Pools of positions that all heads read, in every layer with attention.
  void read_pool_indexers() {
    p_.index_heads = small("index_n_heads", 1, kMaxHeads);
    p_.index_dim = small("index_head_dim", 2, kMaxHeadDim);
    p_.index_top_k = small("index_topk", 1, kMaxChosenPositions);
    read_index_pools();
    if (in_.integer_or_null("indexer_kv_heads", 1, kMaxHeads).value_or(1) != 1) {
      in_.fail("'indexer_kv_heads' is not 1: indexers with several keys are not known");
    }
    for (LayerShape& shape : p_.shapes) shape.indexer = !shape.delta_net;
  }

  // Block attention, in the layers that the config lists by kind.
  void read_block_indexers() {
    p_.index_heads = small("index_n_heads", 1, kMaxHeads);
    p_.index_dim = small("index_head_dim", 2, kMaxHeadDim);
    p_.index_block = small("index_block_size", 1, kMaxIndexBlock);
    p_.index_top_k =
        small("index_topk_blocks", 1, kMaxChosenPositions / std::max(p_.index_block, 1));
    p_.index_local = small("index_local_blocks", 1, std::max(p_.index_top_k, 1));
    const auto types = in_.config().strings("layer_types");
    if (!types || types->size() != p_.shapes.size()) {
      return in_.fail(fmt::format(
          "'layer_types' has {} entries for {} layers: it says in which ones attention reads chosen "
          "blocks",
          types ? types->size() : 0, p_.shapes.size()));
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      LayerShape& shape = p_.shapes[i];
      shape.indexer = (*types)[i] == "sparse_attention";
      if (!shape.indexer && (*types)[i] != "full_attention") {
        return in_.fail(fmt::format(
            "'layer_types' has '{}' for layer {}, expected full_attention or sparse_attention",
            printable((*types)[i]), i));
      }
      if (shape.indexer && shape.kv_heads != p_.index_heads) {
        return in_.fail(fmt::format(
            "'index_n_heads' is {} and 'num_key_value_heads' {}: each key head has an index head",
            p_.index_heads, shape.kv_heads));
      }
    }
  }
};

}  // namespace

void read_gqa(const ParamPart& part) {
  AttentionParams(part).read_gqa();
}
void read_mla(const ParamPart& part) {
  AttentionParams(part).read_mla();
}

}  // namespace ktx::arch
