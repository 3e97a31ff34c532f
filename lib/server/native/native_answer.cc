#include "lib/server/native/native_answer.h"

#include <cmath>
#include <utility>

#include "lib/server/openai/openai_format.h"
#include "lib/server/request/sampling_fields.h"

namespace ktx::server {
namespace {

// Tokens whose bias is listed one by one.
Json bias_json(const ServedModel& model, const AnswerFields& fields) {
  Json list = Json::array();
  for (const auto& [id, bias] : fields.sampling.logit_bias) {
    list.push_back({{"token", id}, {"bias", std::isinf(bias) ? Json() : decimal(bias)}});
  }
  // That is how llama.cpp ignores them.
  for (int32_t id = 0; fields.ignore_eos && id < model.tokenizer->size(); ++id) {
    if (model.tokenizer->is_eog(id)) list.push_back({{"token", id}, {"bias", nullptr}});
  }
  return list;
}

std::string_view stop_type(const ChoiceEnd& end) {
  if (!end.stop_string.empty()) return "word";
  return end.finish_reason == "length" ? "limit" : "eos";
}

// {"id", "token", "bytes", "logprob", "top_logprobs"}, or with probabilities.
Json probabilities_json(const ServedModel& model, const std::vector<PieceLogprob>& list,
                        bool sampled) {
  const auto token = [&](int32_t id, double logprob) {
    const std::string_view piece = model.tokenizer->piece(id);
    Json bytes = Json::array();
    for (const char byte : piece) bytes.push_back(static_cast<uint8_t>(byte));
    Json json = {{"id", id}, {"token", std::string(piece)}, {"bytes", std::move(bytes)}};
    if (sampled) {
      json["prob"] = std::exp(logprob);
    } else {
      json["logprob"] = std::isfinite(logprob) ? Json(logprob) : Json(-1e9);
    }
    return json;
  };
  Json out = Json::array();
  for (const PieceLogprob& item : list) {
    Json entry = token(item.id, item.logprobs.logprob);
    Json& top = entry[sampled ? "top_probs" : "top_logprobs"] = Json::array();
    for (const runtime::TokenLogprob& best : item.logprobs.top) {
      top.push_back(token(best.id, best.logprob));
    }
    out.push_back(std::move(entry));
  }
  return out;
}

// Only the fields of these paths, under the whole path as their name.
Json only(const Json& whole, const std::vector<std::string>& paths) {
  if (paths.empty()) return whole;
  Json some = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &whole;
    for (size_t begin = 0; at != nullptr && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto found = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = at->is_object() && found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) some[path] = *at;
  }
  return some;
}

class NativeAnswer final : public AnswerJob {
 public:
  NativeAnswer(std::shared_ptr<ServedModel> model, HttpReplyPtr reply, const NativeFields& fields,
               std::vector<NativeRequest> requests)
      : AnswerJob(std::move(model), std::move(reply)),
        fields_(fields),
        requests_(std::move(requests)),
        parts_(requests_.size()) {}

 private:
  struct Part {
    std::string text;
    std::vector<int32_t> tokens;
    std::vector<PieceLogprob> logprobs;
    int64_t sent = 0;  // tokens of the answer
    bool has_new_line = false;
    Json whole;
  };

  bool stream() const { return fields_.answer.stream; }
  bool sampled() const { return fields_.answer.sampled_logprobs; }
  void event(const Json& json) { reply().write(sse(json)); }

  void on_accepted() override {
    if (stream()) reply().begin(200, kEventStream, stream_headers());
  }

  Json partial(size_t choice, const std::string& text, const std::vector<int32_t>& tokens) const {
    return {{"index", choice},
            {"content", text},
            {"tokens", tokens},
            {"stop", false},
            {"id_slot", fields_.answer.slot},
            {"tokens_predicted", parts_[choice].sent},
            {"tokens_evaluated", prompt_tokens()}};
  }

  void on_progress(size_t choice, const runtime::PromptProgress& progress) override {
    Json json = partial(choice, "", {});
    json["prompt_progress"] = progress_json(progress);
    event(json);
  }

  void on_piece(size_t choice, Piece piece) override {
    Part& part = parts_[choice];
    part.sent += static_cast<int64_t>(piece.tokens.size());
    part.has_new_line = part.has_new_line || piece.text.find('\n') != std::string::npos;
    if (!stream()) {
      part.text += piece.text;
      std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(part.tokens));
      std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(part.logprobs));
      return;
    }
    if (piece.tokens.empty() && piece.text.empty()) return;
    Json json = partial(choice, piece.text, piece.tokens);
    if (piece.so_far) {
      json["id_slot"] = piece.so_far->slot;
      json["timings"] = timings_json(*piece.so_far);
    }
    if (!piece.logprobs.empty()) {
      json["completion_probabilities"] = probabilities_json(model(), piece.logprobs, sampled());
    }
    event(json);
  }

  void on_choice_end(size_t choice, const ChoiceEnd& end) override {
    Part& part = parts_[choice];
    if (end.failed) {
      failed_ = end.error;
      return;
    }
    Json json = native_end(model(), choice, requests_[choice], std::move(part.text), part.tokens,
                           end, part.has_new_line);
    if (!part.logprobs.empty()) {
      json["completion_probabilities"] = probabilities_json(model(), part.logprobs, sampled());
    }
    if (stream()) return event(only(json, fields_.response_fields));
    part.whole = only(json, fields_.response_fields);
  }

  void on_all_ended() override {
    if (stream()) {
      if (failed_) event(to_json(*failed_));
      return reply().end();
    }
    if (failed_) return send_error(reply(), *failed_);
    Json all = Json::array();
    for (Part& part : parts_) all.push_back(std::move(part.whole));
    reply().send(200, "application/json", dump(fields_.list ? all : all[0]));
  }

  void on_refused(const ApiError& error) override { send_error(reply(), error); }

  const NativeFields fields_;
  const std::vector<NativeRequest> requests_;
  std::vector<Part> parts_;
  std::optional<ApiError> failed_;
};

}  // namespace

