// GET /health, /metrics (Prometheus), /stats (JSON for the page), /plan.
#include <fmt/format.h>

#include <map>

#include "lib/server/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/json_fields.h"

namespace ktx::server {
namespace {

using runtime::SecondsHistogram;

// Of one model; `label` is "" or `model="qwen3",`.
void histogram(std::string& out, const char* name, const std::string& label,
               const SecondsHistogram& values) {
  int64_t sum = 0;
  for (size_t i = 0; i < SecondsHistogram::kBounds.size(); ++i) {
    sum += values.in_bucket(i);
    out += fmt::format("ktx_{}_bucket{{{}le=\"{}\"}} {}\n", name, label,
                       SecondsHistogram::kBounds[i], sum);
  }
  const std::string only =
      label.empty() ? "" : fmt::format("{{{}}}", label.substr(0, label.size() - 1));
  out += fmt::format(
      "ktx_{0}_bucket{{{1}le=\"+Inf\"}} {2}\nktx_{0}_sum{3} {4}\nktx_{0}_count{3} {2}\n", name,
      label, values.count(), only, values.sum());
}

// A label's value as Prometheus reads it.
std::string label_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  double value;
  bool of_server;  // not of a model
};

std::vector<Metric> metrics_of(const ServerContext& context, const runtime::SchedulerStats& s) {
  const HttpCounts http = context.http_counts();
  return {
#define KTX_METRIC(name, type, value, help) \
  {name, type, help, static_cast<double>(value), std::string_view(#value).starts_with("http.")},
#include "lib/server/metrics.def"
  };
}

}  // namespace

void get_health(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  if (!context.failure.empty()) return send_error(*reply, {503, context.failure, "", "failed", 0});
  if (context.models && !context.draining) {
    return reply->send(200, "application/json", R"({"status":"ok"})");
  }
  send_error(*reply, {503, context.models ? "the server is shutting down" : "the model is loading",
                      "", context.models ? "shutdown" : "loading", 1});
}

// One that is not loaded has no figures: looking at it must not load it.
void get_metrics(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  struct Figures {
    std::string label;  // "" where there is one model
    runtime::SchedulerStats stats;
    std::vector<Metric> metrics;
  };
  std::vector<Figures> models;
  for (const ModelStatus& status : context.models->list()) {
    if (!status.model) continue;
    Figures one;
    if (context.models->several()) {
      one.label = fmt::format("model=\"{}\",", label_text(status.plan.name));
    }
    one.stats = status.model->scheduler->stats();
    one.metrics = metrics_of(context, one.stats);
    models.push_back(std::move(one));
  }
  std::string out = fmt::format(
      "# HELP ktx_models_loaded Models in memory.\n# TYPE ktx_models_loaded gauge\n"
      "ktx_models_loaded {}\n",
      models.size());
  const std::vector<Metric> none = metrics_of(context, {});
  for (size_t i = 0; i < none.size(); ++i) {
    out += fmt::format("# HELP ktx_{0} {1}\n# TYPE ktx_{0} {2}\n", none[i].name, none[i].help,
                       none[i].type);
    if (none[i].of_server) out += fmt::format("ktx_{} {}\n", none[i].name, none[i].value);
    for (const Figures& model : none[i].of_server ? std::vector<Figures>() : models) {
      const std::string label =
          model.label.empty()
              ? ""
              : fmt::format("{{{}}}", model.label.substr(0, model.label.size() - 1));
      out += fmt::format("ktx_{}{} {}\n", none[i].name, label, model.metrics[i].value);
    }
  }
  const auto histograms = [&](const char* name, const char* help,
                              SecondsHistogram runtime::SchedulerStats::*values) {
    out += fmt::format("# HELP ktx_{0} {1}\n# TYPE ktx_{0} histogram\n", name, help);
    for (const Figures& model : models) histogram(out, name, model.label, model.stats.*values);
  };
  using runtime::SchedulerStats;
  histograms("queue_seconds", "Time that requests waited for a place.",
             &SchedulerStats::queue_time);
  histograms("time_to_first_token_seconds", "From a request to its first token.",
             &SchedulerStats::first_token);
  histograms("time_between_tokens_seconds", "From a token of an answer to the next.",
             &SchedulerStats::between_tokens);
  reply->send(200, "text/plain; version=0.0.4; charset=utf-8", std::move(out));
}

void get_stats(const ServerContext& context, const HttpRequest& request,
               const HttpReplyPtr& reply) {
  const ModelStore::Found found = context.models->peek(request.query_value("model"));
  if (found.error) return send_error(*reply, *found.error);
  const auto stats = found.model ? found.model->scheduler->stats() : runtime::SchedulerStats();
  Json json;
  for (const Metric& metric : metrics_of(context, stats)) json[metric.name] = metric.value;
  const auto mean = [](const SecondsHistogram& seconds) {
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
