// Converts config keys to numbers. The limits are slightly above those of any released model, and
// low enough that the product of any three fits in 63 bits.
#include "lib/arch/hyper_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/config_reader.h"
#include "lib/arch/indexer_layers.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

using families::AttentionKind;
using families::BiasKind;
using families::LayerPattern;
using families::RouterKind;
using families::SharedKind;
using families::WindowPattern;

constexpr int64_t kMaxLayers = 10000;
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxWidth = 1 << 24;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxExperts = 1 << 16;
constexpr int64_t kMaxContext = int64_t{1} << 40;

class Reader {
 public:
  Reader(const families::Family& family, const input::HfConfig& config, DiagSink& diags)
      : family_(family), in_(family, config, diags) {}

  HyperParams run() {
    p_.layers = small("num_hidden_layers", 1, kMaxLayers);
    p_.shapes.resize(std::max(p_.layers, 1));
    p_.hidden = in_.integer("hidden_size", 1, kMaxHidden);
    p_.vocab = in_.integer("vocab_size", 1, kMaxVocab);
    p_.context = in_.integer("max_position_embeddings", 1, kMaxContext);
    p_.layer_norms = family_.layer_norms;
    const char* eps = p_.layer_norms ? "layer_norm_eps" : "rms_norm_eps";
    p_.norm_eps = static_cast<float>(in_.number(eps, 1e-20, 1));
    p_.tied = in_.flag("tie_word_embeddings");
    p_.mtp_layers =
        static_cast<int32_t>(in_.integer_or_null("num_nextn_predict_layers", 0, 64).value_or(0));
    p_.qk_norm = in_.flag("use_qk_norm").value_or(true);
    if (in_.flag("qk_layernorm").value_or(false)) {
      in_.fail(
          "'qk_layernorm' is set: layer norms of queries and keys are not known for this family");
    }
    p_.parallel_parts = in_.flag("use_parallel_residual").value_or(false);
    p_.qk_norms = family_.qk_norm;
    read_activation();
    if (in_.number_or_null("clip_qkv", 0, 1e6).value_or(0) != 0) {
      in_.fail("'clip_qkv' is set: clamped queries, keys and values are not known");
    }
    read_scores();
    read_scales();
    if (family_.attention == AttentionKind::Mla) {
      read_mla();
    } else if (family_.attention == AttentionKind::Compressed) {
      read_compressed_attention();
      read_streams();
    } else {
      read_gqa();
    }
    read_biases();
    if (family_.has_role(ir::Role::Rotary)) {
      read_rope();
    } else {
      for (LayerShape& shape : p_.shapes) shape.rotated = false;
    }
    if (family_.experts.layers != LayerPattern::AllDense) read_experts();
    read_dense_width();
    return std::move(p_);
  }

 private:
  int32_t small(std::string_view key, int64_t min, int64_t max) {
    return static_cast<int32_t>(in_.integer(key, min, max));
  }

  void read_activation() {
    p_.glu.activation = static_cast<int32_t>(family_.activation);
    if (family_.activation == Activation::GptOss) {  // which calls itself silu
      p_.glu.limit = static_cast<float>(in_.number("swiglu_limit", 1e-6, 1e6));
      constexpr double kAlpha = 1.702;
      const double alpha = in_.number_or_null("swiglu_alpha", 0, 1e6).value_or(kAlpha);
      if (std::abs(alpha - kAlpha) > 1e-6) {
        in_.fail(fmt::format("'swiglu_alpha' is {}, expected {}: other units are not known", alpha,
                             kAlpha));
      }
      return;
    }
    if (family_.attention == AttentionKind::Compressed) {
      p_.glu.limit = static_cast<float>(in_.number("swiglu_limit", 0, 1e6));
    }
    const std::string act = in_.text("hidden_act");
    if (family_.gateless) return read_unit(act);
    if (act.empty()) return;
    if (act == "silu" || act == "swish") {
      p_.glu.activation = static_cast<int32_t>(Activation::Silu);
    } else if (act == "gelu_pytorch_tanh") {
      p_.glu.activation = static_cast<int32_t>(Activation::GeluTanh);
    } else {
      in_.fail(fmt::format(
          "'hidden_act' is '{}', expected silu or gelu_pytorch_tanh: other activations are not known",
          printable(act)));
    }
  }

  // Of feed-forward parts without a gate.
  void read_unit(const std::string& act) {
    static constexpr struct {
      std::string_view name;
      UnitFunction function;
    } kKnown[] = {
        {"gelu", UnitFunction::GeluErf},
        {"gelu_python", UnitFunction::GeluErf},
        {"gelu_new", UnitFunction::GeluTanh},
        {"gelu_fast", UnitFunction::GeluTanh},
        {"gelu_pytorch_tanh", UnitFunction::GeluTanh},
        {"silu", UnitFunction::Silu},
        {"relu", UnitFunction::Relu},
        {"relu2", UnitFunction::ReluSquared},
    };
    p_.unit = static_cast<int32_t>(family_.unit);
    if (act.empty()) return;
    const auto found = std::ranges::find(kKnown, act, [](const auto& row) { return row.name; });
    if (found != std::end(kKnown)) {
      p_.unit = static_cast<int32_t>(found->function);
      return;
    }
    in_.fail(
        fmt::format("'hidden_act' is '{}', expected gelu, gelu_pytorch_tanh, silu, relu or "
                    "relu2: other activations are not known",
                    printable(act)));
  }

