// GET /health, /metrics (Prometheus), /stats (JSON for the page), /plan.
#include <fmt/format.h>

#include <map>
#include <span>

#include "lib/server/answer/answer_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/json_fields.h"
#include "lib/server/prometheus_text.h"
#include "lib/server/server_figures.h"

namespace ktx::server {
namespace {

using runtime::SchedulerStats;
using runtime::SecondsHistogram;

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  double value;
  bool of_server;  // not of a model
};

std::vector<Metric> metrics_of(const ServerContext& context, const SchedulerStats& s,
                               const vision::ViewerFigures& seen = {}) {
  const HttpCounts http = context.http_counts();
  return {
#define KTX_METRIC(name, type, value, help) \
  {name, type, help, static_cast<double>(value), std::string_view(#value).starts_with("http.")},
#include "lib/server/metrics.def"
  };
}

}  // namespace

ApiStatus get_health(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  if (!context.failure.empty()) return ApiError{503, context.failure, "", "failed", 0};
  const std::string lost = context.models ? context.models->failure() : "";
  if (!lost.empty()) return ApiError{503, lost, "", "model_lost", 5};
  if (!context.models) return ApiError{503, "the model is loading", "", "loading", 1};
  if (context.draining) return ApiError{503, "the server is shutting down", "", "shutdown", 1};
  reply->send(200, "application/json", R"({"status":"ok"})");
  return {};
}

namespace {

// The figures about images.
vision::ViewerFigures figures_of(const ServedModel& model) {
  return model.viewer ? model.viewer->figures() : vision::ViewerFigures();
}

struct LoadedModel {
  PrometheusText::Labels labels;  // none where there is one model
  const ServedModel* model;
  SchedulerStats stats;
  std::vector<Metric> metrics;
};

void write_ends(PrometheusText& out, std::span<const LoadedModel> models) {
  constexpr const char* kReasons[] = {"stop",     "length", "context", "cancelled",
                                      "deadline", "failed", "shutdown"};
  out.begin("requests_ended_by_total", "counter", "Requests that ended, by reason.");
  for (const LoadedModel& model : models) {
    for (size_t i = 0; i < std::size(kReasons); ++i) {
      PrometheusText::Labels labels = model.labels;
      labels.emplace_back("reason", kReasons[i]);
      out.add(labels, static_cast<double>(model.stats.ended_by[i]));
    }
  }
}

void write_histograms(PrometheusText& out, std::span<const LoadedModel> models) {
  struct Row {
    const char* name;
    const char* help;
    SecondsHistogram SchedulerStats::*values;
  };
  constexpr Row kRows[] = {
      {"queue_seconds", "Time that requests waited for a place.", &SchedulerStats::queue_time},
      {"time_to_first_token_seconds", "From a request to its first token.",
       &SchedulerStats::first_token},
      {"time_between_tokens_seconds", "From a token of an answer to the next.",
       &SchedulerStats::between_tokens},
      {"request_seconds",
       "From a request to the end of its answer, of those that were not cut off.",
       &SchedulerStats::whole_time},
      {"request_time_per_token_seconds", "Mean time of an answer's tokens behind the first.",
       &SchedulerStats::per_token},
  };
  for (const Row& row : kRows) {
    out.begin(row.name, "histogram", row.help);
    for (const LoadedModel& model : models) out.add(model.labels, model.stats.*row.values);
  }
}

void write_infos(PrometheusText& out, const ServerContext& context,
                 std::span<const LoadedModel> models) {
  out.begin("build_info", "gauge", "The program.");
  out.add({{"version", KTX_VERSION}, {"commit", context.commit}}, 1);
  out.begin("model_info", "gauge", "The loaded models.");
  for (const LoadedModel& each : models) {
    const ServedModel& model = *each.model;
    out.add({{"model", model.id},
             {"family", model.facts().family},
             {"quantization", model.summary ? model.summary->quantization : ""},
             {"parameters", std::to_string(model.facts().parameters)},
             {"ctx", std::to_string(model.engine->ctx())},
             {"max_batch", std::to_string(model.engine->max_batch())},
             {"kv_type", std::string(name(model.engine->kv_type()))},
             {"isa", std::string(name(model.engine->isa()))}},
            1);
  }
  out.begin("models_loaded", "gauge", "Models in memory.");
  out.add({}, static_cast<double>(models.size()));
}

}  // namespace

// One that is not loaded has no figures: looking at it must not load it.
ApiStatus get_metrics(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
  const std::vector<ModelStatus> list = context.models->list();  // holds the models
  std::vector<LoadedModel> models;
  for (const ModelStatus& status : list) {
    if (!status.model) continue;
    LoadedModel one{{}, status.model.get(), status.model->scheduler->stats(), {}};
    if (context.models->several()) one.labels.emplace_back("model", status.plan.name);
    one.metrics = metrics_of(context, one.stats, figures_of(*one.model));
    models.push_back(std::move(one));
  }
  PrometheusText out;
  write_infos(out, context, models);
  const std::vector<Metric> none = metrics_of(context, {});
  for (size_t i = 0; i < none.size(); ++i) {
    out.begin(none[i].name, none[i].type, none[i].help);
    if (none[i].of_server) out.add({}, none[i].value);
    for (const LoadedModel& model : none[i].of_server ? std::span<LoadedModel>() : models) {
      out.add(model.labels, model.metrics[i].value);
    }
  }
  write_ends(out, models);
  write_histograms(out, models);
  context.figures->write(out);
  reply->send(200, "text/plain; version=0.0.4; charset=utf-8", std::move(out).text());
  return {};
}

ApiStatus get_stats(const ServerContext& context, const HttpRequest& request,
                    const HttpReplyPtr& reply) {
  const ModelStore::Found found = context.models->peek(request.query_value("model"));
  if (found.error) return *found.error;
  const auto stats = found.model ? found.model->scheduler->stats() : SchedulerStats();
  Json json;
  const auto seen = found.model ? figures_of(*found.model) : vision::ViewerFigures();
  for (const Metric& metric : metrics_of(context, stats, seen)) json[metric.name] = metric.value;
  const auto mean = [](const SecondsHistogram& seconds) {
    return seconds.count() > 0 ? seconds.sum() / static_cast<double>(seconds.count()) : 0.0;
  };
  json["queue_seconds_mean"] = mean(stats.queue_time);
  json["time_to_first_token_seconds_mean"] = mean(stats.first_token);
  json["time_between_tokens_seconds_mean"] = mean(stats.between_tokens);
  json["request_seconds_mean"] = mean(stats.whole_time);
  reply->send(200, "application/json", dump(json));
  return {};
}

ApiStatus get_plan(const ServerContext& context, const HttpRequest&, const HttpReplyPtr& reply) {
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
  if (const uint64_t bytes = model.engine->sizes().lora_bytes) json["memory"]["adapters"] = bytes;
  // Weights by layer and device: the placement picture.
  std::map<std::pair<int64_t, std::string>, uint64_t> placed;
  for (const program::Step& step : plan.program->steps) {
    for (const program::BlobId blob : step.weights) {
      if (blob == program::kAbsent) continue;
      placed[{step.layer, step.device}] += plan.blob_bytes(static_cast<uint32_t>(blob)).size();
    }
  }
  json["placement"] = Json::array();
  for (const auto& [where, bytes] : placed) {
    json["placement"].push_back(
        {{"layer", where.first}, {"device", where.second}, {"bytes", bytes}});
  }
  reply->send(200, "application/json", dump(json));
  return {};
}

}  // namespace ktx::server
