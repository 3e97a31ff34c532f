#include "tools/ktx-run/quality_report.h"

#include <fmt/format.h>

#include "lib/support/strings.h"
#include "lib/target/isa.h"

namespace ktx::tools {
namespace {

struct Percentile {
  const char* name;
  double share;
};
constexpr Percentile kPercentiles[] = {{"least", 0},    {"1 %", 0.01},     {"10 %", 0.1},
                                       {"median", 0.5}, {"90 %", 0.9},     {"95 %", 0.95},
                                       {"99 %", 0.99},  {"99.9 %", 0.999}, {"most", 1}};

std::string_view precision_name(const runtime::Engine& engine) {
  return engine.precision() == runtime::Precision::Exact ? "exact" : "fast";
}

std::string backend_name(const runtime::Engine& engine) {
  const std::vector<runtime::GpuUse> gpus = engine.gpus();
  if (gpus.empty()) return fmt::format("CPU {}", name(engine.isa()));
  return gpus.size() == 1 ? gpus[0].name : fmt::format("{} x{}", gpus[0].name, gpus.size());
}

}  // namespace

std::string run_text(const runtime::Engine& engine) {
  return fmt::format("{} precision, {} cache, {}, {} threads", precision_name(engine),
                     name(engine.kv_type()), backend_name(engine), engine.threads());
}

nlohmann::ordered_json run_json(const runtime::Engine& engine) {
  return {{"precision", precision_name(engine)},
          {"kv_type", name(engine.kv_type())},
          {"backend", backend_name(engine)},
          {"threads", engine.threads()}};
}

nlohmann::ordered_json estimate_json(const runtime::Estimate& estimate) {
  return {{"value", estimate.value}, {"error", estimate.error}};
}

std::string divergence_text(const runtime::DivergenceSum& sum) {
  const runtime::Estimate perplexity = runtime::perplexity(sum.negative_logprobs());
  const runtime::Estimate base = runtime::perplexity(sum.base_negative_logprobs());
  const runtime::Estimate ratio = sum.log_ratio(), kld = sum.mean_kld(), top = sum.same_top();
  const runtime::Estimate rms = sum.rms_delta_p(), mean = sum.mean_delta_p();
  std::string out;
  out += fmt::format("perplexity           {:.4f} ± {:.4f}\n", perplexity.value, perplexity.error);
  out += fmt::format("  of the base        {:.4f} ± {:.4f}\n", base.value, base.error);
  out += fmt::format("  ln of their ratio  {:.6f} ± {:.6f}\n", ratio.value, ratio.error);
  out += fmt::format("KL divergence        {:.6f} ± {:.6f}\n", kld.value, kld.error);
  for (const Percentile& each : kPercentiles) {
    out += fmt::format("  {:<18} {:.6f}\n", each.name, sum.kld_percentile(each.share));
  }
  out += fmt::format("same top token       {:.3f} ± {:.3f} %\n", 100 * top.value, 100 * top.error);
  out += fmt::format("change of p(token)   {:.3f} ± {:.3f} % (root of mean square)\n",
                     100 * rms.value, 100 * rms.error);
  out +=
      fmt::format("  mean               {:.3f} ± {:.3f} %\n", 100 * mean.value, 100 * mean.error);
  for (const Percentile& each : kPercentiles) {
    out += fmt::format("  {:<18} {:.3f} %\n", each.name, 100 * sum.delta_p_percentile(each.share));
  }
  return out;
}

nlohmann::ordered_json divergence_json(const runtime::DivergenceSum& sum) {
  nlohmann::ordered_json kld, delta_p;
  for (const Percentile& each : kPercentiles) {
    kld[each.name] = sum.kld_percentile(each.share);
    delta_p[each.name] = sum.delta_p_percentile(each.share);
  }
  return {{"base_perplexity", estimate_json(runtime::perplexity(sum.base_negative_logprobs()))},
          {"log_ratio", estimate_json(sum.log_ratio())},
          {"kl_divergence", estimate_json(sum.mean_kld())},
          {"kl_divergence_percentiles", kld},
          {"same_top", estimate_json(sum.same_top())},
          {"rms_delta_p", estimate_json(sum.rms_delta_p())},
          {"mean_delta_p", estimate_json(sum.mean_delta_p())},
          {"delta_p_percentiles", delta_p}};
}

std::string layers_text(const std::vector<runtime::StreamDifference>& layers) {
  if (layers.empty()) return "layers: the two plans have none in common that this host computes\n";
  std::string out = "layer       relative difference of the residual stream behind it\n";
  for (const runtime::StreamDifference& each : layers) {
    const std::string layer = each.layer < 0 ? "embedding" : std::to_string(each.layer);
    out += fmt::format("{:<11} {:.6f}\n", layer, each.relative);
  }
  const runtime::StreamDifference* most = runtime::parting(layers);
  out += most == nullptr ? "the layers are equal, bit for bit\n"
                         : fmt::format("they part most at {}\n",
                                       most->layer < 0 ? "the embedding"
                                                       : fmt::format("layer {}", most->layer));
  return out;
}

nlohmann::ordered_json layers_json(const std::vector<runtime::StreamDifference>& layers) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const runtime::StreamDifference& each : layers) {
    all.push_back({{"layer", each.layer}, {"relative_difference", each.relative}});
  }
  const runtime::StreamDifference* most = runtime::parting(layers);
  return {{"differences", all},
          {"part_at", most ? nlohmann::ordered_json(most->layer) : nlohmann::ordered_json()}};
}

}  // namespace ktx::tools
