#include "lib/server/openai_format.h"

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

void Usage::add(size_t prompt, const ChoiceEnd& choice) {
  const runtime::RequestEnd& end = choice.result;
  reasoning_ += choice.reasoning_tokens;
  // The first of its choices computed it; the others may have found it in the cache.
  prompts_.resize(std::max(prompts_.size(), prompt + 1));
  Prompt& of = prompts_[prompt];
  of.cached = of.tokens == 0 ? end.cached_tokens : std::min(of.cached, end.cached_tokens);
  of.tokens = end.prompt_tokens;
  completion_ += end.completion_tokens;
  prompt_seconds_ = std::max(prompt_seconds_, end.prompt_seconds);
  decode_seconds_ = std::max(decode_seconds_, end.decode_seconds);
  queue_seconds_ = std::max(queue_seconds_, end.queue_seconds);
  if (cache_miss_.empty()) cache_miss_ = end.cache_miss;
}

Usage::Prompt Usage::prompts() const {
  Prompt all;
  for (const Prompt& prompt : prompts_) {
    all.tokens += prompt.tokens;
    all.cached += prompt.cached;
  }
  return all;
}

Json Usage::json() const {
  const Prompt prompt = prompts();
  Json json;
  json["prompt_tokens"] = prompt.tokens;
  json["completion_tokens"] = completion_;
  json["total_tokens"] = prompt.tokens + completion_;
  json["prompt_tokens_details"]["cached_tokens"] = prompt.cached;
  json["completion_tokens_details"]["reasoning_tokens"] = reasoning_;
  return json;
}

Json Usage::timings() const {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  const Prompt prompt = prompts();
  const int64_t computed = prompt.tokens - prompt.cached;
  const int64_t steps = std::max<int64_t>(0, completion_ - 1);
  Json json;
  json["queue_ms"] = queue_seconds_ * 1000;
  json["prompt_n"] = computed;
  json["prompt_ms"] = prompt_seconds_ * 1000;
  json["prompt_per_second"] = rate(computed, prompt_seconds_);
  json["predicted_n"] = completion_;
  json["predicted_ms"] = decode_seconds_ * 1000;
  json["predicted_per_second"] = rate(steps, decode_seconds_);
  json["cache_n"] = prompt.cached;
  json["cache_miss"] = cache_miss_;
  return json;
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
