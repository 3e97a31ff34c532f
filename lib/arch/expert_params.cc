// Experts: which layers have them, and how the router chooses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"
#include "lib/support/strings.h"

namespace ktx::arch {
namespace {

class ExpertPart : ParamPart {
 public:
  explicit ExpertPart(const ParamPart& part) : ParamPart(part) {}

  void read_experts() {
    const std::string_view key = family_.experts.count_key;
    p_.experts = static_cast<int32_t>(in_.integer_or_null(key, 0, kMaxExperts).value_or(0));
    if (!in_.flag("enable_moe_block").value_or(true)) p_.experts = 0;
    const auto kinds = in_.config().strings("mlp_layer_types");
    if (p_.experts == 1 && kinds && std::ranges::count(*kinds, "sparse") == 0) p_.experts = 0;
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
    p_.latent_norm = in_.flag("latent_moe_use_norm").value_or(true);
    read_expert_layers();
    if (in_.number_or_null("router_logit_softcapping", 0, 1e6).value_or(0) > 0) {
      in_.fail("'router_logit_softcapping' is set: bent scores of experts are not known");
    }
    read_limits("swiglu_limits", &LayerShape::glu_limit);
    read_limits("swiglu_limits_shared", &LayerShape::shared_limit);
    read_router();
    p_.router_reads_stream = family_.router_reads_stream;
    if (!family_.gateless) return;
    p_.glu.activation = static_cast<int32_t>(Activation::Relu);
    if (p_.unit == static_cast<int32_t>(UnitFunction::ReluSquared)) return;
    in_.fail(
        "'hidden_act' is not relu2: experts without a gate and with other activations are "
        "not known");
  }

 private:
  // A number for each layer; 0: its units are not clamped.
  void read_limits(std::string_view key, float LayerShape::*limit) {
    if (!family_.has_config_key(key) || !in_.has(key)) return;
    const auto list = in_.config().floats(key);
    if (!list || list->size() < p_.shapes.size() ||
        !std::ranges::all_of(*list, [](double x) { return x >= 0 && x <= 1e6; })) {
      return in_.fail(fmt::format("'{}' is no list of a number, 0 or above, for each of {} layers",
                                  key, p_.shapes.size()));
    }
    for (size_t i = 0; i < p_.shapes.size(); ++i) {
      p_.shapes[i].*limit = static_cast<float>((*list)[i]);
    }
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
    } else if (family_.experts.router == RouterKind::SparseMixer) {
      router.scoring = static_cast<int32_t>(Scoring::SparseMixer);
      const double noise = in_.number_or_null("router_jitter_noise", 0, 1).value_or(0.01);
      if (std::abs(2 * noise - kSparseMixerReach) > 1e-9) {
        in_.fail(
            fmt::format("'router_jitter_noise' is {}, expected {}: another reach of the router "
                        "is not known",
                        noise, kSparseMixerReach / 2));
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
};

}  // namespace

void read_experts(const ParamPart& part) {
  ExpertPart(part).read_experts();
}

}  // namespace ktx::arch
