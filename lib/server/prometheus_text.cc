#include "lib/server/prometheus_text.h"

#include <fmt/format.h>

namespace ktx::server {
namespace {

// A label's value as Prometheus reads it.
std::string label_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

// `{model="qwen3",le="0.1"}`, or nothing.
std::string in_braces(const PrometheusText::Labels& labels, std::string_view bound = {}) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", name, label_text(value));
  }
  if (!bound.empty()) out += fmt::format("{}le=\"{}\"", out.empty() ? "" : ",", bound);
  return out.empty() ? "" : "{" + out + "}";
}

}  // namespace

void PrometheusText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = fmt::format("ktx_{}", name);
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help, type);
}

void PrometheusText::add(const Labels& labels, double value) {
  text_ += fmt::format("{}{} {}\n", name_, in_braces(labels), value);
}

void PrometheusText::add(const Labels& labels, const runtime::SecondsHistogram& values) {
  using runtime::SecondsHistogram;
  int64_t sum = 0;
  for (size_t i = 0; i < SecondsHistogram::kBounds.size(); ++i) {
    sum += values.in_bucket(i);
    const std::string bound = fmt::format("{}", SecondsHistogram::kBounds[i]);
    text_ += fmt::format("{}_bucket{} {}\n", name_, in_braces(labels, bound), sum);
  }
  text_ += fmt::format("{0}_bucket{1} {2}\n{0}_sum{3} {4}\n{0}_count{3} {2}\n", name_,
                       in_braces(labels, "+Inf"), values.count(), in_braces(labels), values.sum());
}

}  // namespace ktx::server
