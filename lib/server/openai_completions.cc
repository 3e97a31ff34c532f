// POST /v1/completions: plain prompts, as texts or as token ids.
#include <fmt/format.h>

#include <ctime>

#include "lib/server/answer_fields.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai_format.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxPrompts = 16;

class Completion final : public AnswerJob {
 public:
  Completion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
             std::vector<std::string> echoes)
      : AnswerJob(std::move(model), std::move(reply)),
        stream_(fields.stream),
        include_usage_(fields.include_usage),
        id_(new_id("cmpl-")),
        created_(std::time(nullptr)),
        echoes_(std::move(echoes)),
        parts_(echoes_.size()) {}

 private:
  struct Part {
    std::string text, finish_reason;
    std::vector<PieceLogprob> logprobs;
    size_t shown_bytes = 0;
  };

  Json envelope() const {
    Json json;
    json["id"] = id_;
    json["object"] = "text_completion";
    json["created"] = created_;
    json["model"] = model().id;
    json["system_fingerprint"] = "ktx-" KTX_VERSION;
    return json;
  }

  Json logprobs_json(Part& part, const std::vector<PieceLogprob>& list) const {
    if (list.empty()) return nullptr;
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    for (const PieceLogprob& item : list) {
      const std::string piece(model().tokenizer->piece(item.id));
      json["tokens"].push_back(piece);
      json["token_logprobs"].push_back(item.logprobs.logprob);
      Json top = Json::object();
      for (const runtime::TokenLogprob& best : item.logprobs.top) {
        top[dump(std::string(model().tokenizer->piece(best.id)))] = best.logprob;
      }
      Json plain = Json::object();
      for (const auto& [key, value] : top.items()) {
        plain[Json::parse(key, nullptr, false).get<std::string>()] = value;
      }
      json["top_logprobs"].push_back(std::move(plain));
      json["text_offset"].push_back(part.shown_bytes);
      part.shown_bytes += piece.size();
    }
    return json;
  }

  void chunk(size_t choice, const std::string& text, const Json& logprobs, const Json& finish) {
    Json json = envelope();
    json["choices"] = Json::array(
        {{{"text", text}, {"index", choice}, {"logprobs", logprobs}, {"finish_reason", finish}}});
    if (include_usage_) json["usage"] = nullptr;
    reply().write(sse(json));
  }

  void on_accepted() override {
    if (!stream_) return;
    reply().begin(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!echoes_[i].empty()) chunk(i, echoes_[i], nullptr, nullptr);
    }
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    if (stream_) {
      return chunk(choice, piece.text, logprobs_json(part, piece.logprobs), nullptr);
    }
    part.text += piece.text;
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(part.logprobs));
  }

  void on_choice_end(size_t choice, const ChoiceEnd& end) override {
    usage_.add(end);
    if (end.failed) {
      failed_ = end.error;
      return;
    }
    parts_[choice].finish_reason = end.finish_reason;
    if (stream_) chunk(choice, "", nullptr, end.finish_reason);
  }

  void on_all_ended() override {
    if (stream_) {
      if (failed_) {
        reply().write(sse(to_json(*failed_)));
      } else if (include_usage_) {
        Json json = envelope();
        json["choices"] = Json::array();
        json["usage"] = usage_.json();
        json["timings"] = usage_.timings();
        reply().write(sse(json));
      }
      reply().write("data: [DONE]\n\n");
      return reply().end();
    }
    if (failed_) return send_error(reply(), *failed_);
    Json json = envelope();
    json["choices"] = Json::array();
    for (size_t i = 0; i < parts_.size(); ++i) {
      Part& part = parts_[i];
      json["choices"].push_back({{"text", echoes_[i] + part.text},
                                 {"index", i},
                                 {"logprobs", logprobs_json(part, part.logprobs)},
                                 {"finish_reason", part.finish_reason}});
    }
    json["usage"] = usage_.json();
    json["timings"] = usage_.timings();
    reply().send(200, "application/json", dump(json));
  }

  void on_refused(const ApiError& error) override { send_error(reply(), error); }

  const bool stream_, include_usage_;
  const std::string id_;
  const int64_t created_;
  const std::vector<std::string> echoes_;
  std::vector<Part> parts_;
  Usage usage_;
  std::optional<ApiError> failed_;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;
};

