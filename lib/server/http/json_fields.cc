#include "lib/server/http/json_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

#include "lib/support/json_nesting.h"
#include "lib/support/strings.h"
#include "lib/text/exact_json.h"

namespace ktx::server {

std::string string_or(const Json& object, const char* key, const std::string& otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

Json decimal(float value) {
  // The shortest text that is this float.
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  double out = value;
  if (error == std::errc()) std::from_chars(text, end, out);
  return out;
}

std::string show(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (!value.is_string()) return dump(value).substr(0, 40);
  const auto& text = value.get_ref<const std::string&>();
  return dump(text.size() > 40 ? text.substr(0, 40) + "…" : text);
}

ApiResult<Json> parse_body(const std::string& text) {
  if (text.empty()) return ApiError{400, "the body is empty; expected a JSON object", "", ""};
  if (json_nesting(text) > kMaxJsonNesting) {
    return ApiError{400, fmt::format("the JSON is nested more than {} deep", kMaxJsonNesting), "",
                    ""};
  }
  if (json_member_pairs(text) > kMaxMemberPairs) {
    return ApiError{
        400,
        "the JSON has too many members in one object, at most 10000 are possible, fewer "
        "of long names",
        "", ""};
  }
  if (const uint64_t bytes = json_tree_bytes(text); bytes > kMaxTreeBytes) {
    return ApiError{400,
                    fmt::format("the JSON has too many values: they would take {}, at most {} are "
                                "possible; send it in parts",
                                human_bytes(bytes), human_bytes(kMaxTreeBytes)),
                    "", ""};
  }
  text::JsonFault fault;
  Json body = text::parse_json(text, &fault);
  if (body.is_discarded()) {
    return ApiError{400, fmt::format("the body is no JSON: at byte {}: {}", fault.at, fault.why),
                    "", "invalid_json"};
  }
  if (!body.is_object()) {
    return ApiError{400, fmt::format("the body is {}, expected a JSON object", show(body)), "", ""};
  }
  return body;
}

Json parse_nested(const std::string& text) {
  const bool fits = json_nesting(text) <= kMaxJsonNesting &&
                    json_member_pairs(text) <= kMaxMemberPairs &&
                    json_tree_bytes(text) <= kMaxTreeBytes;
  return fits ? text::parse_json(text) : Json(Json::value_t::discarded);
}

void FieldReader::fail(const std::string& name, const std::string& message) {
  if (status_) status_ = ApiError{400, message, path_ + name, ""};
}

const Json* FieldReader::get(const char* name) {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<double> FieldReader::maybe_number(const char* name, double low, double high) {
  const Json* value = get(name);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number >= low && number <= high) return number;
  fail(name, fmt::format("'{}{}' is {}, expected a number from {} to {}", path_, name, show(*value),
                         low, high));
  return std::nullopt;
}

double FieldReader::number(const char* name, double otherwise, double low, double high) {
  return maybe_number(name, low, high).value_or(otherwise);
}

std::optional<int64_t> FieldReader::maybe_whole(const char* name, int64_t low, int64_t high) {
  const Json* value = get(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  if (value->is_number_unsigned()) {
    const auto wide = value->get<uint64_t>();
    if (wide <= static_cast<uint64_t>(INT64_MAX)) number = static_cast<int64_t>(wide);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const double real = value->get<double>();
    if (real == std::floor(real) && std::abs(real) < 9e15) number = static_cast<int64_t>(real);
  }
  if (number && *number >= low && *number <= high) return number;
  fail(name, fmt::format("'{}{}' is {}, expected a whole number from {} to {}", path_, name,
                         show(*value), low, high));
  return std::nullopt;
}

std::optional<int64_t> FieldReader::maybe_count(const char* name, int64_t low) {
  const Json* value = get(name);
  constexpr double kMostInteger = 18446744073709551616.0;
  const double number = value != nullptr && value->is_number() ? value->get<double>() : 0;
  const bool large = number > double{kNoCountLimit} && number <= kMostInteger;
  return large ? kNoCountLimit : maybe_whole(name, low, kNoCountLimit);
}

std::optional<uint64_t> FieldReader::maybe_seed(const char* name) {
  const Json* value = get(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) return value->get<uint64_t>();
  const double real = value->is_number_float() ? value->get<double>() : std::nan("");
  if (real == std::floor(real) && real >= -0x1p63 && real < 0x1p64) {
    return real < 0 ? static_cast<uint64_t>(static_cast<int64_t>(real))
                    : static_cast<uint64_t>(real);
  }
  fail(name, fmt::format("'{}{}' is {}, expected a whole number from {} to {}", path_, name,
                         show(*value), INT64_MIN, UINT64_MAX));
  return std::nullopt;
}

int64_t FieldReader::whole(const char* name, int64_t otherwise, int64_t low, int64_t high) {
  return maybe_whole(name, low, high).value_or(otherwise);
}

bool FieldReader::flag(const char* name, bool otherwise) {
  const Json* value = get(name);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, fmt::format("'{}{}' is {}, expected true or false", path_, name, show(*value)));
  return otherwise;
}

std::string FieldReader::text(const char* name, const std::string& otherwise) {
  const Json* value = get(name);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  fail(name, fmt::format("'{}{}' is {}, expected a string", path_, name, show(*value)));
  return otherwise;
}

std::vector<std::string> FieldReader::texts(const char* name, size_t most) {
  const Json* value = get(name);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (value->is_string()) {
    out.push_back(value->get<std::string>());
    return out;
  }
  bool good = value->is_array();
  for (const Json& item : good ? *value : Json::array()) good = good && item.is_string();
  if (!good) {
    fail(name, fmt::format("'{}{}' is {}, expected a string or a list of strings", path_, name,
                           show(*value)));
    return out;
  }
  if (value->size() > most) {
    fail(name, fmt::format("'{}{}' has {} items, at most {} are possible", path_, name,
                           value->size(), most));
    return out;
  }
  for (const Json& item : *value) out.push_back(item.get<std::string>());
  return out;
}

const Json* FieldReader::object(const char* name) {
  const Json* value = get(name);
  if (value == nullptr || value->is_object()) return value;
  fail(name, fmt::format("'{}{}' is {}, expected an object", path_, name, show(*value)));
  return nullptr;
}

const Json* FieldReader::list(const char* name) {
  const Json* value = get(name);
  if (value == nullptr || value->is_array()) return value;
  fail(name, fmt::format("'{}{}' is {}, expected a list", path_, name, show(*value)));
  return nullptr;
}

}  // namespace ktx::server
