// POST /v1/completions: plain prompts, as texts or as token ids.
#include <fmt/format.h>

#include "lib/server/endpoints.h"
#include "lib/server/openai_answer.h"
#include "lib/server/resumed_slot.h"
#include "lib/server/text_input.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxPrompts = 16;

// A key must be text, which a token need not be: other bytes become U+FFFD.
std::string valid_text(std::string_view bytes) {
  return Json::parse(dump(std::string(bytes))).get<std::string>();
}

class Completion final : public OpenAiAnswer {
 public:
  Completion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
             std::vector<std::string> echoes)
      : OpenAiAnswer(std::move(model), std::move(reply), fields, "cmpl-",
                     {"text_completion", "text_completion"}, echoes.size()),
        echoes_(std::move(echoes)),
        parts_(echoes_.size()) {
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i].shown_bytes = echoes_[i].size();
  }

 private:
  struct Part {
    std::string text;
    std::vector<PieceLogprob> logprobs;
    size_t shown_bytes = 0;
  };

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
        top[valid_text(model().tokenizer->piece(best.id))] = best.logprob;
      }
      json["top_logprobs"].push_back(std::move(top));
      json["text_offset"].push_back(part.shown_bytes);
      part.shown_bytes += piece.size();
    }
    return json;
  }

  static Json entry(size_t choice, const std::string& text, Json logprobs, Json finish) {
    return Json{{"text", text},
                {"index", choice},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", std::move(finish)}};
  }

  void begin_stream() override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!echoes_[i].empty()) chunk(entry(i, echoes_[i], nullptr, nullptr));
    }
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    if (stream()) {
      return chunk(entry(choice, piece.text, logprobs_json(part, piece.logprobs), nullptr),
                   piece.so_far);
    }
    part.text += piece.text;
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(part.logprobs));
  }

  void end_stream(size_t choice) override {
    Json last = entry(choice, "", nullptr, finish_reason(choice));
    last["id_slot"] = slot(choice);
    chunk(std::move(last));
  }

  Json whole_choice(size_t choice) override {
    Part& part = parts_[choice];
    Json whole = entry(choice, echoes_[choice] + part.text, logprobs_json(part, part.logprobs),
                       finish_reason(choice));
    whole["id_slot"] = slot(choice);
    return whole;
  }

  const std::vector<std::string> echoes_;
  std::vector<Part> parts_;
};

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
  if (!in.text("suffix").empty()) in.fail("suffix", "'suffix' is not supported");
  const int64_t best_of = in.whole("best_of", fields.n, 1, kMaxChoices);
  if (best_of != fields.n) in.fail("best_of", "'best_of' other than 'n' is not supported");
  const std::optional<int64_t> slot = read_resume_slot(model, in);
  if (in.error()) return send_error(*reply, *in.error());
  std::vector<TextInput> prompts;
  runtime::SlotText resumed;
  const auto read = [&] {
    return slot ? read_resumed(context, body, "prompt", *slot, in, fields, resumed)
                : read_texts(in.get("prompt"), "prompt", kMaxPrompts, model, prompts);
  };
  if (const auto error = read()) return send_error(*reply, *error);
  if (slot) prompts.push_back({resumed.tokens, model.tokenizer->decode(resumed.tokens, true)});
  std::vector<AnswerSpec> specs;
  std::vector<std::string> echoes;
  for (const TextInput& prompt : prompts) {
    if (const auto error = make_specs(context, fields, prompt.ids, specs)) {
      return send_error(*reply, *error);
    }
    echoes.resize(specs.size(), echo ? prompt.text : std::string());
  }
  if (slot) go_on(resumed, specs[0]);
  std::make_shared<Completion>(context.model, reply, fields, std::move(echoes))
      ->start(std::move(specs));
}

}  // namespace ktx::server
