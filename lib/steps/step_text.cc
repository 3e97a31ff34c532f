#include "lib/steps/step_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace ktx::steps {
namespace {

constexpr std::string_view kTypeNames[] = {"f32", "i32", "q8", "bf16"};
constexpr std::string_view kRowKindNames[] = {"token", "output", "single"};

bool is_plain(unsigned char c) {
  return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
}

}  // namespace

std::string quote(std::string_view name) {
  if (!name.empty() && name != "-" && std::all_of(name.begin(), name.end(), is_plain)) {
    return std::string(name);
  }
  std::string out = "\"";
  for (unsigned char c : name) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", static_cast<char>(c));
    } else if (c <= 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string_view type_name(ValueType type) {
  return kTypeNames[static_cast<int>(type)];
}
std::string_view row_kind_name(RowKind rows) {
  return kRowKindNames[static_cast<int>(rows)];
}

std::optional<ValueType> type_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypeNames); ++i) {
    if (kTypeNames[i] == name) return static_cast<ValueType>(i);
  }
  return std::nullopt;
}

std::optional<RowKind> row_kind_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kRowKindNames); ++i) {
    if (kRowKindNames[i] == name) return static_cast<RowKind>(i);
  }
  return std::nullopt;
}

}  // namespace ktx::steps
