// GET /health, /metrics (Prometheus), /stats (JSON for the page), /plan.
#include <fmt/format.h>

#include <map>

#include "lib/server/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/json_fields.h"

namespace ktx::server {
namespace {

using runtime::SecondsHistogram;

void histogram(std::string& out, const char* name, const char* help,
               const SecondsHistogram& values) {
  out += fmt::format("# HELP ktx_{0} {1}\n# TYPE ktx_{0} histogram\n", name, help);
  int64_t sum = 0;
  for (size_t i = 0; i < SecondsHistogram::kBounds.size(); ++i) {
    sum += values.in_bucket(i);
    out += fmt::format("ktx_{}_bucket{{le=\"{}\"}} {}\n", name, SecondsHistogram::kBounds[i], sum);
  }
  out += fmt::format("ktx_{0}_bucket{{le=\"+Inf\"}} {1}\nktx_{0}_sum {2}\nktx_{0}_count {1}\n",
                     name, values.count(), values.sum());
}

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  double value;
};

std::vector<Metric> metrics_of(const ServerContext& context, const runtime::SchedulerStats& s) {
  const HttpCounts http = context.http_counts();
  return {
#define KTX_METRIC(name, type, value, help) {name, type, help, static_cast<double>(value)},
#include "lib/server/metrics.def"
  };
}

}  // namespace

void get_health(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  if (context.model && !context.draining) {
    return reply->send(200, "application/json", R"({"status":"ok"})");
  }
  send_error(*reply, {503, context.model ? "the server is shutting down" : "the model is loading",
                      "", context.model ? "shutdown" : "loading", 1});
}

void get_metrics(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const runtime::SchedulerStats stats = context.model->scheduler->stats();
  std::string out;
  for (const Metric& metric : metrics_of(context, stats)) {
    out += fmt::format("# HELP ktx_{0} {1}\n# TYPE ktx_{0} {2}\nktx_{0} {3}\n", metric.name,
                       metric.help, metric.type, metric.value);
  }
  histogram(out, "queue_seconds", "Time that requests waited for a place.", stats.queue_time);
  histogram(out, "time_to_first_token_seconds", "From a request to its first token.",
            stats.first_token);
  histogram(out, "time_between_tokens_seconds", "From a token of an answer to the next.",
            stats.between_tokens);
  reply->send(200, "text/plain; version=0.0.4; charset=utf-8", std::move(out));
}

void get_stats(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const runtime::SchedulerStats stats = context.model->scheduler->stats();
  Json json;
  for (const Metric& metric : metrics_of(context, stats)) json[metric.name] = metric.value;
  const auto mean = [](const runtime::SecondsHistogram& seconds) {
    return seconds.count() > 0 ? seconds.sum() / static_cast<double>(seconds.count()) : 0.0;
  };
  json["queue_seconds_mean"] = mean(stats.queue_time);
  json["time_to_first_token_seconds_mean"] = mean(stats.first_token);
  json["time_between_tokens_seconds_mean"] = mean(stats.between_tokens);
  reply->send(200, "application/json", dump(json));
}

void get_plan(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const plan::PlanView& plan = model.engine->plan();
  Json json;
  json["model"] = model.id;
  json["family"] = plan.facts.family;
  json["layers"] = plan.facts.layers;
  json["parameters"] = plan.facts.parameters;
  json["threads"] = model.engine->threads();
  json["isa"] = name(model.engine->isa());
  json["ctx"] = model.engine->ctx();
  json["max_batch"] = model.engine->max_batch();
  json["kv_type"] = name(model.engine->kv_type());
  const plan::MemoryEstimate& memory = model.engine->memory();
  json["memory"] = {{"weights", memory.weight_bytes},
                    {"activations", memory.arena_bytes},
                    {"kv_cache", memory.kv_bytes}};
  // Weights by layer and device: the placement picture.
  std::map<std::pair<int64_t, std::string>, uint64_t> placed;
  for (const plan::StepRecord& step : plan.steps) {
    const std::string device(plan.string_or_empty(step.device));
    for (const uint32_t blob : plan.weights(step)) {
      if (blob != plan::kNone) placed[{step.layer, device}] += plan.blobs[blob].size;
    }
  }
  json["placement"] = Json::array();
  for (const auto& [where, bytes] : placed) {
    json["placement"].push_back(
        {{"layer", where.first}, {"device", where.second}, {"bytes", bytes}});
  }
  reply->send(200, "application/json", dump(json));
}

}  // namespace ktx::server
