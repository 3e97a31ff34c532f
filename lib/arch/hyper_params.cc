// Converts config keys to numbers: what all models have here, kinds of layers in *_params.cc
// (param_part.h).
#include "lib/arch/hyper_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class Reader : ParamPart {
 public:
  explicit Reader(const ParamPart& part) : ParamPart(part) {}

  void run() {
    p_.layers = small("num_hidden_layers", 1, kMaxLayers);
    p_.shapes.resize(std::max(p_.layers, 1));
    p_.hidden = in_.integer("hidden_size", 1, kMaxHidden);
    if (family_.is_tower()) {
      arch::read_images(*this);
    } else {
      p_.vocab = in_.integer("vocab_size", 1, kMaxVocab);
      p_.context = in_.integer("max_position_embeddings", 1, kMaxContext);
    }
    p_.layer_norms = family_.layer_norms;
    const char* eps = p_.layer_norms ? "layer_norm_eps" : "rms_norm_eps";
    p_.norm_eps = static_cast<float>(in_.number(eps, 1e-20, 1));
    if (family_.has_config_key("post_norm_eps")) {
      p_.post_norm_eps = static_cast<float>(in_.number("post_norm_eps", 1e-20, 1));
    }
    p_.tied = in_.flag("tie_word_embeddings");
    p_.mtp_layers =
        static_cast<int32_t>(in_.integer_or_null("num_nextn_predict_layers", 0, 64).value_or(0));
    p_.qk_norm = in_.flag("use_qk_norm").value_or(true);
    refuse_odd_arithmetic();
    p_.parallel_parts = in_.flag("use_parallel_residual").value_or(false);
    p_.qk_norms = family_.qk_norm;
    read_activation();
    p_.qkv_limit = static_cast<float>(in_.number_or_null("clip_qkv", 0, 1e6).value_or(0));
    if (p_.qkv_limit != 0 && !family_.has_config_key("clip_qkv")) {
      in_.fail("'clip_qkv' is set: clamped queries, keys and values are not known for this family");
    }
    read_scores();
    read_scales();
    if (family_.attention == AttentionKind::Mla) {
      arch::read_mla(*this);
    } else if (family_.attention == AttentionKind::Compressed) {
      arch::read_compressed_attention(*this);
    } else if (!family_.has_role(ir::Role::Attention) &&
               family_.has_role(ir::Role::SelectiveScan)) {
      arch::read_selective_scans(*this);
    } else if (!family_.has_role(ir::Role::Attention)) {
      arch::read_state_spaces(*this);
    } else {
      arch::read_gqa(*this);
    }
    if (family_.has_role(ir::Role::AltUp)) arch::read_altup(*this);
    if (family_.has_role(ir::Role::AttentionStreams)) arch::read_streams(*this);
    if (family_.has_role(ir::Role::HeadSources)) arch::read_sources(*this);
    if (family_.has_role(ir::Role::NgramPart)) arch::read_ngrams(*this);
    read_biases();
    if (family_.has_role(ir::Role::Rotary) || family_.has_role(ir::Role::GridRotary)) {
      arch::read_rope(*this);
    } else {
      for (LayerShape& shape : p_.shapes) shape.rotated = false;
    }
    if (family_.attention == AttentionKind::Gqa && p_.index_pool > 0 &&
        p_.index_dim < p_.rotary_dim) {
      in_.fail(fmt::format("'index_head_dim' {} is below the {} rotated elements of a head",
                           p_.index_dim, p_.rotary_dim));
    }
    if (family_.experts.layers != LayerPattern::AllDense) arch::read_experts(*this);
    read_dense_width();
  }

 private:
  // Keys that say of other arithmetic than that of the family's models.
  void refuse_odd_arithmetic() {
    static constexpr struct {
      const char* key;
      bool value;
      const char* what;
    } kOdd[] = {
        {"qk_layernorm", true, "layer norms of queries and keys"},
        {"scale_attn_by_inverse_layer_idx", true, "scores that are divided by the layer's number"},
        {"scale_attn_weights", false, "scores without a scale"},
        {"attn_config.alibi", false, "positions that are looked up"},
        {"parallel_attn", false, "attention and a feed-forward part one behind the other"},
        {"multi_query", false, "a key head for each query head"},
    };
    for (const auto& odd : kOdd) {
      if (in_.flag(odd.key) != odd.value) continue;
      in_.fail(fmt::format("'{}' is {}: {} are not known for this family", odd.key,
                           odd.value ? "set" : "false", odd.what));
    }
    if (family_.alibi == 0 && in_.flag("alibi").value_or(false)) {
      in_.fail("'alibi' is set: scores that fall with the distance are not known for this family");
    }
    if (!family_.mlp_bias && in_.flag("mlp_bias").value_or(false)) {
      in_.fail("'mlp_bias' is set: feed-forward parts with biases are not known for this family");
    }
    constexpr const char* kNorm = "ffn_config.moe_normalize_expert_weights";
    if (in_.config().has(kNorm) && in_.number_or_null(kNorm, 0, 1e6) != 1.0) {
      in_.fail(
          fmt::format("'{}' is not 1: experts are weighted by their share of the sum of the "
                      "chosen ones",
                      kNorm));
    }
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
    if (family_.has_config_key("swiglu_limit")) {
      p_.glu.limit = static_cast<float>(in_.number_or_null("swiglu_limit", 0, 1e6).value_or(0));
    }
    const std::string act = in_.text("hidden_act");
    if (family_.activation == Activation::Situ) return read_situ(act);
    if (family_.gateless) return read_unit(act);
    if (act.empty()) return;
    if (act == "silu" || act == "swish") {
      p_.glu.activation = static_cast<int32_t>(Activation::Silu);
    } else if (act == "gelu_pytorch_tanh") {
      p_.glu.activation = static_cast<int32_t>(Activation::GeluTanh);
    } else if (act == "relu") {
      p_.glu.activation = static_cast<int32_t>(Activation::Relu);
    } else if ((act == "gelu" || act == "relu2") &&
               family_.experts.layers == families::LayerPattern::AllDense) {
      p_.glu.activation = static_cast<int32_t>(Activation::Product);  // behind that of the gate
      p_.unit =
          static_cast<int32_t>(act == "gelu" ? UnitFunction::GeluErf : UnitFunction::ReluSquared);
    } else {
      in_.fail(fmt::format(
          "'hidden_act' is '{}', expected silu, gelu_pytorch_tanh, relu or, without experts, gelu or "
          "relu2: other activations are not known",
          printable(act)));
    }
  }

  // Where the config has no limit of up, it is not bent.
  void read_situ(const std::string& act) {
    p_.glu.limit = static_cast<float>(in_.number("activation_situ_beta", 1e-6, 1e6));
    p_.glu.up_limit =
        static_cast<float>(in_.number_or_null("activation_situ_linear_beta", 0, 1e6).value_or(0));
    if (act.empty() || act == "situ") return;
    in_.fail(
        fmt::format("'hidden_act' is '{}', expected situ: other activations are not known here",
                    printable(act)));
  }

  // The activation of feed-forward parts without a gate.
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
    if (family_.unit == UnitFunction::Xielu) return read_xielu(act);
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

  // Files have the trained numbers; the factors are softplus of these. Both begin at 0.8.
  void read_xielu(const std::string& act) {
    if (act != "xielu") {
      return in_.fail(
          fmt::format("'hidden_act' is '{}', expected xielu: other activations are not known here",
                      printable(act)));
    }
    const double first = std::log(std::expm1(0.8)), first_fall = std::log(std::expm1(0.8 - 0.5));
    const auto rise = trained("xielu_alpha_p", first), fall = trained("xielu_alpha_n", first_fall),
               slope = trained("xielu_beta", 0.5), limit = trained("xielu_eps", -1e-6);
    const auto softplus = [](double x) {
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    };
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].xielu = {
          p_.unit, static_cast<float>(limit[i]), static_cast<float>(softplus(rise[i])),
          static_cast<float>(slope[i] + softplus(fall[i])), static_cast<float>(slope[i])};
    }
  }

  // A number for each layer, of either sign.
  std::vector<double> trained(std::string_view key, double otherwise) {
    std::vector<double> all(p_.shapes.size(), otherwise);
    const auto list = in_.config().floats(key);
    if (!list) return all;
    const bool fit = list->size() >= all.size() &&
                     std::ranges::all_of(*list, [](double x) { return std::abs(x) <= 1e3; });
    if (fit) return *list;
    in_.fail(fmt::format("'{}' is no list of a number from -1000 to 1000 for each of {} layers",
                         key, all.size()));
    return all;
  }

  // What a text gives instead of logits, and of which of its tokens.
  void read_scores() {
    p_.encoder = family_.encoder;
    p_.scores = static_cast<int32_t>(in_.integer_or_null("score_count", 0, 1 << 16).value_or(0));
    p_.score_dense = in_.flag("score_dense").value_or(false);
    p_.text_dense = in_.integer_or_null("text_dense_width", 0, kMaxWidth).value_or(0);
    p_.text_types = in_.integer_or_null("type_vocab_size", 0, kMaxVocab).value_or(0);
    p_.pooling = p_.scores > 0 ? "rank" : in_.text("pooling_type");
    if (p_.pooling == "rank" && p_.scores == 0) {
      in_.fail(
          "the file says that texts are ranked (pooling type 4) but lacks the tensor "
          "'cls.output.weight' for it");
    }
    if (p_.scores > 0 && !family_.has_role(ir::Role::ScoreHead)) {
      in_.fail(
          "the file scores texts ('cls.output.weight'), which is not known of such models: it "
          "would need a head of its kind, which some read from the mean of a text's states");
    }
    if (p_.scores > 0 && family_.has_role(ir::Role::ScoreDense) && !p_.score_dense) {
      in_.fail(
          "the tensor 'cls.output.weight' stands alone: a cross-encoder of this kind has a linear "
          "before it ('cls.weight'; pooler.dense or classifier.dense of the model), which the "
          "converter left out. Without it the scores are wrong; convert the model again with it, "
          "or use a reranker whose file has both");
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
    p_.logit_scale = family_.has_config_key("logit_scale")
                         ? static_cast<float>(in_.number("logit_scale", 1e-6, 1e6))
                         : 1 / factor("logits_scaling");
    const auto cap = [&](std::string_view key) {
      return static_cast<float>(in_.number_or_null(key, 0, 1e6).value_or(0));
    };
    p_.whole_scale = family_.whole_scale;
    p_.attention_softcap = cap("attn_logit_softcapping");
    p_.attention_alibi = family_.has_config_key("alibi_bias_max")
                             ? static_cast<float>(in_.number("alibi_bias_max", 1e-6, 1e3))
                             : family_.alibi;
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
};

}  // namespace

std::optional<HyperParams> read_hyper_params(const families::Family& family,
                                             const input::HfConfig& config, DiagSink& diags) {
  const int errors = diags.errors();
  ConfigReader in(family, config, diags);
  HyperParams params;
  Reader({family, in, params}).run();
  if (diags.errors() != errors) return std::nullopt;
  return params;
}

}  // namespace ktx::arch
