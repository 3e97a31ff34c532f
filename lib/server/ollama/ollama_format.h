// The parts of Ollama's answers that its endpoints share.
#pragma once

#include <chrono>
#include <string>

#include "lib/server/answer/answer_job.h"
#include "lib/server/http/json_fields.h"

namespace ktx::server {

// "2026-01-02T03:04:05.678901Z".
std::string rfc3339(std::chrono::system_clock::time_point time);

// {"error": "..."}.
void send_ollama_error(HttpReply& reply, const ApiError& error);

// done_reason, the durations in nanoseconds, and the counts of an answer that ended.
void add_ollama_end(Json& json, const ServedModel& model, const ChoiceEnd& end);

// "details" of a model: family, sizes, format. `model` (may be null): where it is loaded.
Json ollama_details(const PlanSummary& summary, const ServedModel* model);
// "NAME:latest".
std::string ollama_name(const std::string& name);

}  // namespace ktx::server
