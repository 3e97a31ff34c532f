#include "lib/input/general_texts.h"

#include <fmt/format.h>

#include <optional>

namespace ktx::input {
namespace {

constexpr std::string_view kPrefix = "general.";

std::optional<std::string> text_of(const GgufValue& value) {
  if (const auto text = value.string()) return std::string(*text);
  if (const auto flag = value.boolean(); flag && value.type == GgufType::Bool) {
    return *flag ? "true" : "false";
  }
  if (const auto number = value.u64()) return std::to_string(*number);
  if (const auto number = value.i64()) return std::to_string(*number);
  if (const auto number = value.f64()) return fmt::format("{}", *number);
  if (!value.is_array() || value.element_type != GgufType::String) return std::nullopt;
  const auto texts = value.strings();
  if (!texts) return std::nullopt;
  std::string all;
  for (const std::string_view text : *texts) all += (all.empty() ? "" : ", ") + std::string(text);
  return all;
}

}  // namespace

std::map<std::string, std::string> general_texts(const GgufFile& gguf, size_t most,
                                                 size_t most_bytes) {
  std::map<std::string, std::string> texts;
  for (const GgufValue& value : gguf.metadata()) {
    if (texts.size() == most) break;
    if (!value.key.starts_with(kPrefix) || value.key.size() > most_bytes ||
        value.payload.size() > most_bytes) {
      continue;
    }
    const auto text = text_of(value);
    if (text) texts.emplace(value.key.substr(kPrefix.size()), *text);
  }
  return texts;
}

}  // namespace ktx::input
