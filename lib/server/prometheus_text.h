// Figures in Prometheus' text form.
//
//   PrometheusText out;
//   out.begin("requests_total", "counter", "Requests taken.");
//   out.add({{"model", "qwen3"}}, 12);         // ktx_requests_total{model="qwen3"} 12
//   out.begin("queue_seconds", "histogram", "...");
//   out.add({}, stats.queue_time);
//   std::move(out).text()
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/runtime/scheduler/scheduler_stats.h"

namespace ktx::server {

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  // What follows; `name` without "ktx_".
  void begin(std::string_view name, std::string_view type, std::string_view help);
  void add(const Labels& labels, double value);
  void add(const Labels& labels, const runtime::SecondsHistogram& values);
  std::string text() && { return std::move(text_); }

 private:
  std::string name_, text_;
};

}  // namespace ktx::server
