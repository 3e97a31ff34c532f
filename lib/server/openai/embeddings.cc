// POST /v1/embeddings (OpenAI), /embeddings (llama.cpp), /api/embed and /api/embeddings (Ollama).
#include <fmt/format.h>

#include <chrono>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/answer/embedding_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/http/base64.h"
#include "lib/server/ollama/ollama_format.h"
#include "lib/server/request/lora_field.h"
#include "lib/server/request/text_input.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxTexts = 2048;

std::string base64(const std::vector<float>& vector) {
  return to_base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
}

Json numbers(const std::vector<float>& vector) {
  Json list = Json::array();
  for (const float value : vector) list.push_back(decimal(value));
  return list;
}

// Checks the texts of any protocol, and takes their tokens.
ApiResult<std::vector<std::vector<int32_t>>> take_texts(const ServedModel& model,
                                                        std::vector<TextInput> texts,
                                                        bool truncate) {
  std::vector<std::vector<int32_t>> out;
  const bool all = model.facts().encoder;  // others keep room for a token of an answer
  const auto most = static_cast<size_t>(model.scheduler->capacity() - (all ? 0 : 1));
  for (TextInput& text : texts) {
    // Models of embeddings were trained with an end behind the text, also behind an empty one and
    // one that spells it. Token ids may have it already.
    const text::TokenizerData& tokens = model.tokenizer->data();
    const bool open = tokens.add_eos && tokens.ids.eos >= 0;
    const bool has_end = text.of_ids && !text.ids.empty() && text.ids.back() == tokens.ids.eos;
    if (open && !has_end) text.ids.push_back(tokens.ids.eos);
    if (text.ids.empty()) return ApiError{400, "'input' has an empty text", "input", ""};
    if (text.ids.size() > most) {
      if (!truncate) {
        return ApiError{400,
                        fmt::format("'input' has a text that is too large: {} tokens, at most {} "
                                    "are possible",
                                    text.ids.size(), most),
                        "input", "context_length_exceeded"};
      }
      text.ids.resize(most);
      if (open) text.ids.back() = tokens.ids.eos;
    }
    out.push_back(std::move(text.ids));
  }
  return out;
}

// Encoders were trained with their marks as they are spelled.
Spelled spelled_as(const ServedModel& model) {
  return model.facts().encoder || model.allow_control_tokens ? Spelled::Tokens : Spelled::Text;
}

int64_t read_dimensions(const ServedModel& model, FieldReader& in) {
  return in.whole("dimensions", 0, 1, model.engine->hidden_size());
}

// There is no place for a vector of each token in the other protocols.
void refuse_no_pooling(const ServedModel& model, FieldReader& in) {
  if (model.pooling != runtime::Pooling::None) return;
  in.fail("input", "with --pooling none there is a vector for each token; /embeddings has them");
}

}  // namespace

// llama.cpp's own form: a list of vectors for each text.
ApiStatus post_native_embeddings(const ServerContext& context, const HttpRequest& request,
                                 const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const char* name = in.get("input") != nullptr ? "input" : "content";
  // 2: length 1; -1: as they are. The others of llama.cpp are for its own tools.
  const int64_t normalized = in.whole("embd_normalize", 2, -1, 2);
  if (normalized == 0 || normalized == 1) {
    in.fail("embd_normalize", "'embd_normalize' must be 2 (length 1) or -1 (as they are)");
  }
  const runtime::LoraChoice lora = lora_of(context, in);
  KTX_TRY(in.status());
  std::vector<TextInput> texts =
      KTX_TRY(read_texts(in.get(name), name, kMaxTexts, model, spelled_as(model)));
  std::vector<std::vector<int32_t>> ids = KTX_TRY(take_texts(model, std::move(texts), false));
  const auto answer = [reply, width = static_cast<size_t>(model.engine->hidden_size())](
                          EmbeddingJob::Outcome outcome) {
    if (outcome.error) return send_error(*reply, *outcome.error);
    Json list = Json::array();
    for (const std::vector<float>& vector : outcome.vectors) {
      Json rows = Json::array();
      for (size_t at = 0; at < vector.size(); at += width) {
        rows.push_back(numbers({vector.begin() + static_cast<ptrdiff_t>(at),
                                vector.begin() + static_cast<ptrdiff_t>(at + width)}));
      }
      list.push_back({{"index", list.size()}, {"embedding", std::move(rows)}});
    }
    reply->send(200, "application/json", dump(list));
  };
  std::make_shared<EmbeddingJob>(context.model, reply, answer, model.pooling, normalized == 2)
      ->start(std::move(ids), 0, context, lora);
  return {};
}

