#include "lib/server/text_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace ktx::server {
namespace {

std::optional<ApiError> read_ids(const Json& list, const std::string& name,
                                 const ServedModel& model, TextInput& text) {
  for (const Json& item : list) {
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
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> check_size(const ServedModel& model, const std::string& name,
                                   std::string_view text) {
  constexpr int64_t kLeast = int64_t{4} << 20, kBytesPerToken = 16;
  const int64_t most = std::max(kLeast, kBytesPerToken * model.engine->ctx());
  if (static_cast<int64_t>(text.size()) <= most) return std::nullopt;
  return ApiError{400,
                  fmt::format("'{}' is a text of {} bytes, at most {} are read at once; send it "
                              "in parts",
                              name, text.size(), most),
                  name, "context_length_exceeded"};
}

std::optional<ApiError> read_texts(const Json* value, const std::string& name, size_t most,
                                   const ServedModel& model, std::vector<TextInput>& texts) {
  const ApiError wrong{400,
                       fmt::format("'{}' must be a string, a list of strings, a list of token "
                                   "ids, or a list of such lists",
                                   name),
                       name, ""};
  if (value == nullptr) return ApiError{400, fmt::format("'{}' is missing", name), name, ""};
  const auto from_text = [&](const Json& item) -> std::optional<ApiError> {
    const std::string& text = item.get_ref<const std::string&>();
    if (auto error = check_size(model, name, text)) return error;
    texts.push_back({model.tokenizer->encode_prompt(text), text});
    return std::nullopt;
  };
  if (value->is_string()) return from_text(*value);
  if (!value->is_array() || value->empty()) return wrong;
  if ((*value)[0].is_number()) {
    texts.emplace_back();
    return read_ids(*value, name, model, texts.back());
  }
  if (value->size() > most) {
    return ApiError{
        400, fmt::format("'{}' has {} items, at most {} are possible", name, value->size(), most),
        name, ""};
  }
  for (const Json& item : *value) {
    if (item.is_string()) {
      if (auto error = from_text(item)) return error;
    } else if (item.is_array()) {
      texts.emplace_back();
      if (auto error = read_ids(item, name, model, texts.back())) return error;
    } else {
      return wrong;
    }
  }
  return std::nullopt;
}

}  // namespace ktx::server
