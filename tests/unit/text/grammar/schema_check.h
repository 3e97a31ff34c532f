// An independent, simple JSON Schema validator, the oracle of the grammar tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/support/regex.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text {

// "%20" of a reference is a space there; a "%" that stands alone is itself.
inline std::string percent_decoded(std::string text) {
  for (size_t at = text.find("%20"); at != std::string::npos; at = text.find("%20")) {
    text.replace(at, 3, " ");
  }
  return text;
}

// What `value` breaks, or "". `root` is for references.
inline std::string schema_violation(const nlohmann::ordered_json& root,
                                    const nlohmann::ordered_json& schema,
                                    const nlohmann::ordered_json& value) {
  using Json = nlohmann::ordered_json;
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
  const auto has = [&](const char* key) { return schema.contains(key); };
  if (schema.value("nullable", false) && value.is_null()) return "";
  if (has("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    const std::string error =
        schema_violation(root, root.at(Json::json_pointer(percent_decoded(pointer))), value);
    if (!error.empty()) return "$ref: " + error;
  }
  for (const Json& part : schema.value("allOf", Json::array())) {
    const std::string error = schema_violation(root, part, value);
    if (!error.empty()) return "allOf: " + error;
  }
  for (const std::string key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key)) continue;
    const auto fitting = std::count_if(
        schema[key].begin(), schema[key].end(),
        [&](const Json& part) { return schema_violation(root, part, value).empty(); });
    if (fitting == 0 || (key == "oneOf" && fitting > 1)) return key;
  }
  if (has("if")) {
    const bool met = schema_violation(root, schema["if"], value).empty();
    const std::string error =
        schema_violation(root, schema.value(met ? "then" : "else", Json(true)), value);
    if (!error.empty()) return "if: " + error;
  }
  if (has("not") && schema_violation(root, schema["not"], value).empty()) return "not";
  if (has("const") && schema["const"] != value) return "const";
  if (has("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return "enum";
  }
  if (has("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    const bool whole =
        value.is_number_integer() ||
        (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
    if (std::none_of(types.begin(), types.end(), [&](const Json& type) {
          return (type == "string" && value.is_string()) || (type == "null" && value.is_null()) ||
                 (type == "boolean" && value.is_boolean()) || (type == "integer" && whole) ||
                 (type == "number" && value.is_number()) || (type == "array" && value.is_array()) ||
                 (type == "object" && value.is_object());
        })) {
      return "type";
    }
  }
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const int64_t length = count_code_points(text);
    if (has("minLength") && length < schema["minLength"]) return "minLength";
    if (has("maxLength") && length > schema["maxLength"]) return "maxLength";
    if (has("pattern")) {
      const auto regex = Regex::compile(schema["pattern"].get<std::string>());
      if (!regex.ok() || !regex->matches(text)) return "pattern";
    }
  }
  if (value.is_number()) {
    const double number = value.get<double>();
    if (has("multipleOf")) {
      const double times = number / schema["multipleOf"].get<double>();
      if (std::abs(times - std::round(times)) > 1e-6) return "multipleOf";
    }
    if (has("minimum") && number < schema["minimum"].get<double>()) return "minimum";
    if (has("maximum") && number > schema["maximum"].get<double>()) return "maximum";
    // A boolean in draft 4, which speaks of the other bound.
    const auto open_bound = [&](const char* exclusive, const char* bound) {
      const Json& open = schema[exclusive];
      return open.is_number() ? open : open == Json(true) ? schema[bound] : Json();
    };
    if (has("exclusiveMinimum")) {
      const Json low = open_bound("exclusiveMinimum", "minimum");
      if (low.is_number() && number <= low.get<double>()) return "exclusiveMinimum";
    }
    if (has("exclusiveMaximum")) {
      const Json high = open_bound("exclusiveMaximum", "maximum");
      if (high.is_number() && number >= high.get<double>()) return "exclusiveMaximum";
    }
  }
  if (value.is_array()) {
    if (has("minItems") && value.size() < schema["minItems"].get<size_t>()) return "minItems";
    if (has("maxItems") && value.size() > schema["maxItems"].get<size_t>()) return "maxItems";
    for (size_t i = 0; schema.value("uniqueItems", false) && i < value.size(); ++i) {
      if (std::count(value.begin(), value.end(), value[i]) > 1) return "uniqueItems";
    }
    if (has("contains")) {
      const auto found = std::count_if(value.begin(), value.end(), [&](const Json& item) {
        return schema_violation(root, schema["contains"], item).empty();
      });
      if (found < schema.value("minContains", 1)) return "contains";
      if (found > schema.value("maxContains", found)) return "maxContains";
    }
    const bool tuple = has("items") && schema["items"].is_array();
    const Json prefix = tuple ? schema["items"] : schema.value("prefixItems", Json::array());
    const char* more = tuple ? "additionalItems" : has("items") ? "items" : "unevaluatedItems";
    for (size_t i = 0; i < value.size(); ++i) {
      const Json item = i < prefix.size() ? prefix[i] : has(more) ? schema[more] : Json(true);
      const std::string error = schema_violation(root, item, value[i]);
      if (!error.empty()) return "items: " + error;
    }
  }
  if (value.is_object()) {
    if (has("minProperties") && value.size() < schema["minProperties"].get<size_t>()) return "few";
    if (has("maxProperties") && value.size() > schema["maxProperties"].get<size_t>()) return "many";
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return "required";
    }
    const Json properties = schema.value("properties", Json::object());
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json dependents = schema.value(key, Json::object());
      for (const auto& [name, wanted] : dependents.items()) {
        if (!value.contains(name)) continue;
        const Json part = wanted.is_array() ? Json{{"required", wanted}} : wanted;
        if (!schema_violation(root, part, value).empty()) return key;
      }
    }
    // What branches and parts name is evaluated, too.
    Json evaluated = properties;
    for (const char* key : {"allOf", "anyOf", "oneOf"}) {
      for (const Json& part : schema.value(key, Json::array())) {
        if (part.is_object()) evaluated.update(part.value("properties", Json::object()));
      }
    }
    for (const auto& [name, item] : value.items()) {
      if (has("propertyNames")) {
        const std::string error = schema_violation(root, schema["propertyNames"], name);
        if (!error.empty()) return "propertyNames: " + error;
      }
      if (has("unevaluatedProperties") && !evaluated.contains(name)) {
        const std::string error = schema_violation(root, schema["unevaluatedProperties"], item);
        if (!error.empty()) return "unevaluatedProperties: " + error;
      }
      bool matched = false;
      const Json patterns = schema.value("patternProperties", Json::object());
      for (const auto& [pattern, part] : patterns.items()) {
        const auto regex = Regex::compile(pattern);
        if (!regex.ok() || !regex->matches(name)) continue;
        matched = true;
        const std::string error = schema_violation(root, part, item);
        if (!error.empty()) return pattern + ": " + error;
      }
      if (matched && !properties.contains(name)) continue;
      const Json other = has("additionalProperties") ? schema["additionalProperties"] : Json(true);
      const std::string error =
          schema_violation(root, properties.contains(name) ? properties[name] : other, item);
      if (!error.empty()) return name + ": " + error;
    }
  }
  return "";
}

}  // namespace ktx::text
