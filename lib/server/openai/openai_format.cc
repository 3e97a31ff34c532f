#include "lib/server/openai/openai_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace ktx::server {

std::string new_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), random() & 0xFFFFFFFF);
}

std::string sse(const Json& event) {
  return "data: " + dump(event) + "\n\n";
}

std::string sse(std::string_view name, const Json& event) {
  return fmt::format("event: {}\ndata: {}\n\n", name, dump(event));
}

void send_input_tokens(HttpReply& reply, size_t tokens) {
  reply.send(200, "application/json",
             dump(Json{{"object", "response.input_tokens"}, {"input_tokens", tokens}}));
}

void Usage::add(size_t prompt, const ChoiceEnd& choice) {
  const runtime::RequestEnd& end = choice.result;
  reasoning_ += choice.reasoning_tokens;
  // The first of its choices computed it; the others may have found it in the cache.
  prompts_.resize(std::max(prompts_.size(), prompt + 1));
  Prompt& of = prompts_[prompt];
  of.cached = of.tokens == 0 ? end.cached_tokens : std::min(of.cached, end.cached_tokens);
  of.tokens = end.prompt_tokens;
  sum_.completion_tokens += end.completion_tokens;
  sum_.drafted_tokens += end.drafted_tokens;
  sum_.accepted_tokens += end.accepted_tokens;
  sum_.prompt_seconds = std::max(sum_.prompt_seconds, end.prompt_seconds);
  sum_.decode_seconds = std::max(sum_.decode_seconds, end.decode_seconds);
  sum_.queue_seconds = std::max(sum_.queue_seconds, end.queue_seconds);
  if (sum_.cache_miss.empty()) sum_.cache_miss = end.cache_miss;
  sum_.prompt_tokens = sum_.cached_tokens = 0;
  for (const Prompt& each : prompts_) {
    sum_.prompt_tokens += each.tokens;
    sum_.cached_tokens += each.cached;
  }
}

Json Usage::json() const {
  Json json;
  json["prompt_tokens"] = sum_.prompt_tokens;
  json["completion_tokens"] = sum_.completion_tokens;
  json["total_tokens"] = sum_.prompt_tokens + sum_.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = sum_.cached_tokens;
  json["completion_tokens_details"]["reasoning_tokens"] = reasoning_;
  return json;
}

Json Usage::timings() const {
  return timings_json(sum_);
}

Json timings_json(const runtime::RequestEnd& end) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const auto each = [](int64_t tokens, double seconds) {
    return tokens > 0 ? seconds * 1000 / static_cast<double>(tokens) : 0.0;
  };
  const int64_t computed = end.prompt_tokens - end.cached_tokens;
  const int64_t steps = std::max<int64_t>(0, end.completion_tokens - 1);
  Json json;
  json["queue_ms"] = end.queue_seconds * 1000;
  json["prompt_n"] = computed;
  json["prompt_ms"] = end.prompt_seconds * 1000;
  json["prompt_per_token_ms"] = each(computed, end.prompt_seconds);
  json["prompt_per_second"] = rate(computed, end.prompt_seconds);
  json["predicted_n"] = end.completion_tokens;
  json["predicted_ms"] = end.decode_seconds * 1000;
  json["predicted_per_token_ms"] = each(steps, end.decode_seconds);
  json["predicted_per_second"] = rate(steps, end.decode_seconds);
  json["cache_n"] = end.cached_tokens;
  json["cache_miss"] = end.cache_miss;
  if (end.drafted_tokens > 0) {
    json["draft_n"] = end.drafted_tokens;
    json["draft_n_accepted"] = end.accepted_tokens;
  }
  return json;
}

Json progress_json(const runtime::PromptProgress& progress) {
  return {{"total", progress.tokens},
          {"cache", progress.cached},
          {"processed", progress.computed},
          {"time_ms", progress.seconds * 1000}};
}

Json chat_logprobs(const ServedModel& model, const std::vector<PieceLogprob>& list) {
  const auto token = [&](int32_t id, double logprob) {
    const std::string_view piece = model.tokenizer->piece(id);
    Json json;
    json["token"] = std::string(piece);
    json["logprob"] = logprob;
    json["bytes"] = Json::array();
    for (const char byte : piece) json["bytes"].push_back(static_cast<uint8_t>(byte));
    return json;
  };
  Json content = Json::array();
  for (const PieceLogprob& item : list) {
    Json entry = token(item.id, item.logprobs.logprob);
    entry["top_logprobs"] = Json::array();
    for (const runtime::TokenLogprob& top : item.logprobs.top) {
      entry["top_logprobs"].push_back(token(top.id, top.logprob));
    }
    content.push_back(std::move(entry));
  }
  return Json{{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace ktx::server
