// POST /rerank, /reranking, /v1/rerank and /v1/reranking: how well documents answer a query.
//
// Requests are Jina's and Cohere's (`documents`, results under `results` with `relevance_score`),
// as llama.cpp takes them, or those of text-embeddings-inference (`texts`, a bare list with
// `score`). The model reads each document together with the query: by its own template ("rerank"),
// or joined as encoders of pairs were trained.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/server/answer/answer_fields.h"
#include "lib/server/answer/embedding_job.h"
#include "lib/server/endpoints.h"
#include "lib/server/request/lora_field.h"
#include "lib/server/request/text_input.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxDocuments = 2048;

// A text with a name in braces for what is put there.
constexpr std::string_view kQuery = "{query}", kDocument = "{document}";

std::vector<int32_t> fill_template(const text::Tokenizer& tokenizer, std::string_view form,
                                   std::string_view query, std::string_view document) {
  text::MarkedText pair;
  while (!form.empty()) {
    const size_t at = std::min(form.find(kQuery), form.find(kDocument));
    pair.text += form.substr(0, at);
    if (at == form.npos) break;
    const bool is_query = form.substr(at).starts_with(kQuery);
    const size_t begin = pair.text.size();
    pair.text += is_query ? query : document;
    text::add_span(pair.outside, begin, pair.text.size());
    form.remove_prefix(at + (is_query ? kQuery : kDocument).size());
  }
  return tokenizer.encode(pair.text, {.parse_special = true, .outside = pair.outside});
}

// What the model reads; empty: the plan does not say how.
std::vector<int32_t> pair_tokens(const ServedModel& model, const std::string& query,
                                 const std::string& document) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  const auto& named = model.engine->plan().chat_template.named;
  if (const auto form = named.find("rerank"); form != named.end()) {
    return fill_template(tokenizer, form->second, query, document);
  }
  const text::TokenizerData& data = tokenizer.data();
  if (!data.of_encoder() || data.ids.bos < 0 || data.ids.eos < 0) return {};
  // [CLS] query [SEP] document [SEP] of BERT, <s> query </s></s> document </s> of RoBERTa.
  std::vector<int32_t> ids = {data.ids.bos};
  const auto add = [&](const std::string& text) {
    const std::vector<int32_t> part = tokenizer.encode(text);
    ids.insert(ids.end(), part.begin(), part.end());
    ids.push_back(data.ids.eos);
  };
  add(query);
  if (data.kind == text::TokenizerKind::Unigram) ids.push_back(data.ids.eos);
  add(document);
  return ids;
}

// One score as it is, or of yes and no the share of yes.
double relevance(const std::vector<float>& scores) {
  if (scores.size() != 2) return scores.empty() ? 0 : scores[0];
  return 1 / (1 + std::exp(double{scores[1]} - scores[0]));
}

// Texts, or objects with a `text`.
std::vector<std::string> read_documents(FieldReader& in, const char* name) {
  std::vector<std::string> documents;
  const Json* list = in.list(name);
  if (!in.status()) return {};
  if (list == nullptr || list->empty()) {
    in.fail(name, fmt::format("'{}' must be a list of at least one text", name));
    return {};
  }
  if (list->size() > kMaxDocuments) {
    in.fail(name, fmt::format("'{}' has {} texts, at most {} are possible", name, list->size(),
                              kMaxDocuments));
    return {};
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& item = (*list)[i];
    const Json* text = item.is_object() && item.contains("text") ? &item["text"] : &item;
    if (!text->is_string()) {
      in.fail(name, fmt::format("'{}[{}]' is {}, expected a text", name, i, show(item)));
      return {};
    }
    documents.push_back(text->get<std::string>());
  }
  return documents;
}

struct Rerank {
  std::vector<std::string> documents;
  std::string id;
  size_t top_n = 0;
  bool plain = false;  // the form of text-embeddings-inference
  bool with_texts = false;
};

Json rerank_answer(const Rerank& asked, const EmbeddingJob::Outcome& outcome) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < outcome.vectors.size(); ++i) {
    order.emplace_back(relevance(outcome.vectors[i]), i);
  }
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
  order.resize(std::min(order.size(), asked.top_n));
  Json results = Json::array();
  for (const auto& [score, i] : order) {
    Json item = {{"index", i}, {asked.plain ? "score" : "relevance_score", score}};
    if (asked.with_texts && asked.plain) item["text"] = asked.documents[i];
    if (asked.with_texts && !asked.plain) item["document"] = {{"text", asked.documents[i]}};
    results.push_back(std::move(item));
  }
  if (asked.plain) return results;
  return {{"object", "list"},
          {"model", asked.id},
          {"usage", {{"prompt_tokens", outcome.tokens}, {"total_tokens", outcome.tokens}}},
          {"results", std::move(results)}};
}

}  // namespace

ApiStatus post_rerank(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  if (model.facts().scores == 0) {
    return ApiError{501,
                    "this model has no head that scores texts; start the server with a "
                    "reranker, such as Qwen3-Reranker or bge-reranker",
                    "", "not_supported"};
  }
  FieldReader in(body);
  in.text("model");  // any is this one
  Rerank asked;
  asked.id = model.id;
  asked.plain = in.get("texts") != nullptr;
  const char* name = asked.plain ? "texts" : "documents";
  if (in.get("query") == nullptr) in.fail("query", "'query' is missing");
  const std::string query = in.text("query");
  asked.documents = read_documents(in, name);
  const auto count = static_cast<int64_t>(asked.documents.size());
  asked.top_n = static_cast<size_t>(in.whole("top_n", std::max<int64_t>(count, 1), 1, 1 << 20));
  asked.with_texts = in.flag(asked.plain ? "return_text" : "return_documents", false);
  const runtime::LoraChoice lora = lora_of(context, in);
  KTX_TRY(in.status());
  KTX_TRY(check_size(model, "query", query.size()));

  std::vector<std::vector<int32_t>> texts;
  const bool all = model.facts().encoder;  // others keep room for a token of an answer
  const auto most = static_cast<size_t>(model.scheduler->capacity() - (all ? 0 : 1));
  for (size_t i = 0; i < asked.documents.size(); ++i) {
    const std::string field = fmt::format("{}[{}]", name, i);
    KTX_TRY(check_size(model, field, asked.documents[i].size()));
    texts.push_back(pair_tokens(model, query, asked.documents[i]));
    if (texts.back().empty()) {
      return ApiError{501,
                      "the plan does not say how a query and a document are put "
                      "together: compile it from a GGUF that has "
                      "'tokenizer.chat_template.rerank'",
                      "", "not_supported"};
    }
    if (texts.back().size() > most) {
      return ApiError{400,
                      fmt::format("'{}' is too large: {} tokens with the query, at most "
                                  "{} are possible",
                                  field, texts.back().size(), most),
                      field, "context_length_exceeded"};
    }
  }
  const auto answer = [reply, asked = std::move(asked)](const EmbeddingJob::Outcome& outcome) {
    if (outcome.error) return send_error(*reply, *outcome.error);
    reply->send(200, "application/json", dump(rerank_answer(asked, outcome)));
  };
  std::make_shared<EmbeddingJob>(context.model, reply, answer, runtime::Pooling::Scores, false)
      ->start(std::move(texts), 0, context, lora);
  return {};
}

}  // namespace ktx::server
