// POST /completion and /infill: llama.cpp's own protocol.
//
// /infill puts the text around a gap in the order that models of code were trained on:
//
//   <prefix> input_prefix prompt <suffix> input_suffix <middle>
//
// with other files (`input_extra`) in front.
#include <fmt/format.h>

#include "lib/server/endpoints.h"
#include "lib/server/native/native_answer.h"
#include "lib/server/request/text_input.h"

namespace ktx::server {
namespace {

constexpr size_t kMaxNativePrompts = 16;
constexpr size_t kMaxExtra = 256;

struct FimRow {
  const char *prefix, *suffix, *middle, *repository, *file;
};
constexpr FimRow kFim[] = {
#define KTX_FIM_TOKENS(prefix, suffix, middle, repository, file) \
  {prefix, suffix, middle, repository, file},
#include "lib/server/models/fim_tokens.def"
};

struct FimTokens {
  int32_t prefix, suffix, middle;
  std::optional<int32_t> repository, file;
};

std::optional<FimTokens> fim_tokens(const text::Tokenizer& tokenizer) {
  for (const FimRow& row : kFim) {
    const auto prefix = tokenizer.find(row.prefix), suffix = tokenizer.find(row.suffix),
               middle = tokenizer.find(row.middle);
    if (!prefix || !suffix || !middle) continue;
    const auto maybe = [&](const char* name) {
      return *name == '\0' ? std::optional<int32_t>() : tokenizer.find(name);
    };
    return FimTokens{*prefix, *suffix, *middle, maybe(row.repository), maybe(row.file)};
  }
  return std::nullopt;
}

void append(std::vector<int32_t>& to, const std::vector<int32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Other files: each behind a token for files, or a line that models see in prose.
void append_extra(const text::Tokenizer& tokenizer, const FimTokens& fim, const Json& extra,
                  std::vector<int32_t>& ids) {
  if (extra.empty()) return;
  if (fim.repository) {
    ids.push_back(*fim.repository);
    append(ids, tokenizer.encode("project\n"));
  }
  for (const Json& file : extra) {
    const std::string name = string_or(file, "filename", "");
    if (fim.file) {
      ids.push_back(*fim.file);
      append(ids, tokenizer.encode(name + "\n"));
    } else {
      append(ids,
             tokenizer.encode(fmt::format("\n\n--- {} ---\n\n", name.empty() ? "file" : name)));
    }
    append(ids, tokenizer.encode(file["text"].get_ref<const std::string&>()));
  }
  if (fim.file) {
    ids.push_back(*fim.file);
    append(ids, tokenizer.encode("file\n"));
  }
}

const Json* read_extra(FieldReader& in) {
  const Json* extra = in.list("input_extra");
  if (extra == nullptr) return nullptr;
  if (extra->size() > kMaxExtra) {
    in.fail("input_extra", fmt::format("'input_extra' has {} items, at most {} are possible",
                                       extra->size(), kMaxExtra));
  }
  for (const Json& file : *extra) {
    const bool named =
        file.is_object() &&
        (!file.contains("filename") || file["filename"].is_null() || file["filename"].is_string());
    if (!named || !file.contains("text") || !file["text"].is_string()) {
      in.fail("input_extra", "'input_extra' has an item that is no {\"filename\", \"text\"}");
      break;
    }
  }
  return extra;
}

}  // namespace

ApiStatus post_completion(const ServerContext& context, const HttpRequest& request,
                          const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  NativeFields fields = read_native_fields(model, in);
  KTX_TRY(in.status());
  const std::vector<TextInput> prompts = KTX_TRY(read_texts(
      in.get("prompt"), "prompt", kMaxNativePrompts, model, Spelled::Tokens, context.asker.get()));
  fields.list = prompts.size() > 1;
  return answer_natively(context, reply, fields, prompts);
}

ApiStatus post_infill(const ServerContext& context, const HttpRequest& request,
                      const HttpReplyPtr& reply) {
  const ServedModel& model = *context.model;
  const text::Tokenizer& tokenizer = *model.tokenizer;
  const Json body = KTX_TRY(parse_body(request.body));
  FieldReader in(body);
  const NativeFields fields = read_native_fields(model, in);
  const std::string before = in.text("input_prefix"), behind = in.text("input_suffix");
  const std::string begun = in.text("prompt");
  const Json* extra = read_extra(in);
  KTX_TRY(in.status());
  const std::optional<FimTokens> fim = fim_tokens(tokenizer);
  if (!fim) {
    return ApiError{501,
                    "this model has no tokens to fill in the middle; /completion "
                    "goes on with a text",
                    "", "not_supported"};
  }
  std::vector<std::pair<const char*, const std::string*>> sizes = {
      {"input_prefix", &before}, {"prompt", &begun}, {"input_suffix", &behind}};
  if (extra != nullptr) {
    for (const Json& file : *extra) {
      sizes.emplace_back("input_extra", &file["text"].get_ref<const std::string&>());
    }
  }
  for (const auto& [name, text] : sizes) {
    KTX_TRY(check_size(model, name, text->size()));
  }
  std::vector<int32_t> prefix = tokenizer.encode(before + begun);
  std::vector<int32_t> suffix = tokenizer.encode(behind);
  // What is nearest to the gap stays: three quarters of the context before it, a quarter behind.
  const auto room = static_cast<size_t>(model.scheduler->capacity()) / 4;
  if (prefix.size() + suffix.size() > 3 * room) {
    const size_t kept = std::min(suffix.size(), room / 2);
    suffix.resize(kept);
    const size_t left = std::min(prefix.size(), 3 * room - kept);
    prefix.erase(prefix.begin(), prefix.end() - static_cast<ptrdiff_t>(left));
  }
  std::vector<int32_t> ids = tokenizer.encode("", {.add_bos = tokenizer.data().add_bos});
  if (extra != nullptr) append_extra(tokenizer, *fim, *extra, ids);
  ids.push_back(fim->prefix);
  append(ids, prefix);
  ids.push_back(fim->suffix);
  append(ids, suffix);
  ids.push_back(fim->middle);
  return answer_natively(context, reply, fields, {TextInput{ids, {}, ""}});
}

}  // namespace ktx::server