ApiStatus post_embeddings(const ServerContext& context, const HttpRequest& request,
                          const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  in.text("model");  // any is this one
  refuse_no_pooling(model, in);
  const std::string format = in.text("encoding_format", "float");
  if (format != "float" && format != "base64") {
    in.fail("encoding_format",
            fmt::format("'encoding_format' is {}, expected float or base64", show(format)));
  }
  const int64_t dimensions = read_dimensions(model, in);
  const runtime::LoraChoice lora = lora_of(context, in);
  KTX_TRY(in.status());
  std::vector<TextInput> texts =
      KTX_TRY(read_texts(in.get("input"), "input", kMaxTexts, model, spelled_as(model)));
  std::vector<std::vector<int32_t>> ids = KTX_TRY(take_texts(model, std::move(texts), false));
  const auto answer = [reply, id = model.id,
                       as_text = format == "base64"](EmbeddingJob::Outcome outcome) {
    if (outcome.error) return send_error(*reply, *outcome.error);
    Json data = Json::array();
    for (const std::vector<float>& vector : outcome.vectors) {
      data.push_back({{"object", "embedding"},
                      {"index", data.size()},
                      {"embedding", as_text ? Json(base64(vector)) : numbers(vector)}});
    }
    const Json json = {
        {"object", "list"},
        {"data", std::move(data)},
        {"model", id},
        {"usage", {{"prompt_tokens", outcome.tokens}, {"total_tokens", outcome.tokens}}}};
    reply->send(200, "application/json", dump(json));
  };
  std::make_shared<EmbeddingJob>(context.model, reply, answer, model.pooling)
      ->start(std::move(ids), dimensions, context, lora);
  return {};
}

ApiStatus post_ollama_embed(const ServerContext& context, const HttpRequest& request,
                            const HttpReplyPtr& reply) {
  const auto begin = std::chrono::steady_clock::now();
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  // The older endpoint has one `prompt` and answers with one `embedding`.
  const bool old = request.path == "/api/embeddings";
  in.text("model");
  refuse_no_pooling(model, in);
  const bool truncate = in.flag("truncate", true);
  const int64_t dimensions = read_dimensions(model, in);
  const runtime::LoraChoice lora = lora_of(context, in);
  KTX_TRY(in.status());
  std::vector<std::vector<int32_t>> ids;
  const Json* input = in.get(old ? "prompt" : "input");
  // Ollama clients send an empty input to preload a model. It is loaded already.
  const bool none = input == nullptr || *input == "" || *input == Json::array();
  if (!none) {
    std::vector<TextInput> texts =
        KTX_TRY(read_texts(input, old ? "prompt" : "input", kMaxTexts, model, spelled_as(model)));
    ids = KTX_TRY(take_texts(model, std::move(texts), truncate));
  }
  const auto answer = [reply, old, begin, served = context.model](EmbeddingJob::Outcome outcome) {
    if (outcome.error) return send_ollama_error(*reply, *outcome.error);
    Json json = Json::object();
    if (old) {
      json["embedding"] = outcome.vectors.empty() ? Json::array() : numbers(outcome.vectors[0]);
    } else {
      const auto spent = std::chrono::steady_clock::now() - begin;
      json["model"] = ollama_name(served->id);
      json["embeddings"] = Json::array();
      for (const auto& vector : outcome.vectors) json["embeddings"].push_back(numbers(vector));
      json["total_duration"] = std::chrono::nanoseconds(spent).count();
      json["load_duration"] = 0;
      json["prompt_eval_count"] = outcome.tokens;
    }
    reply->send(200, "application/json", dump(json));
  };
  if (ids.empty()) {
    answer({});
    return {};
  }
  std::make_shared<EmbeddingJob>(context.model, reply, answer, model.pooling)
      ->start(std::move(ids), dimensions, context, lora);
  return {};
}

}  // namespace ktx::server