  // What a text gives instead of logits, and of which of its tokens.
  void read_scores() {
    p_.encoder = family_.encoder;
    p_.scores = static_cast<int32_t>(in_.integer_or_null("score_count", 0, 1 << 16).value_or(0));
    p_.score_dense = in_.flag("score_dense").value_or(false);
    p_.text_types = in_.integer_or_null("type_vocab_size", 0, kMaxVocab).value_or(0);
    p_.pooling = p_.scores > 0 ? "rank" : in_.text("pooling_type");
    if (p_.pooling == "rank" && p_.scores == 0) {
      in_.fail(
          "the file says that texts are ranked (pooling type 4) and has no tensor "
          "'cls.output.weight' to do it with");
    }
    if (p_.scores > 0 && family_.has_role(ir::Role::ScoreDense) && !p_.score_dense) {
      in_.fail(
          "the tensor 'cls.output.weight' stands alone: a cross-encoder of this kind has a linear "
          "before it ('cls.weight'; pooler.dense or classifier.dense of the model), which its "
          "converter left out, and scores texts wrongly without it; convert the model again with "
          "it, or use a reranker whose file has both");
    }
    if (p_.scores > 2) {
      in_.fail(
          fmt::format("the tensor 'cls.output.weight' has {} rows: a classifier of so many "
                      "classes does not rank texts, which takes one score, or yes and no",
                      p_.scores));
    }
  }