Json generation_settings(const ServedModel& model, const AnswerFields& fields,
                         const runtime::LoraChoice& lora) {
  const runtime::SamplingOptions& sampling = fields.sampling;
  Json json;
  json["seed"] = sampling.seed;
#define KTX_SAMPLING(name, member, low, high) json[name] = decimal(sampling.member);
#define KTX_SAMPLING_WHOLE(name, member, low, high) json[name] = sampling.member;
#include "lib/server/request/sampling_fields.def"
  json["mirostat"] = sampling.mirostat ? 2 : 0;
  // Not here, at the values that turn it off.
  json["adaptive_target"] = -1;
  json["adaptive_decay"] = 0.9;
  json["samplers"] = sampler_names();
  json["logit_bias"] = bias_json(model, fields);
  json["stop"] = fields.stop;
  json["max_tokens"] = fields.max_tokens;
  json["n_predict"] = fields.max_tokens;
  const runtime::ContextShift shift = fields.shift.value_or(runtime::ContextShift());
  json["n_keep"] = shift.keep;
  json["n_discard"] = shift.drop;
  json["min_keep"] = 0;
  json["ignore_eos"] = fields.ignore_eos;
  json["stream"] = fields.stream;
  json["n_probs"] = std::max(fields.logprobs, 0);
  json["post_sampling_probs"] = fields.sampled_logprobs;
  json["timings_per_token"] = fields.tell_times;
  json["grammar"] = fields.constraint.kind == Constraint::Kind::Gbnf ? fields.constraint.text : "";
  json["grammar_lazy"] = false;
  json["lora"] = Json::array();
  for (const runtime::LoraUse& use : lora) {
    json["lora"].push_back({{"id", use.adapter}, {"scale", decimal(use.scale)}});
  }
  return json;
}

Json native_end(const ServedModel& model, size_t index, const NativeRequest& request,
                std::string content, const std::vector<int32_t>& tokens, const ChoiceEnd& end,
                bool has_new_line) {
  const runtime::RequestEnd& result = end.result;
  Json json;
  json["index"] = index;
  json["content"] = std::move(content);
  json["tokens"] = request.return_tokens ? Json(tokens) : Json::array();
  json["id_slot"] = result.slot;
  json["stop"] = true;
  json["model"] = model.id;
  json["tokens_predicted"] = result.completion_tokens;
  json["tokens_evaluated"] = result.prompt_tokens;
  json["generation_settings"] = request.settings;
  json["prompt"] = request.prompt;
  json["has_new_line"] = has_new_line;
  json["truncated"] = result.reason == runtime::EndReason::ContextFull || result.dropped_tokens > 0;
  json["stop_type"] = stop_type(end);
  json["stopping_word"] = end.stop_string;
  json["tokens_cached"] = result.prompt_tokens + result.completion_tokens;
  json["timings"] = timings_json(result);
  return json;
}

NativeFields read_native_fields(const ServedModel& model, FieldReader& in) {
  NativeFields fields;
  fields.answer = read_answer_fields(model, in);
  fields.answer.logprobs = static_cast<int>(in.whole("n_probs", 0, 0, 1000));
  if (fields.answer.logprobs == 0) fields.answer.logprobs = -1;
  fields.answer.sampled_logprobs = in.flag("post_sampling_probs", false);
  fields.response_fields = in.texts("response_fields", 64);
  fields.return_tokens = in.flag("return_tokens", false);
  return fields;
}

ApiStatus answer_natively(const ServerContext& context, const HttpReplyPtr& reply,
                          const NativeFields& fields, const std::vector<TextInput>& prompts) {
  const ServedModel& model = *context.model;
  std::vector<AnswerSpec> specs;
  std::vector<NativeRequest> requests;
  const Json settings =
      generation_settings(model, fields.answer, fields.answer.own_lora.value_or(context.lora));
  for (const TextInput& prompt : prompts) {
    const size_t before = specs.size();
    KTX_TRY(make_specs(context, fields.answer, prompt.ids, specs));
    for (size_t i = before; i < specs.size(); ++i) specs[i].images = prompt.images;
    requests.resize(specs.size(),
                    {model.tokenizer->decode(prompt.ids, true), settings, fields.return_tokens});
  }
  NativeFields form = fields;
  form.list = fields.list || fields.answer.n > 1;
  std::make_shared<NativeAnswer>(context.model, reply, form, std::move(requests))
      ->start(std::move(specs));
  return {};
}

}  // namespace ktx::server
