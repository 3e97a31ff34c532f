// POST /v1/completions: plain prompts, as texts or as token ids.
//
// With `echo` and `logprobs` the prompt's own tokens have log-probabilities, too, by which
// evaluation harnesses score choices.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/server/answer/resumed_slot.h"
#include "lib/server/endpoints.h"
#include "lib/server/openai/openai_answer.h"
#include "lib/server/request/text_input.h"
#include "lib/text/utf8.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxPrompts = 256;
// For one request: an answer has a number and a name for each, some 100 bytes.
constexpr size_t kMaxPromptLogprobs = 2'000'000;

// A token as text, by which clients distinguish tokens: one that is no text, or that has the text
// of another one, is "bytes:\xe4\xbd", as with OpenAI.
std::string token_name(const text::Tokenizer& tokenizer, int32_t id) {
  const std::string_view piece = tokenizer.piece(id);
  const bool is_text = text::valid_utf8_prefix(piece) == piece.size();
  const bool other =
      tokenizer.type(id) == text::TokenType::Byte && tokenizer.find(piece).has_value();
  if (is_text && !other) return std::string(piece);
  std::string name = "bytes:";
  for (const char byte : piece) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return name;
}

// How a prompt's tokens stand in its text: SentencePiece puts a space in front, and a token in
// front of all (BOS) is not in it.
std::string_view piece_in(std::string_view rest, std::string_view piece, bool first) {
  if (first && piece.starts_with(' ') && !rest.starts_with(piece)) piece.remove_prefix(1);
  return piece;
}

class Completion final : public OpenAiAnswer {
 public:
  Completion(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const AnswerFields& fields,
             std::vector<std::string> echoes)
      : OpenAiAnswer(std::move(model), std::move(reply), fields, "cmpl-",
                     {"text_completion", "text_completion"}, echoes.size()),
        echoes_(std::move(echoes)),
        parts_(echoes_.size()) {
    for (size_t i = 0; i < parts_.size() && !fields.prompt_logprobs; ++i) {
      parts_[i].shown_bytes = echoes_[i].size();
    }
    tells_prompt_ = fields.prompt_logprobs;
  }

 private:
  struct Part {
    std::string text;
    std::vector<PieceLogprob> logprobs;
    size_t shown_bytes = 0;
    std::string_view echo;  // where its tokens are listed, too
  };

  Json logprobs_json(Part& part, const std::vector<PieceLogprob>& list) const {
    if (list.empty()) return nullptr;
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    const text::Tokenizer& tokenizer = *model().tokenizer;
    for (const PieceLogprob& item : list) {
      json["text_offset"].push_back(part.shown_bytes);
      if (std::isnan(item.logprobs.logprob)) {  // the first token of a prompt
        json["token_logprobs"].push_back(nullptr);
        json["top_logprobs"].push_back(nullptr);
      } else {
        json["token_logprobs"].push_back(item.logprobs.logprob);
        json["top_logprobs"].push_back(top_json(item.logprobs.top));
      }
      std::string name = token_name(tokenizer, item.id);
      const std::string_view piece = tokenizer.piece(item.id);
      // In the prompt's text.
      const size_t at = part.shown_bytes;
      const std::string_view echo = part.echo;
      if (at < echo.size()) {
        const std::string_view shown = piece_in(echo.substr(at), piece, at == 0);
        if (shown.size() < piece.size() && name == piece) name = shown;
        if (at == 0 && !echo.starts_with(shown)) {
          json["tokens"].push_back(std::move(name));
          continue;
        }
        part.shown_bytes += shown.size();
      } else {
        part.shown_bytes += piece.size();
      }
      json["tokens"].push_back(std::move(name));
    }
    return json;
  }

  Json top_json(const std::vector<runtime::TokenLogprob>& list) const {
    Json top = Json::object();
    for (const runtime::TokenLogprob& best : list) {
      std::string name = token_name(*model().tokenizer, best.id);
      if (top.contains(name)) name = fmt::format("token_id:{}", best.id);
      top[name] = best.logprob;
    }
    return top;
  }

  static Json entry(size_t choice, const std::string& text, Json logprobs, Json finish) {
    return Json{{"text", text},
                {"index", choice},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", std::move(finish)}};
  }

  void begin_stream() override {
    for (size_t i = 0; i < parts_.size() && !tells_prompt_; ++i) {
      if (!echoes_[i].empty()) chunk(entry(i, echoes_[i], nullptr, nullptr));
    }
  }

  void on_prompt(size_t choice, std::vector<PieceLogprob> logprobs) override {
    Part& part = parts_[choice];
    part.echo = echoes_[choice];
    if (stream())
      return chunk(entry(choice, echoes_[choice], logprobs_json(part, logprobs), nullptr));
    part.logprobs = std::move(logprobs);
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
  bool tells_prompt_ = false;
};

}  // namespace

ApiStatus post_completions(const ServerContext& context, const HttpRequest& request,
                           const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  AnswerFields fields = read_answer_fields(model, in);
  // OpenAI's default; llama.cpp's clients say n_predict.
  if (in.get("max_tokens") == nullptr && fields.max_tokens < 0 && in.get("n_predict") == nullptr) {
    fields.max_tokens = 16;
  }
  if (const auto top = in.maybe_whole("logprobs", 0, 20)) fields.logprobs = static_cast<int>(*top);
  const bool echo = in.flag("echo", false);
  fields.prompt_logprobs = echo && fields.logprobs >= 0;
  if (!in.text("suffix").empty()) in.fail("suffix", "'suffix' is not supported");
  const int64_t best_of = in.whole("best_of", fields.n, 1, kMaxChoices);
  if (best_of != fields.n) in.fail("best_of", "'best_of' other than 'n' is not supported");
  const std::optional<int64_t> slot = read_resume_slot(model, in);
  if (slot && fields.prompt_logprobs) {
    in.fail("echo", "'echo' with 'logprobs' cannot go on with a slot; leave one of them out");
  }
  KTX_TRY(in.status());
  std::vector<TextInput> prompts;
  runtime::SlotText resumed;
  if (slot) {
    KTX_TRY(read_resumed(context, body, "prompt", *slot, in, fields, resumed));
  } else {
    prompts = KTX_TRY(read_texts(in.get("prompt"), "prompt", kMaxPrompts, model));
  }
  size_t numbers = 0;
  for (const TextInput& prompt : prompts) {
    numbers += prompt.ids.size() * static_cast<size_t>(fields.n) *
               static_cast<size_t>(1 + std::max(fields.logprobs, 0));
  }
  if (fields.prompt_logprobs && numbers > kMaxPromptLogprobs) {
    return ApiError{400,
                    fmt::format("'echo' with 'logprobs' would tell {} numbers, at most "
                                "{} are possible; send fewer prompts at once",
                                numbers, kMaxPromptLogprobs),
                    "echo", ""};
  }
  if (slot) prompts.push_back({resumed.tokens, {}, model.tokenizer->decode(resumed.tokens, true)});
  std::vector<AnswerSpec> specs;
  std::vector<std::string> echoes;
  for (const TextInput& prompt : prompts) {
    KTX_TRY(make_specs(context, fields, prompt.ids, specs));
    echoes.resize(specs.size(), echo ? prompt.text : std::string());
  }
  if (slot) go_on(resumed, specs[0]);
  std::make_shared<Completion>(context.model, reply, fields, std::move(echoes))
      ->start(std::move(specs));
  return {};
}

}  // namespace ktx::server