std::optional<ApiError> read_ids(const Json& list, const ServedModel& model, Prompt& prompt) {
  for (const Json& item : list) {
    const bool whole = item.is_number_integer();
    const int64_t id = whole && !(item.is_number_unsigned() && item.get<uint64_t>() > INT32_MAX)
                           ? item.get<int64_t>()
                           : -1;
    if (id < 0 || id >= model.tokenizer->size()) {
      return ApiError{400,
                      fmt::format("'prompt' has the token {}, expected 0 to {}", show(item),
                                  model.tokenizer->size() - 1),
                      "prompt", ""};
    }
    prompt.ids.push_back(static_cast<int32_t>(id));
  }
  prompt.text = model.tokenizer->decode(prompt.ids, true);
  return std::nullopt;
}

std::optional<ApiError> read_prompts(const Json* value, const ServedModel& model,
                                     std::vector<Prompt>& prompts) {
  const ApiError wrong{400,
                       "'prompt' must be a string, a list of strings, a list of token ids, or a "
                       "list of such lists",
                       "prompt", ""};
  if (value == nullptr) return ApiError{400, "'prompt' is missing", "prompt", ""};
  const auto from_text = [&](const std::string& text) {
    prompts.push_back({model.tokenizer->encode_prompt(text), text});
  };
  if (value->is_string()) {
    from_text(value->get<std::string>());
  } else if (!value->is_array() || value->empty()) {
    return wrong;
  } else if ((*value)[0].is_number()) {
    prompts.emplace_back();
    if (auto error = read_ids(*value, model, prompts.back())) return error;
  } else {
    if (value->size() > kMaxPrompts) {
      return ApiError{
          400,
          fmt::format("'prompt' has {} items, at most {} are possible", value->size(), kMaxPrompts),
          "prompt", ""};
    }
    for (const Json& item : *value) {
      if (item.is_string()) {
        from_text(item.get<std::string>());
      } else if (item.is_array()) {
        prompts.emplace_back();
        if (auto error = read_ids(item, model, prompts.back())) return error;
      } else {
        return wrong;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

void post_completions(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  Json body;
  if (const auto error = parse_body(request.body, body)) return send_error(*reply, *error);
  FieldReader in(body);
  AnswerFields fields = read_answer_fields(model, in);
  // OpenAI's default; llama.cpp's clients say n_predict.
  if (in.get("max_tokens") == nullptr && fields.max_tokens < 0 && in.get("n_predict") == nullptr) {
    fields.max_tokens = 16;
  }
  if (const auto top = in.maybe_whole("logprobs", 0, 20)) fields.logprobs = static_cast<int>(*top);
  const bool echo = in.flag("echo", false);
  const std::string name = in.text("model");
  if (!in.text("suffix").empty()) in.fail("suffix", "'suffix' is not supported");
  const int64_t best_of = in.whole("best_of", fields.n, 1, kMaxChoices);
  if (best_of != fields.n) in.fail("best_of", "'best_of' other than 'n' is not supported");
  if (in.error()) return send_error(*reply, *in.error());
  if (const auto error = check_model(model, name)) return send_error(*reply, *error);
  std::vector<Prompt> prompts;
  if (const auto error = read_prompts(in.get("prompt"), model, prompts)) {
    return send_error(*reply, *error);
  }
  std::vector<AnswerSpec> specs;
  std::vector<std::string> echoes;
  for (const Prompt& prompt : prompts) {
    if (const auto error = make_specs(model, fields, prompt.ids, context.request_seconds, specs)) {
      return send_error(*reply, *error);
    }
    echoes.resize(specs.size(), echo ? prompt.text : std::string());
  }
  std::make_shared<Completion>(context.model, reply, fields, std::move(echoes))
      ->start(std::move(specs));
}

}  // namespace ktx::server
