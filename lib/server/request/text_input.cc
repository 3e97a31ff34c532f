#include "lib/server/request/text_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/server/request/chat_prompt_input.h"

namespace ktx::server {
namespace {

ApiError wrong_form(const std::string& name) {
  return {
      400,
      fmt::format("'{}' must be a string, a list of strings, a list of token ids and texts, or a "
                  "list of such lists",
                  name),
      name, ""};
}

ApiResult<TextInput> read_text(const std::string& given, const std::string& name,
                               const ServedModel& model, Spelled spelled) {
  KTX_TRY(check_size(model, name, given.size()));
  text::TextSpans outside;
  if (spelled == Spelled::Text) outside.push_back({0, given.size()});
  return TextInput{model.tokenizer->encode_prompt(given, outside), {}, given};
}

constexpr std::string_view kMediaMark = "<__media__>";

ApiResult<TextInput> read_seen(const std::string& text, const Json& data, const std::string& name,
                               const ServedModel& model, ImageAsker& asker) {
  KTX_TRY(check_size(model, name, text.size()));
  RequestImages images;
  std::string marks;
  for (size_t i = 0; i < data.size(); ++i) {
    const Json part = {{"data", data[i]}};
    KTX_TRY(images.add(part, fmt::format("{}.multimodal_data[{}]", name, i), marks));
  }
  const std::string& mark = model.facts().image.mark;
  std::string marked;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(kMediaMark, from)) != text.npos;) {
    marked.append(text, from, at - from).append(mark);
    from = at + kMediaMark.size();
  }
  marked.append(text, from);
  ChatPrompt prompt = KTX_TRY(make_plain_prompt(model, std::move(marked), images, asker));
  return TextInput{std::move(prompt.ids), std::move(prompt.images), std::move(prompt.text)};
}

// llama.cpp's {"prompt_string": "...", "multimodal_data": [...]}.
ApiResult<TextInput> read_parts(const Json& object, const std::string& name,
                                const ServedModel& model, Spelled spelled, ImageAsker* asker) {
  const auto string = object.find("prompt_string");
  if (string == object.end() || !string->is_string()) return wrong_form(name);
  const auto data = object.find("multimodal_data");
  const bool has_data = data != object.end() && !data->is_null() && *data != Json::array();
  if (has_data && data->is_array() && model.viewer && asker != nullptr) {
    return read_seen(string->get_ref<const std::string&>(), *data, name, model, *asker);
  }
  if (has_data) {
    return ApiError{400,
                    fmt::format("'{}' has images or sound ('multimodal_data'); {}", name,
                                !model.viewer      ? "this model reads text only"
                                : asker == nullptr ? "only texts are taken here"
                                                   : "expected a list of images"),
                    name, ""};
  }
  return read_text(string->get_ref<const std::string&>(), name, model, spelled);
}

// One text of token ids and texts; the first of these begins as a prompt does.
ApiResult<TextInput> read_ids(const Json& list, const std::string& name, const ServedModel& model) {
  TextInput text;
  size_t bytes = 0;
  for (const Json& item : list) {
    if (item.is_string()) {
      const std::string& part = item.get_ref<const std::string&>();
      bytes += part.size();
      KTX_TRY(check_size(model, name, bytes));
      const std::vector<int32_t> ids = text.ids.empty()
                                           ? model.tokenizer->encode_prompt(part)
                                           : model.tokenizer->encode(part, {.parse_special = true});
      text.ids.insert(text.ids.end(), ids.begin(), ids.end());
      continue;
    }
    const bool whole = item.is_number_integer();
    const int64_t id = whole && !(item.is_number_unsigned() && item.get<uint64_t>() > INT32_MAX)
                           ? item.get<int64_t>()
                           : -1;
    if (id < 0 || id >= model.tokenizer->size()) {
      return ApiError{400,
                      fmt::format("'{}' has the token {}, expected 0 to {}", name, show(item),
                                  model.tokenizer->size() - 1),
                      name, ""};
    }
    text.ids.push_back(static_cast<int32_t>(id));
  }
  text.text = model.tokenizer->decode(text.ids, true);
  text.of_ids = true;
  return text;
}

}  // namespace

ApiStatus check_size(const ServedModel& model, const std::string& name, size_t bytes) {
  constexpr int64_t kLeast = int64_t{4} << 20, kBytesPerToken = 16;
  const int64_t most = std::max(kLeast, kBytesPerToken * model.engine->ctx());
  if (static_cast<int64_t>(bytes) <= most) return {};
  return ApiError{400,
                  fmt::format("'{}' is a text of {} bytes, at most {} are read at once; send it "
                              "in parts",
                              name, bytes, most),
                  name, "context_length_exceeded"};
}

ApiResult<std::vector<TextInput>> read_texts(const Json* value, const std::string& name,
                                             size_t most, const ServedModel& model, Spelled spelled,
                                             ImageAsker* asker) {
  if (value == nullptr) return bad_place(name, "is missing");
  const auto read_one = [&](const Json& item) -> ApiResult<TextInput> {
    if (item.is_string()) {
      return read_text(item.get_ref<const std::string&>(), name, model, spelled);
    }
    if (item.is_object()) return read_parts(item, name, model, spelled, asker);
    if (item.is_array()) return read_ids(item, name, model);
    return wrong_form(name);
  };
  // Numbers are token ids: then the whole list is one text.
  const bool one = value->is_string() || value->is_object() ||
                   (value->is_array() &&
                    std::ranges::any_of(*value, [](const Json& item) { return item.is_number(); }));
  if (one) return std::vector<TextInput>{KTX_TRY(read_one(*value))};
  if (!value->is_array() || value->empty()) return wrong_form(name);
  if (value->size() > most) {
    return ApiError{
        400, fmt::format("'{}' has {} items, at most {} are possible", name, value->size(), most),
        name, ""};
  }
  std::vector<TextInput> texts;
  for (const Json& item : *value) texts.push_back(KTX_TRY(read_one(item)));
  return texts;
}

}  // namespace ktx::server