  void read_scales() {
    if (family_.scaled_embedding && in_.flag("mup_enabled").value_or(true)) {
      p_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(p_.hidden)));
    }
    const auto factor = [&](std::string_view key) {
      return static_cast<float>(in_.number_or_null(key, 1e-6, 1e6).value_or(1));
    };
    if (in_.has("embedding_multiplier")) p_.embedding_scale = factor("embedding_multiplier");
    p_.residual_scale = factor("residual_multiplier");
    if (const auto depth = in_.number_or_null("scale_depth", 1e-6, 1e6)) {  // MiniCPM
      p_.residual_scale = static_cast<float>(*depth / std::sqrt(std::max(p_.layers, 1)));
    }
    p_.logit_scale = family_.has_config_key("logit_scale")
                         ? static_cast<float>(in_.number("logit_scale", 1e-6, 1e6))
                         : 1 / factor("logits_scaling");
    if (const auto base = in_.number_or_null("dim_model_base", 1, kMaxHidden)) {  // MiniCPM
      p_.logit_scale = static_cast<float>(*base / static_cast<double>(p_.hidden));
    }
    const auto cap = [&](std::string_view key) {
      return static_cast<float>(in_.number_or_null(key, 0, 1e6).value_or(0));
    };
    p_.attention_softcap = cap("attn_logit_softcapping");
    p_.logit_softcap = cap("final_logit_softcapping");
    if (const auto scalar = in_.number_or_null("query_pre_attn_scalar", 1e-6, 1e6)) {
      p_.attention_scale = 1 / std::sqrt(*scalar);
    } else if (const auto scale = in_.number_or_null("attention_multiplier", 1e-6, 1e6)) {
      p_.attention_scale = *scale;
    } else if (family_.wide_scale_layers == p_.layers && p_.layers > 0) {
      const auto heads = in_.integer_or_null("num_attention_heads", 1, kMaxHeads);
      p_.attention_scale =
          std::sqrt(static_cast<double>(heads.value_or(1)) / static_cast<double>(p_.hidden));
    }
  }

  // A key that may say one number, or one for each layer.
  std::vector<int64_t> by_layer(std::string_view key, int64_t min, int64_t max) {
    return in_.integers(key, p_.shapes.size(), min, max);
  }

  void read_gqa() {
    const std::vector<int64_t> heads = by_layer("num_attention_heads", 1, kMaxHeads);
    std::vector<int64_t> kv_heads = heads;
    if (in_.has("num_key_value_heads")) kv_heads = by_layer("num_key_value_heads", 1, kMaxHeads);
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
    if (family_.has_role(ir::Role::DeltaNet)) read_delta_nets();
    if (family_.has_role(ir::Role::StateSpace)) read_state_spaces();
    if (family_.has_role(ir::Role::ShortConv)) read_short_convs();
    if (family_.has_role(ir::Role::Indexer)) read_block_indexers();
    read_window();
    read_rotated_layers();
    read_kinds_of_layers();
    read_temperature();
    read_layer_inputs();
  }

  // Queries of layers that are not rotated grow with the context (Llama 4).
  void read_temperature() {
    p_.chunked_windows = family_.chunked_windows;
    if (!in_.flag("attn_temperature_tuning").value_or(false)) return;
    p_.grown_unrotated = {static_cast<float>(in_.number("attn_scale", 0, 1e3)),
                          small("floor_scale", 1, INT32_MAX)};
  }

  // Layers without a window may have heads of another size and number than the others. The last
  // layers may read the keys and values of the last layer of their kind that has its own.
  void read_kinds_of_layers() {
    if (!family_.has_config_key("global_head_dim")) return;
    const auto head_dim = small("global_head_dim", 2, kMaxHeadDim);
    const auto kv_heads = in_.integer_or_null("num_global_key_value_heads", 1, kMaxHeads);
    const bool keys_as_values = in_.flag("attention_k_eq_v").value_or(false);
    const auto own =
        p_.layers - in_.integer_or_null("num_kv_shared_layers", 0, kMaxLayers).value_or(0);
    if (in_.text("use_bidirectional_attention") == "all") {
      in_.fail("'use_bidirectional_attention' is 'all': attention to later tokens is not known");
    }
    if (head_dim % 2 != 0) {
      in_.fail(fmt::format("'global_head_dim' is {}, expected an even number", head_dim));
    }
    int32_t latest[2] = {-1, -1};  // with keys of its own: without a window, with one
    for (int32_t i = 0; i < p_.layers; ++i) {
      LayerShape& shape = p_.shapes[i];
      if (shape.window == 0) {
        shape.head_dim = head_dim;
        shape.kv_heads = static_cast<int32_t>(kv_heads.value_or(shape.kv_heads));
        shape.keys_as_values = keys_as_values;
      }
      if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0) {
        return in_.fail(
            fmt::format("'num_global_key_value_heads' {} does not divide 'num_attention_heads' {}",
                        shape.kv_heads, shape.heads));
      }
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

  void read_layer_inputs() {
    p_.layer_input_width = static_cast<int32_t>(
        in_.integer_or_null("hidden_size_per_layer_input", 0, kMaxWidth).value_or(0));
    const auto rows = in_.integer_or_null("vocab_size_per_layer_input", 1, kMaxVocab);
    if (p_.layer_input_width == 0 || rows.value_or(p_.vocab) == p_.vocab) return;
    in_.fail(fmt::format("'vocab_size_per_layer_input' is {}, expected 'vocab_size' {}", *rows,
                         p_.vocab));
  }

  // A list with 0 for the layers that are not rotated, or every n-th is not.
  void read_rotated_layers() {
    auto flags = in_.config().ints("no_rope_layers");
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
    if (family_.rotates_windows &&
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
    if (p_.shapes[0].head_dim % 2 != 0) {
      in_.fail(fmt::format("'head_dim' is {}, expected an even number", p_.shapes[0].head_dim));
    }
  }

  // Their sizes, and the layers that have one: all but every n-th.
  void read_delta_nets() {
    ir::DeltaNetInfo& net = p_.delta_net;
    net.key_heads = small("linear_num_key_heads", 1, kMaxHeads);
    net.value_heads = small("linear_num_value_heads", 1, kMaxHeads);
    net.head_dim = small("linear_key_head_dim", 1, kMaxDeltaHead);
    net.taps = small("linear_conv_kernel_dim", 2, 64);
    net.tiled = family_.tiled_value_heads;
    if (net.key_heads > 0 && net.value_heads % net.key_heads != 0) {
      in_.fail(fmt::format("'linear_num_key_heads' {} does not divide 'linear_num_value_heads' {}",
                           net.key_heads, net.value_heads));
    }
    const int64_t value_dim =
        in_.integer_or_null("linear_value_head_dim", 1, kMaxDeltaHead).value_or(net.head_dim);
    if (value_dim != net.head_dim) {
      in_.fail(
          fmt::format("'linear_value_head_dim' is {} and 'linear_key_head_dim' {}: different "
                      "ones are not known",
                      value_dim, net.head_dim));
    }
    const auto types = in_.config().strings("layer_types");
    if (types && types->size() != p_.shapes.size()) {
      in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                           p_.shapes.size()));
      return;
    }
    const auto period = in_.integer_or_null("full_attention_interval", 1, kMaxLayers).value_or(4);
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].delta_net =
          types ? (*types)[i] == "linear_attention" : (static_cast<int64_t>(i) + 1) % period != 0;
      if (!types || p_.shapes[i].delta_net || (*types)[i] == "full_attention") continue;
      in_.fail(fmt::format(
          "'layer_types' has '{}' for layer {}, expected full_attention or linear_attention",
          printable((*types)[i]), i));
      return;
    }
  }

  // Their sizes, and what each layer has.
  void read_state_spaces() {
    ir::StateSpaceInfo& space = p_.state_space;
    space.heads = small("mamba_n_heads", 1, kMaxHeads);
    space.head_dim = small("mamba_d_head", 1, kMaxDeltaHead);
    space.groups = small("mamba_n_groups", 1, kMaxHeads);
    space.state_dim = small("mamba_d_state", 1, kMaxDeltaHead);
    space.taps = small("mamba_d_conv", 2, 64);
    space.norm_first = in_.flag("mamba_norm_before_gate").value_or(false);
    p_.conv_bias = in_.flag("mamba_conv_bias").value_or(true);
    p_.state_space_norm = in_.flag("mamba_rms_norm").value_or(true);
    if (space.groups > 0 && space.heads % space.groups != 0) {
      return in_.fail(fmt::format("'mamba_n_groups' {} does not divide 'mamba_n_heads' {}",
                                  space.groups, space.heads));
    }
    if (in_.flag("mamba_proj_bias").value_or(false)) {
      in_.fail(
          "'mamba_proj_bias' is set: state-space layers whose projections have biases are not "
          "known");
    }
    const auto limits = in_.config().floats("time_step_limit");
    if (limits && limits->size() == 2 && ((*limits)[0] > 0 || std::isfinite((*limits)[1]))) {
      in_.fail(
          "'time_step_limit' is set: state-space layers whose steps are clamped are not known");
    }
    if (family_.beside_attention) {
      for (LayerShape& shape : p_.shapes) shape.state_space = true;
      return;
    }
    read_layer_kinds();
  }

  // LFM2.
  void read_short_convs() {
    p_.short_conv_taps = small("conv_L_cache", 2, 64);
    if (in_.flag("conv_bias").value_or(false)) {
      in_.fail("'conv_bias' is set: short convolutions with biases are not known");
    }
    read_layer_kinds();
  }

  void read_layer_kinds() {
    const auto types = in_.config().strings("layer_types");
    if (!types) return in_.fail("'layer_types' is missing: it says which layers have attention");
    if (types->size() != p_.shapes.size()) {
      return in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                                  p_.shapes.size()));
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      LayerShape& shape = p_.shapes[i];
      const bool short_convs = family_.has_role(ir::Role::ShortConv);
      shape.state_space = !short_convs && (*types)[i] == "linear_attention";
      shape.short_conv = short_convs && (*types)[i] == "conv";
      shape.attention = (*types)[i] == "full_attention";
      const bool experts = family_.experts.layers == LayerPattern::ByKind && (*types)[i] == "moe";
      shape.feed_forward = !family_.one_part || (*types)[i] == "mlp" || experts;
      if (shape.state_space || shape.short_conv || shape.attention) continue;
      if (family_.one_part && shape.feed_forward) continue;
      return in_.fail(
          fmt::format("'layer_types' has '{}' for layer {}, expected full_attention{} {}",
                      printable((*types)[i]), i,
                      family_.experts.layers == LayerPattern::ByKind ? ", mlp, moe or"
                      : family_.one_part                             ? ", mlp or"
                                                                     : " or",
                      short_convs ? "conv" : "linear_attention"));
    }
  }

  void read_window() {
    const auto window = in_.integer_or_null("sliding_window", 0, kMaxContext);
    if (!window || *window == 0) return;
    // Layers with a window may differ in more than that.
    if (*window >= p_.context && !family_.has_role(ir::Role::LocalRotary)) return;
    if (!in_.flag("use_sliding_window").value_or(true)) return;
    if (family_.windows == WindowPattern::None) {
      unknown_window_ = true;
      return in_.warn(
          fmt::format("'sliding_window' {} is not applied: attention looks at the whole context, "
                      "so answers may differ beyond {} tokens",
                      *window, *window));
    }
    if (*window > kMaxWidth) {
      return in_.fail(
          fmt::format("'sliding_window' is {}, expected at most {}", *window, kMaxWidth));
    }
    const std::vector<bool> windowed = windowed_layers();
    for (size_t i = 0; i < windowed.size(); ++i) {
      if (windowed[i]) p_.shapes[i].window = static_cast<int32_t>(*window);
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
    if (family_.windows == WindowPattern::Period) {
      period = in_.integer_or_null("sliding_window_pattern", 1, kMaxLayers)
                   .value_or(family_.window_period);
    } else if (family_.windows == WindowPattern::Late) {
      late = in_.integer_or_null("max_window_layers", 0, kMaxLayers).value_or(kMaxLayers);
    }
    for (size_t i = 0; i < windowed.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      windowed[i] = layer >= late && (period == 0 || layer % period < period - 1);
    }
    return windowed;
  }

  void read_mla() {
    const int32_t heads = small("num_attention_heads", 1, kMaxHeads);
    for (LayerShape& shape : p_.shapes) shape.heads = heads;
    p_.q_lora_rank =
        static_cast<int32_t>(in_.integer_or_null("q_lora_rank", 0, kMaxRank).value_or(0));
    p_.kv_lora_rank = small("kv_lora_rank", 1, kMaxRank);
    p_.nope_dim = small("qk_nope_head_dim", 1, kMaxHeadDim);
    p_.rope_dim = small("qk_rope_head_dim", 2, kMaxHeadDim);
    p_.value_dim = small("v_head_dim", 1, kMaxHeadDim);
    if (p_.rope_dim % 2 != 0) {
      in_.fail(fmt::format("'qk_rope_head_dim' is {}, expected an even number", p_.rope_dim));
    }
    if (family_.has_role(ir::Role::Indexer)) read_indexers();
    if (family_.has_role(ir::Role::DeltaForget)) read_channel_delta_nets();
  }

  // Windows in every layer, and behind them entries in those that the config lists by kind.
  void read_compressed_attention() {
    const int32_t heads = small("num_attention_heads", 1, kMaxHeads);
    const int32_t head_dim = small("head_dim", 2, kMaxHeadDim);
    const int32_t window = small("sliding_window", 1, kMaxWidth);
    p_.q_lora_rank = small("q_lora_rank", 1, kMaxRank);
    p_.rope_dim = small("qk_rope_head_dim", 2, std::max(head_dim, 2));
    p_.output_groups = std::max(small("o_groups", 1, kMaxHeads), 1);
    p_.output_rank = small("o_lora_rank", 1, kMaxRank);
    p_.index_heads = small("index_n_heads", 1, kMaxHeads);
    p_.index_dim = small("index_head_dim", 2, kMaxHeadDim);
    p_.index_top_k = small("index_topk", 1, kMaxChosenPositions);
    if (p_.rope_dim % 2 != 0) {
      in_.fail(fmt::format("'qk_rope_head_dim' is {}, expected an even number", p_.rope_dim));
    }
    if (heads % p_.output_groups != 0) {
      in_.fail(fmt::format("'o_groups' {} does not divide 'num_attention_heads' {}",
                           p_.output_groups, heads));
    }
    if (in_.integer_or_null("num_key_value_heads", 1, kMaxHeads).value_or(1) != 1) {
      in_.fail("'num_key_value_heads' is not 1: heads share one key");
    }
    for (const auto& [key, dim] :
         {std::pair{"head_dim", head_dim}, {"index_head_dim", p_.index_dim}}) {
      if (dim % kCompressedChannels == 0) continue;
      in_.fail(fmt::format("'{}' is {}, expected a multiple of {}", key, dim, kCompressedChannels));
    }
    if (p_.index_dim < p_.rope_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below 'qk_rope_head_dim' {}", p_.index_dim,
                           p_.rope_dim));
    }
    for (LayerShape& shape : p_.shapes) {
      shape.heads = heads, shape.kv_heads = 1, shape.head_dim = head_dim, shape.window = window;
    }
    read_entries();
  }

  // Published are entries of 4 positions that overlap and are chosen, and of 128, all of which are
  // read.
  void read_entries() {
    const auto types = in_.config().strings("layer_types");
    if (!types || types->size() != p_.shapes.size()) {
      return in_.fail(
          fmt::format("'layer_types' has {} entries for {} layers: it says what attention reads",
                      types ? types->size() : 0, p_.shapes.size()));
    }
    static constexpr struct {
      std::string_view name, rate;
      int32_t every;
      bool indexer;
    } kKinds[] = {
        {"sliding_attention", "", 0, false},
        {"compressed_sparse_attention", "compress_rates.compressed_sparse_attention", 4, true},
        {"heavily_compressed_attention", "compress_rates.heavily_compressed_attention", 128, false},
    };
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      const auto* const kind =
          std::ranges::find(kKinds, (*types)[i], [](const auto& row) { return row.name; });
      if (kind == std::end(kKinds)) {
        return in_.fail(
            fmt::format("'layer_types' has '{}' for layer {}, expected sliding_attention, "
                        "compressed_sparse_attention or heavily_compressed_attention",
                        printable((*types)[i]), i));
      }
      p_.shapes[i].every = kind->every;
      p_.shapes[i].indexer = kind->indexer;
    }
    for (const auto& kind : kKinds) {
      if (kind.rate.empty()) continue;
      const auto rate = in_.integer_or_null(kind.rate, 1, kMaxCompressed).value_or(kind.every);
      if (rate == kind.every) continue;
      in_.fail(fmt::format("'{}' is {}, expected {}: other entries are in no file", kind.rate, rate,
                           kind.every));
    }
  }

  void read_streams() {
    p_.streams = small("hc_mult", 1, kMaxStreams);
    p_.stream_iterations = small("hc_sinkhorn_iters", 1, 1000);
    p_.stream_eps = static_cast<float>(in_.number("hc_eps", 1e-20, 1));
    const auto tables = in_.integer("num_hash_layers", 0, kMaxLayers);
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].expert_table = static_cast<int64_t>(i) < tables;
    }
    if (in_.has("mlp_layer_types")) {
      in_.fail("'mlp_layer_types' has layers with a table of experts behind others: no file has");
    }
  }

  // Kimi delta attention, in the layers that the config lists by kind; the others' latent attention
  // has no positions.
  void read_channel_delta_nets() {
    ir::DeltaNetInfo& net = p_.delta_net;
    net.key_heads = net.value_heads = small("linear_num_heads", 1, kMaxHeads);
    net.head_dim = small("linear_head_dim", 1, kMaxDeltaHead);
    net.taps = small("linear_conv_kernel_dim", 2, 64);
    net.by_channel = true;
    for (LayerShape& shape : p_.shapes) shape.rotated = false;
    if (p_.q_lora_rank > 0) in_.fail("'q_lora_rank' is set: a query latent is not known here");
    if (const auto types = in_.config().strings("layer_types"); types && !types->empty()) {
      if (types->size() != p_.shapes.size()) {
        return in_.fail(fmt::format("'layer_types' has {} entries for {} layers", types->size(),
                                    p_.shapes.size()));
      }
      for (size_t i = 0; i < p_.shapes.size(); ++i) {
        p_.shapes[i].delta_net = (*types)[i] == "linear_attention";
        if (p_.shapes[i].delta_net || (*types)[i] == "full_attention") continue;
        return in_.fail(fmt::format(
            "'layer_types' has '{}' for layer {}, expected full_attention or linear_attention",
            printable((*types)[i]), i));
      }
      return;
    }
    // Counted from 1.
    const auto layers = in_.config().ints("linear_attn_config.kda_layers");
    if (!layers)
      return in_.fail("neither 'layer_types' nor 'linear_attn_config.kda_layers' is there");
    for (const int64_t layer : *layers) {
      if (layer < 1 || layer > std::ssize(p_.shapes)) {
        return in_.fail(fmt::format("'linear_attn_config.kda_layers' has {} of {} layers", layer,
                                    p_.shapes.size()));
      }
      p_.shapes[static_cast<size_t>(layer) - 1].delta_net = true;
    }
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
    const std::vector<bool> full = layers_with_indexers(in_, p_.shapes.size());
    int32_t last = 0;
    for (size_t i = 0; i < full.size(); ++i) {
      if (full[i]) last = static_cast<int32_t>(i);
      p_.shapes[i].indexer = full[i];
      p_.shapes[i].positions_of_layer = full[i] ? -1 : last;
    }
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

  void read_biases() {
    if (family_.bias == BiasKind::Qkv) p_.qkv_bias = in_.flag("qkv_bias").value_or(true);
    if (family_.bias == BiasKind::Config) {
      p_.attention_bias = in_.flag("attention_bias").value_or(false);
      p_.qkv_bias = p_.attention_bias;
    }
    if (family_.bias == BiasKind::QkvByConfig) {
      const bool own = in_.has("use_qkv_bias");
      p_.qkv_bias = in_.flag(own ? "use_qkv_bias" : "attention_bias").value_or(false);
      p_.attention_bias = in_.flag("attention_out_bias").value_or(false);
    }
    if (family_.mlp_bias) p_.mlp_bias = in_.flag("mlp_bias").value_or(false);
  }

  void read_rope() {
    RopeParams& rope = p_.rope;
    p_.interleaved_rope = family_.interleaved_rope;
    if (const auto pairs = in_.flag("rope_interleave")) {
      if (family_.interleaved_rope) p_.interleaved_rope = *pairs;
    }
    rope.theta = in_.number("rope_theta", 1, 1e12);
    p_.local_rope.theta = in_.number_or_null("rope_local_base_freq", 1, 1e12).value_or(rope.theta);
    if (family_.attention == AttentionKind::Compressed) {  // of layers with entries
      rope.theta = in_.number("compress_rope_theta", 1, 1e12);
    }
    read_rotary_dim();
    const std::string type = in_.text("rope_scaling.rope_type");
    if (type.empty() || type == "default" || type == "none") return;
    if (type == "linear") {
      rope.type = RopeType::Linear;
    } else if (type == "dynamic") {
      rope.type = RopeType::Dynamic;
    } else if (type == "yarn") {
      rope.type = RopeType::Yarn;
    } else if (type == "llama3" && family_.attention == AttentionKind::Gqa) {
      rope.type = RopeType::Llama3;
    } else if (type == "proportional" && family_.attention == AttentionKind::Gqa) {
      rope.type = RopeType::Proportional;
      rope.rotated = in_.number_or_null("partial_rotary_factor", 0, 1).value_or(1);
      rope.factor = in_.number_or_null("rope_scaling.factor", 1e-3, 1e6).value_or(1);
      return;
    } else if (type == "longrope" && family_.attention == AttentionKind::Gqa) {
      rope.type = RopeType::LongRope;
    } else {
      const std::string known[] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};
      in_.fail(
          fmt::format("'rope_scaling.rope_type' is '{}', known for {} are default, linear, "
                      "dynamic, yarn{}{}",
                      printable(type), family_.architecture,
                      family_.attention == AttentionKind::Gqa ? ", llama3, longrope" : "",
                      did_you_mean(type, known)));
      return;
    }
    if (unknown_window_) {
      in_.fail(
          fmt::format("'sliding_window' with rope scaling '{}': layers with and without a "
                      "window are rotated differently, which is not known",
                      type));
      return;
    }
    read_scaling();
  }

  void read_rotary_dim() {
    if (family_.attention != AttentionKind::Gqa) {
      p_.rotary_dim = p_.local_rotary_dim = p_.rope_dim;
      return;
    }
    const auto full = std::ranges::find(p_.shapes, 0, &LayerShape::window);
    const auto local = std::ranges::find_if(p_.shapes, [](const auto& s) { return s.window > 0; });
    const int32_t head_dim = (full == p_.shapes.end() ? p_.shapes[0] : *full).head_dim;
    p_.rotary_dim = head_dim;
    p_.local_rotary_dim = local == p_.shapes.end() ? head_dim : local->head_dim;
    if (const auto dim =
            in_.integer_or_null("local_rotary_dim", 2, std::max(p_.local_rotary_dim, 2))) {
      p_.local_rotary_dim = static_cast<int32_t>(*dim / 2 * 2);
    }
    if (in_.text("rope_scaling.rope_type") == "proportional") return;
    const auto part = in_.number_or_null("partial_rotary_factor", 0, 1);
    if (!family_.partial_rotary) {
      if (!part || *part == 1) return;
      const int32_t whole = in_.config().is_of_gguf() ? head_dim : 1;  // a GGUF counts elements
      in_.fail(fmt::format("'partial_rotary_factor' is {}, expected {}: {} rotates whole heads",
                           *part * whole, whole, family_.architecture));
      return;
    }
    const auto dim = in_.integer_or_null("rotary_dim", 2, std::max(head_dim, 2));
    if (dim) {
      p_.rotary_dim = static_cast<int32_t>(*dim);
    } else if (part) {
      // A share that a GGUF's counts gave may be a little too small.
      p_.rotary_dim = static_cast<int32_t>(*part * head_dim + 1e-6);
    }
    if (p_.local_rotary_dim == head_dim) p_.local_rotary_dim = p_.rotary_dim;
    if (p_.index_block > 0 && p_.index_dim < p_.rotary_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below the {} rotated elements of a head",
                           p_.index_dim, p_.rotary_dim));
    }
    if (head_dim > 0 && (p_.rotary_dim < 2 || p_.rotary_dim % 2 != 0)) {
      in_.fail(fmt::format("{} of the {} elements of a head are rotated, expected an even number",
                           p_.rotary_dim, head_dim));
    }
  }

  void read_scaling() {
    RopeParams& rope = p_.rope;
    const auto factor = in_.number_or_null("rope_scaling.factor", 1e-3, 1e6);
    rope.low_freq_factor = in_.number_or_null("rope_scaling.low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = in_.number_or_null("rope_scaling.high_freq_factor", 1e-6, 1e6);
    rope.original_context =
        in_.number_or_null("rope_scaling.original_max_position_embeddings", 1, 1e12)
            .value_or(static_cast<double>(p_.context));
    // Without parameters llama3's factors come from the tensor rope_freqs.weight.
    const bool needs_factor = rope.type == RopeType::Llama3 ? rope.low_freq_factor.has_value()
                                                            : rope.type != RopeType::LongRope;
    if (!factor && needs_factor) in_.fail("'rope_scaling.factor' is missing");
    rope.factor = factor.value_or(1);
    if (rope.type == RopeType::Llama3) {
      if (rope.low_freq_factor.has_value() != rope.high_freq_factor.has_value() ||
          (rope.low_freq_factor && *rope.low_freq_factor > *rope.high_freq_factor)) {
        in_.fail(
            "'rope_scaling.low_freq_factor' must not be above 'rope_scaling.high_freq_factor'");
      }
    } else if (rope.type == RopeType::Yarn) {
      rope.beta_fast = in_.number_or_null("rope_scaling.beta_fast", 1e-6, 1e6).value_or(32);
      rope.beta_slow = in_.number_or_null("rope_scaling.beta_slow", 1e-6, 1e6).value_or(1);
      rope.truncate = in_.flag("rope_scaling.truncate").value_or(family_.yarn_truncate);
      rope.attention_factor = in_.number_or_null("rope_scaling.attention_factor", 1e-6, 1e6);
      if (family_.attention == AttentionKind::Compressed && !rope.attention_factor) {
        rope.attention_factor = 1;
      }
      rope.mscale = in_.number_or_null("rope_scaling.mscale", 0, 1e3);
      rope.mscale_all_dim = in_.number_or_null("rope_scaling.mscale_all_dim", 0, 1e3);
      if (rope.theta <= 1) in_.fail("'rope_theta' must be above 1 for yarn");
      read_growth();
    } else if (rope.type == RopeType::LongRope) {
      if (!factor) rope.factor = static_cast<double>(p_.context) / rope.original_context;
      rope.attention_factor = in_.number_or_null("rope_scaling.attention_factor", 1e-6, 1e6);
      rope.short_factors = read_divisors("rope_scaling.short_factor");
      rope.long_factors = read_divisors("rope_scaling.long_factor");
      if (rope.original_context <= 1) {
        in_.fail("'rope_scaling.original_max_position_embeddings' must be above 1 for longrope");
      }
    } else if (rope.type == RopeType::Dynamic) {
      in_.warn(fmt::format(
          "dynamic rope scaling is not applied: answers may differ beyond {} tokens", p_.context));
    }
  }

  // One for each frequency; empty where the config has none.
  std::vector<double> read_divisors(std::string_view key) {
    const auto divisors = in_.config().floats(key);
    if (!divisors) return {};
    const auto count = static_cast<size_t>(p_.rotary_dim / 2);
    if (divisors->size() != count) {
      in_.fail(fmt::format("'{}' has {} entries, expected {}", key, divisors->size(), count));
    } else if (!std::ranges::all_of(*divisors,
                                    [](double x) { return std::isfinite(x) && x > 0; })) {
      in_.fail(fmt::format("'{}' has entries that are not above 0", key));
    }
    return *divisors;
  }

  void read_growth() {
    const auto growth = in_.number_or_null("rope_scaling.llama_4_scaling_beta", 0, 1e3);
    if (growth.value_or(0) == 0) return;
    p_.grown_queries = {static_cast<float>(*growth), static_cast<int32_t>(std::clamp<double>(
                                                         p_.rope.original_context, 1, INT32_MAX))};
  }

  void read_experts() {
    const std::string_view key = family_.experts.count_key;
    p_.experts = static_cast<int32_t>(in_.integer_or_null(key, 0, kMaxExperts).value_or(0));
    if (!in_.flag("enable_moe_block").value_or(true)) p_.experts = 0;
    if (p_.experts == 0) {
      if (family_.experts.layers == LayerPattern::AllMoe) in_.fail(fmt::format("'{}' is 0", key));
      return;
    }
    p_.router.experts = p_.experts;
    p_.router.top_k = small("num_experts_per_tok", 1, kMaxExperts);
    if (p_.router.top_k > p_.experts) {
      in_.fail(fmt::format("'num_experts_per_tok' {} is above '{}' {}", p_.router.top_k, key,
                           p_.experts));
    }
    p_.expert_width = in_.integer(family_.experts.width_key, 1, kMaxWidth);
    if (family_.experts.shared == SharedKind::Width) {
      p_.shared_width = in_.integer("shared_expert_intermediate_size", 1, kMaxWidth);
    } else if (family_.experts.shared == SharedKind::Count) {
      const int64_t count = in_.integer_or_null("n_shared_experts", 0, 1024).value_or(0);
      p_.shared_width = count * p_.expert_width;
    }
    p_.expert_latent = in_.integer_or_null("moe_latent_size", 1, kMaxWidth).value_or(0);
    read_expert_layers();
    read_router();
    if (!family_.gateless) return;
    p_.glu.activation = static_cast<int32_t>(Activation::Relu);
    if (p_.unit == static_cast<int32_t>(UnitFunction::ReluSquared)) return;
    in_.fail(
        "'hidden_act' is not relu2: experts without a gate and with other activations are "
        "not known");
  }

  // Which layers have experts.
  void read_expert_layers() {
    int64_t first_dense = 0;            // layers before it have none
    int64_t last_moe = p_.layers;       // and layers behind it
    int64_t moe_every = 1;              // then every n-th by number has
    int64_t sparse_step = 1;            // or every n-th, counted from 1
    std::vector<int64_t> dense_layers;  // these have none
    if (family_.experts.layers == LayerPattern::FirstDenseThenStep) {
      first_dense = in_.integer("first_k_dense_replace", 0, kMaxLayers);
      sparse_step = std::max<int64_t>(in_.integer("decoder_sparse_step", 1, kMaxLayers), 1);
      const auto last = in_.integer_or_null("moe_layer_end_index", -1, kMaxLayers).value_or(-1);
      if (last >= 0) last_moe = last;
    } else if (family_.experts.layers == LayerPattern::FirstDense) {
      first_dense = in_.integer("first_k_dense_replace", 0, kMaxLayers);
      moe_every = std::max<int64_t>(in_.integer("moe_layer_freq", 1, kMaxLayers), 1);
    } else if (family_.experts.layers == LayerPattern::SparseStep) {
      sparse_step = std::max<int64_t>(in_.integer("decoder_sparse_step", 1, kMaxLayers), 1);
      const input::HfConfig& config = in_.config();
      dense_layers = config.ints("mlp_only_layers").value_or(std::vector<int64_t>());
      if (config.has("mlp_only_layers") && !config.is_null("mlp_only_layers") &&
          !config.ints("mlp_only_layers")) {
        in_.fail("'mlp_only_layers' is no list of layer numbers");
      }
      std::ranges::sort(dense_layers);
    }
    const bool by_kind = family_.experts.layers == LayerPattern::ByKind;
    const auto kinds = in_.config().strings(by_kind ? "layer_types" : "mlp_layer_types");
    const char* const sparse = by_kind ? "moe" : "sparse";
    if (kinds && kinds->size() == p_.shapes.size()) {
      for (size_t i = 0; i < kinds->size(); ++i) p_.shapes[i].experts = (*kinds)[i] == sparse;
      return;
    }
    for (int64_t i = 0; i < p_.layers; ++i) {
      p_.shapes[i].experts = i >= first_dense && i <= last_moe && i % moe_every == 0 &&
                             (i + 1) % sparse_step == 0 &&
                             !std::ranges::binary_search(dense_layers, i);
    }
  }

  void read_router() {
    RouterAttrs& router = p_.router;
    if (family_.experts.router == RouterKind::SoftmaxNormalised) {
      router.normalize = 1;
    } else if (family_.experts.router == RouterKind::SigmoidOfInput) {
      router.scoring = static_cast<int32_t>(Scoring::Sigmoid);
      router.normalize = 1;
      p_.router_scales_input = true;
      if (router.top_k != 1) {
        in_.fail(
            fmt::format("'num_experts_per_tok' is {}, expected 1: the input of one expert is "
                        "scaled",
                        router.top_k));
      }
    } else if (family_.experts.router == RouterKind::RootOfSoftplus) {
      router.scoring = static_cast<int32_t>(Scoring::SqrtSoftplus);
      router.normalize = in_.flag("norm_topk_prob").value_or(true);
      router.scale = static_cast<float>(in_.number("routed_scaling_factor", 1e-6, 1e6));
      p_.correction_bias = true;
      const std::string scoring = in_.text("scoring_func");
      if (scoring != "sqrtsoftplus") {
        in_.fail(fmt::format("'scoring_func' is '{}', expected sqrtsoftplus", printable(scoring)));
      }
      if (!router.normalize) {
        in_.fail("'norm_topk_prob' is false: weights that are not normalised are not known here");
      }
    } else if (family_.experts.router == RouterKind::SoftmaxByConfig) {
      router.normalize = in_.flag("norm_topk_prob").value_or(false);
    } else {
      read_grouped_router();
    }
  }

  // V2's code scales the weights only when it does not normalise them; V3's does
  // both. Normalising a single weight would make it 1 and is left out by V2's.
  void read_grouped_router() {
    RouterAttrs& router = p_.router;
    const bool corrected = family_.experts.router == RouterKind::GroupsByTwoBest;
    const std::string scoring = in_.text("scoring_func");
    if (scoring != "softmax" && scoring != "sigmoid") {
      in_.fail(
          fmt::format("'scoring_func' is '{}', expected softmax or sigmoid", printable(scoring)));
    }
    router.scoring =
        static_cast<int32_t>(scoring == "sigmoid" ? Scoring::Sigmoid : Scoring::Softmax);
    router.normalize =
        in_.flag("norm_topk_prob").value_or(false) && (corrected || router.top_k > 1);
    const double scale = in_.number("routed_scaling_factor", 1e-6, 1e6);
    router.scale = corrected || !router.normalize ? static_cast<float>(scale) : 1.0F;

    std::string method = in_.text("topk_method");
    if (method.empty()) {  // no GGUF has the key
      const bool groups = in_.integer_or_null("n_group", 0, kMaxExperts).value_or(1) > 1;
      method = groups ? "group_limited_greedy" : "greedy";
    }
    if (method == "greedy" || method == "gready") return;  // the misspelling is in HF's defaults
    if (method == "noaux_tc") {
      p_.correction_bias = corrected;
      router.group_score =
          static_cast<int32_t>(corrected ? GroupScore::SumOfTwoBest : GroupScore::Best);
      if (!corrected)
        in_.fail("'topk_method' is 'noaux_tc', expected greedy or group_limited_greedy");
    } else if (method == "group_limited_greedy") {
      router.group_score = static_cast<int32_t>(GroupScore::Best);
    } else {
      const std::string known[] = {"greedy", "group_limited_greedy", "noaux_tc"};
      in_.fail(
          fmt::format("'topk_method' is '{}', known are greedy, group_limited_greedy, "
                      "noaux_tc{}",
                      printable(method), did_you_mean(method, known)));
      return;
    }
    read_groups();
  }

  void read_groups() {
    RouterAttrs& router = p_.router;
    router.groups =
        static_cast<int32_t>(in_.integer_or_null("n_group", 0, kMaxExperts).value_or(1));
    router.groups_used =
        static_cast<int32_t>(in_.integer_or_null("topk_group", 0, kMaxExperts).value_or(1));
    if (router.groups <= 1) {  // 0 and 1: no groups
      router.groups = router.groups_used = 1;
      return;
    }
    const int32_t per_group = p_.experts / router.groups;
    if (p_.experts % router.groups != 0) {
      in_.fail(fmt::format("'n_group' {} does not divide '{}' {}", router.groups,
                           family_.experts.count_key, p_.experts));
    } else if (router.groups_used < 1 || router.groups_used > router.groups) {
      in_.fail(fmt::format("'topk_group' is {}, expected 1 to 'n_group' {}", router.groups_used,
                           router.groups));
    } else if (router.top_k > int64_t{per_group} * router.groups_used) {
      in_.fail(fmt::format("'num_experts_per_tok' {} is above the {} experts of 'topk_group' {}",
                           router.top_k, int64_t{per_group} * router.groups_used,
                           router.groups_used));
    } else if (router.group_score == static_cast<int32_t>(GroupScore::SumOfTwoBest) &&
               per_group < 2) {
      in_.fail(fmt::format("'n_group' {} leaves {} expert per group, expected at least 2",
                           router.groups, per_group));
    }
  }

  void read_dense_width() {
    const bool beside = family_.experts.layers == LayerPattern::BesideDense;
    const auto has_none = [](const LayerShape& s) { return s.experts || !s.feed_forward; };
    if (!beside && std::ranges::all_of(p_.shapes, has_none)) return;
    const bool called_shared = p_.experts == 0 && family_.experts.shared == SharedKind::Width &&
                               in_.has("shared_expert_intermediate_size");
    const std::vector<int64_t> widths = by_layer(
        called_shared ? "shared_expert_intermediate_size" : family_.dense_width_key, 1, kMaxWidth);
    const bool doubled = in_.flag("use_double_wide_mlp").value_or(false);
    for (size_t i = 0; i < widths.size(); ++i) {
      LayerShape& shape = p_.shapes[i];
      shape.mlp_width = widths[i] * (doubled && shape.keys_of_layer >= 0 ? 2 : 1);
    }
  }

  const families::Family& family_;
  ConfigReader in_;
  HyperParams p_;
  bool unknown_window_ = false;
};

}  // namespace

std::optional<HyperParams> read_hyper_params(const families::Family& family,
                                             const input::HfConfig& config, DiagSink& diags) {
  const int errors = diags.errors();
  HyperParams params = Reader(family, config, diags).run();
  if (diags.errors() != errors) return std::nullopt;
  return params;
}

}  // namespace ktx::arch
