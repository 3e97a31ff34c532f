#include "lib/server/ollama/ollama_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace ktx::server {

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = micros / 1000000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(seconds), micros % 1000000);
}

void send_ollama_error(HttpReply& reply, const ApiError& error) {
  reply.send(error.status, "application/json", dump(Json{{"error", error.message}}),
             error_headers(error));
}

void add_ollama_end(Json& json, const ServedModel& model, const ChoiceEnd& end) {
  const auto nanos = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  const runtime::RequestEnd& r = end.result;
  json["done_reason"] = end.finish_reason == "length" ? "length" : "stop";
  json["total_duration"] = nanos(r.queue_seconds + r.prompt_seconds + r.decode_seconds);
  json["load_duration"] = nanos(model.load_seconds);
  json["prompt_eval_count"] = r.prompt_tokens;
  json["prompt_eval_duration"] = nanos(r.prompt_seconds);
  json["eval_count"] = r.completion_tokens;
  json["eval_duration"] = nanos(r.decode_seconds);
  json["id_slot"] = r.slot;
}

Json ollama_details(const PlanSummary& summary, const ServedModel* model) {
  const plan::PlanFacts& facts = summary.facts;
  Json json;
  json["parent_model"] = "";
  json["format"] = "gguf";
  json["family"] = facts.architecture;
  json["families"] = Json::array({facts.architecture});
  const double billions = static_cast<double>(facts.parameters) / 1e9;
  json["parameter_size"] =
      billions >= 1 ? fmt::format("{:.1f}B", billions) : fmt::format("{:.1f}M", billions * 1000);
  json["quantization_level"] = summary.quantization;
  json["context_length"] = model != nullptr ? model->engine->ctx() : facts.default_ctx;
  json["embedding_length"] = facts.hidden_size;
  return json;
}

std::string ollama_name(const std::string& name) {
  return name.find(':') == std::string::npos ? name + ":latest" : name;
}

}  // namespace ktx::server
