#include "lib/text/grammar/schema_values.h"

#include <algorithm>
#include <cmath>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_drafts.h"
#include "lib/text/grammar/schema_extent.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/schema_pointer.h"
#include "lib/text/grammar/schema_strings.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

size_t length_of(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(decode_utf8(text).length);
  return count;
}
bool is_whole(const Json& number) {
  return decimal_of(number).fraction.empty();
}
// Exact for integers.
bool is_multiple(const Json& number, const Json& step) {
  const Decimal value = decimal_of(number), by = decimal_of(step);
  if (value.fraction.empty() && by.fraction.empty() && by.whole.size() <= 18) {
    const int64_t divisor = std::max<int64_t>(1, std::stoll(by.whole));
    int64_t rest = 0;
    for (const char digit : value.whole) {
      rest = static_cast<int64_t>((static_cast<__int128>(rest) * 10 + (digit - '0')) % divisor);
    }
    return rest == 0;
  }
  const double times = number_value(number) / number_value(step);
  return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
}
bool lists(const Json& values, const Json& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

struct CountRow {
  const char* keyword;
  const char* type;
  bool most;
};
constexpr CountRow kCounts[] = {
    {"minLength", "string", false},     {"maxLength", "string", true},
    {"minItems", "array", false},       {"maxItems", "array", true},
    {"minProperties", "object", false}, {"maxProperties", "object", true},
};
struct BoundRow {
  const char* keyword;
  bool (*holds)(const Json& number, const Json& bound);
};
constexpr BoundRow kBounds[] = {
    {"minimum", [](const Json& n, const Json& bound) { return compare_numbers(n, bound) >= 0; }},
    {"exclusiveMinimum",
     [](const Json& n, const Json& bound) { return compare_numbers(n, bound) > 0; }},
    {"maximum", [](const Json& n, const Json& bound) { return compare_numbers(n, bound) <= 0; }},
    {"exclusiveMaximum",
     [](const Json& n, const Json& bound) { return compare_numbers(n, bound) < 0; }},
    {"multipleOf", is_multiple},
};

class Check {
 public:
  Check(const Json& root, const std::string& path, SchemaWork& work)
      : root_(root), path_(path), work_(work) {}

  Result<bool> holds(const Json& given, const Json& value, int depth) {
    if (given.is_boolean()) return given.get<bool>();
    if (!given.is_object()) return schema_error(path_, "expected an object or a boolean");
    if (depth > kMaxSchemaDepth || !work_.merging.spend(20 + given.size())) {
      return schema_error(path_, "too much is combined here; use fewer schemas");
    }
    const Json schema = has_old_words(given) ? KTX_TRY(modern_words(given, path_)) : given;
    for (const char* keyword : {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef"}) {
      if (schema.contains(keyword)) return schema_error(path_, "this cannot be checked here");
    }
    if (value.is_null() && schema.value("nullable", Json()) == Json(true)) return true;
    if (schema.contains("type")) {
      const auto types = KTX_TRY(type_names(schema, path_));
      if (std::none_of(types.begin(), types.end(), [&](const std::string& type) {
            return is_type(value, type) ||
                   (type == "integer" && is_numeric(value) && is_whole(value));
          })) {
        return false;
      }
    }
    if (schema.contains("const") && schema["const"] != value) return false;
    if (schema.contains("enum") && !lists(schema["enum"], value)) return false;
    for (const Json& unlike : schema.value(kUnlike, Json::array())) {
      if (unlike.contains("enum") && lists(unlike["enum"], value)) return false;
      if (unlike.contains("multipleOf") && is_numeric(value) &&
          is_multiple(value, unlike["multipleOf"])) {
        return false;
      }
      if (unlike.contains("pattern") && value.is_string() &&
          KTX_TRY(matches(unlike["pattern"], value))) {
        return false;
      }
    }
    return KTX_TRY(parts_hold(schema, value, depth)) && KTX_TRY(scalar_holds(schema, value)) &&
           (!value.is_array() || KTX_TRY(array_holds(schema, value, depth))) &&
           (!value.is_object() || KTX_TRY(object_holds(schema, value, depth)));
  }

 private:
  Result<bool> matches(const Json& pattern, const Json& value) {
    if (!pattern.is_string()) return wrong_type(path_, "pattern", pattern, "a string");
    const Result<const RegularSet*> set = pattern_set(pattern.get<std::string>(), work_);
    if (!set) return schema_error(path_, set.error().message);
    return (*set)->contains(json_quoted(value.get<std::string>()));
  }

  Result<bool> parts_hold(const Json& schema, const Json& value, int depth) {
    if (schema.contains("$ref")) {
      const Json& ref = schema["$ref"];
      if (!ref.is_string()) return wrong_type(path_, "$ref", ref, "a string");
      const Json* target = KTX_TRY(resolve_pointer(root_, ref.get<std::string>(), path_));
      if (!KTX_TRY(holds(*target, value, depth + 1))) return false;
    }
    for (const char* keyword : {"allOf", kAlso}) {
      for (const Json& part : schema.value(keyword, Json::array())) {
        if (!KTX_TRY(holds(part, value, depth + 1))) return false;
      }
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (!schema.contains(keyword)) continue;
      int count = 0;
      for (const Json& part : schema[keyword]) {
        count += KTX_TRY(holds(part, value, depth + 1)) ? 1 : 0;
      }
      if (count == 0 || (keyword[0] == 'o' && count > 1)) return false;
    }
    if (schema.contains("not") && KTX_TRY(holds(schema["not"], value, depth + 1))) return false;
    if (schema.contains("if")) {
      const bool met = KTX_TRY(holds(schema["if"], value, depth + 1));
      const Json next = schema.value(met ? "then" : "else", Json(true));
      if (!KTX_TRY(holds(next, value, depth + 1))) return false;
    }
    return true;
  }

  Result<bool> scalar_holds(const Json& schema, const Json& value) {
    for (const CountRow& row : kCounts) {
      if (!schema.contains(row.keyword) || !is_type(value, row.type)) continue;
      const Json& count = schema[row.keyword];
      if (!is_numeric(count)) return wrong_type(path_, row.keyword, count, "a number");
      const auto size = static_cast<double>(
          value.is_string() ? length_of(value.get_ref<const std::string&>()) : value.size());
      if (row.most ? size > number_value(count) : size < number_value(count)) return false;
    }
    if (is_numeric(value)) {
      for (const BoundRow& row : kBounds) {
        if (!schema.contains(row.keyword)) continue;
        const Json& bound = schema[row.keyword];
        if (!is_numeric(bound)) return wrong_type(path_, row.keyword, bound, "a number");
        if (!row.holds(value, bound)) return false;
      }
      for (const Json& step : schema.value(kSteps, Json::array())) {
        if (!is_multiple(value, step)) return false;
      }
    }
    if (value.is_string()) {
      if (schema.contains("pattern") && !KTX_TRY(matches(schema["pattern"], value))) return false;
      for (const Json& pattern : schema.value(kPatterns, Json::array())) {
        if (!KTX_TRY(matches(pattern, value))) return false;
      }
    }
    return true;
  }

  Result<bool> array_holds(const Json& schema, const Json& value, int depth) {
    const Json prefix = schema.value("prefixItems", Json::array());
    const Json rest = schema.value("items", Json(true));
    int contained = 0;
    for (size_t i = 0; i < value.size(); ++i) {
      if (!KTX_TRY(holds(i < prefix.size() ? prefix[i] : rest, value[i], depth + 1))) return false;
      if (schema.value("uniqueItems", Json()) == Json(true) &&
          std::count(value.begin(), value.end(), value[i]) > 1) {
        return false;
      }
      if (schema.contains("contains") && KTX_TRY(holds(schema["contains"], value[i], depth + 1))) {
        ++contained;
      }
    }
    if (!schema.contains("contains")) return true;
    const int min = KTX_TRY(schema_count(schema, "minContains", path_, 1));
    return contained >= min &&
           contained <= KTX_TRY(schema_count(schema, "maxContains", path_, contained));
  }

  Result<bool> object_holds(const Json& schema, const Json& value, int depth) {
    for (const Json& name : schema.value("required", Json::array())) {
      if (!name.is_string() || !value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    const Json patterns = schema.value("patternProperties", Json::object());
    for (const auto& [name, item] : value.items()) {
      bool named = properties.contains(name);
      if (named && !KTX_TRY(holds(properties[name], item, depth + 1))) return false;
      for (const auto& [pattern, part] : patterns.items()) {
        if (!KTX_TRY(matches(pattern, name))) continue;
        named = true;
        if (!KTX_TRY(holds(part, item, depth + 1))) return false;
      }
      if (!named) {
        const Json others = schema.value("additionalProperties", Json(true));
        if (!KTX_TRY(holds(others, item, depth + 1))) return false;
      }
      const Json names = schema.value("propertyNames", Json(true));
      if (!KTX_TRY(holds(names, name, depth + 1))) return false;
    }
    for (const char* keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
      const Json dependents = schema.value(keyword, Json::object());
      for (const auto& [name, wanted] : dependents.items()) {
        if (!value.contains(name)) continue;
        const Json rest = wanted.is_array() ? Json{{"required", wanted}} : wanted;
        if (!KTX_TRY(holds(rest, value, depth + 1))) return false;
      }
    }
    return true;
  }

  const Json& root_;
  const std::string& path_;
  SchemaWork& work_;
};

}  // namespace

Result<bool> accepts_value(const Json& root, const Json& schema, const Json& value,
                           const std::string& path, SchemaWork& work) {
  return Check(root, path, work).holds(schema, value, 0);
}

}  // namespace ktx::text::grammar
