#include "lib/server/server_figures.h"

#include "lib/server/endpoints.h"
#include "lib/server/prometheus_text.h"

namespace ktx::server {
namespace {

constexpr size_t kMostKeys = 200;
constexpr int kClientLeft = 499;  // as nginx counts clients that left before the answer began

std::string route_label(const HttpLogEntry& entry) {
  HttpRequest request;
  request.method = entry.method;
  request.path = entry.path;
  const RouteMatch match = find_route(request);
  return match.route != nullptr ? match.route->path : "other";
}

}  // namespace

ServerFigures::OfKey& ServerFigures::of_key(const std::string& key) {
  const bool known = keys_.contains(key);
  return keys_[known || keys_.size() < kMostKeys ? key : "other"];
}

void ServerFigures::add(const HttpLogEntry& entry) {
  const int status = entry.status > 0 ? entry.status : kClientLeft;
  std::string route = route_label(entry);
  const std::lock_guard lock(mutex_);
  ++responses_[{std::move(route), status}];
  seconds_.add(entry.seconds);
  const HttpFigures& figures = entry.figures;
  if (figures.key.empty()) return;
  OfKey& key = of_key(figures.key);
  ++key.requests;
  key.refused += status == 429;
  key.prompt_tokens += figures.prompt_tokens;
  key.cached_tokens += figures.cached_tokens;
  key.completion_tokens += figures.completion_tokens;
}

void ServerFigures::write(PrometheusText& out) const {
  const std::lock_guard lock(mutex_);
  out.begin("http_responses_total", "counter", "Answers by route and status.");
  for (const auto& [what, count] : responses_) {
    out.add({{"route", what.first}, {"status", std::to_string(what.second)}},
            static_cast<double>(count));
  }
  out.begin("http_response_seconds", "histogram", "From a whole request to the end of its answer.");
  out.add({}, seconds_);
  if (keys_.empty()) return;
  const auto each = [&](std::string_view name, std::string_view help, int64_t OfKey::*value) {
    out.begin(name, "counter", help);
    for (const auto& [key, figures] : keys_) {
      out.add({{"key", key}}, static_cast<double>(figures.*value));
    }
  };
  each("key_requests_total", "Answers to requests with this key.", &OfKey::requests);
  each("key_refused_total", "Requests with this key that got 429.", &OfKey::refused);
  each("key_prompt_tokens_total", "Tokens of prompts with this key.", &OfKey::prompt_tokens);
  each("key_cached_tokens_total", "Prompt tokens with this key that were found in the cache.",
       &OfKey::cached_tokens);
  each("key_completion_tokens_total", "Tokens answered to this key.", &OfKey::completion_tokens);
}

}  // namespace ktx::server
