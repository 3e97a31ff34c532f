// JSON whose integers keep all of their digits: those that neither 64 bits hold (u128, u256, the
// 10^30 of a schema's bound) would become doubles, and 2^64 another number. Numbers beyond all
// doubles (1e400), at which the library stops, keep their text as well.
//
//   const auto schema = parse_json(R"({"maximum": 340282366920938463463374607431768211455})");
//   is_wide(schema["maximum"]);      // true; is_number() is false, as no number type holds it
//   json_text(schema);               // all 39 digits
//
// A wide number is held as the library's type for bytes, which no text makes. Everything else is
// as the library has it. Safe for any text of bounded nesting (json_nesting.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ktx::text {

// Where and why a text is no JSON.
struct JsonFault {
  size_t at = 0;  // bytes
  std::string why;
};
// Discarded where the text is no JSON; `fault` may be null.
nlohmann::ordered_json parse_json(std::string_view text, JsonFault* fault = nullptr);

bool is_wide(const nlohmann::ordered_json& value);
// A wide number as it was written: an integer's digits, or 1e400.
std::string wide_text(const nlohmann::ordered_json& value);
// Also of a wide number, which loses digits or is infinite.
double number_value(const nlohmann::ordered_json& value);
inline bool is_numeric(const nlohmann::ordered_json& value) {
  return value.is_number() || is_wide(value);
}

// In one line; what is no UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace ktx::text
