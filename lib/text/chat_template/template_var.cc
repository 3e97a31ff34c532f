#include "lib/text/chat_template/template_var.h"

#include <fmt/format.h>

#include "lib/support/strings.h"
#include "lib/text/exact_json.h"

namespace ktx::text {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kNameBytes =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool is_name(std::string_view text) {
  return !text.empty() && text.find_first_not_of(kNameBytes) == std::string_view::npos &&
         kDigits.find(text[0]) == std::string_view::npos;
}

}  // namespace

Result<nlohmann::ordered_json> parse_template_vars(std::span<const std::string> vars) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const std::string& var : vars) {
    const size_t equals = var.find('=');
    if (equals == std::string::npos || !is_name(std::string_view(var).substr(0, equals))) {
      return Error{
          fmt::format("'{}' is not KEY=VALUE; try: enable_thinking=false", printable(var))};
    }
    const std::string text = var.substr(equals + 1);
    nlohmann::ordered_json value = parse_json(text);
    out[var.substr(0, equals)] = value.is_discarded() ? nlohmann::ordered_json(text) : value;
  }
  return out;
}

}  // namespace ktx::text
