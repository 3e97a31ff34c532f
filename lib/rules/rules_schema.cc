// The JSON Schema of rule files, made from the tables that the parser reads.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/rules/operators.h"
#include "lib/rules/rule.h"
#include "lib/rules/rule_keys.h"

namespace ktx::rules {
namespace {

using Json = nlohmann::ordered_json;

Json closed(std::string_view sentence) {
  return {{"type", "object"},
          {"description", sentence},
          {"additionalProperties", false},
          {"properties", Json::object()}};
}

Json device_type() {
  Json one = {
      {"type", "string"},
      {"pattern",
       "^(cpu|auto|spread|split|cuda(:(\\*|[0-9]+(\\+[0-9]+)+|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*))?|"
       "(xpu|npu)(:[0-9]+)?)$"}};
  return {{"description", "cpu, cuda, cuda:0, cuda:0-3, cuda:*, auto"},
          {"anyOf", {one, {{"type", "array"}, {"items", one}}}}};
}

Json op_type() {
  Json values = Json::array();
  for (const OpInfo& row : all_ops()) values.push_back(row.name);
  Json type = {{"anyOf", {{{"enum", values}}, {{"type", "null"}}}}};
  return type;
}

Json kwarg_type(KwargType type) {
  switch (type) {
    case KwargType::Device:
      return {
          {"anyOf", {{{"$ref", "#/definitions/device"}}, {{"type", "null"}}, {{"const", "None"}}}}};
    case KwargType::Op:
      return {{"$ref", "#/definitions/op"}};
    case KwargType::Bool:
      return {{"type", "boolean"}};
    case KwargType::Int:
      return {{"type", "integer"}};
    case KwargType::Text:
      return {{"type", {"string", "null"}}};
    case KwargType::Backend: {
      Json values = Json::array();
      for (const BackendInfo& row : all_backends()) values.push_back(row.name);
      return {{"enum", values}};
    }
    case KwargType::DeviceMap:
      return {{"type", "object"},
              {"additionalProperties", {{"$ref", "#/definitions/device"}}},
              {"propertyNames", {{"pattern", "^[0-9]+$"}}}};
  }
  return Json::object();
}

Json kwargs_type() {
  Json type = closed("arguments of the operator class");
  for (const KwargInfo& row : all_kwargs()) {
    Json kwarg = kwarg_type(row.type);
    kwarg["description"] = row.sentence;
    type["properties"][std::string(row.name)] = std::move(kwarg);
  }
  return type;
}

Json operator_type() {
  Json values = Json::array({"default"});
  for (const OperatorInfo& row : all_operators()) {
    values.push_back(fmt::format("ktransformers.operators.{}", row.path));
  }
  // Short and older names are read as well: an editor completes, but does not refuse.
  return {{"anyOf", {{{"enum", values}}, {{"type", "string"}}}}};
}

Json value_type(const KeyInfo& key) {
  const Json range = {
      {"anyOf",
       {{{"type", "integer"}, {"minimum", 0}}, {{"type", "string"}, {"pattern", "^[0-9., -]+$"}}}}};
  const std::string_view type = key.type;
  if (type == "version") return {{"const", 1}};
  if (type == "bool") return {{"type", "boolean"}};
  if (type == "device" || type == "op") {
    return {{"$ref", fmt::format("#/definitions/{}", type)}};
  }
  if (type == "kwargs" || type == "match" || type == "replace" || type == "defaults" ||
      type == "rules") {
    return {{"$ref", fmt::format("#/definitions/{}", type)}};
  }
  if (type == "operator") return operator_type();
  if (type == "kind") return {{"enum", kind_names()}};
  if (type == "layout") return {{"enum", layout_names()}};
  if (type == "lossy") return {{"enum", {"allow", "deny"}}};
  if (type == "pattern") return {{"type", "string"}, {"format", "regex"}};
  if (type == "devices") {
    return {{"type", "array"},
            {"minItems", 2},
            {"uniqueItems", true},
            {"items", {{"type", "string"}, {"pattern", "^cuda(:[0-9]+)?$"}}}};
  }
  if (type == "split") {
    const Json one = {{"enum", kSplitNames}};
    return {{"anyOf", {one, {{"type", "array"}, {"minItems", 1}, {"items", one}}}}};
  }
  if (type == "count") return {{"type", "integer"}, {"minimum", 1}};
  if (type == "experts") {
    const Json some = {{"type", "array"}, {"items", range}};
    Json kinds = {{"type", "object"}, {"minProperties", 1}, {"additionalProperties", false}};
    kinds["properties"] = {{"resident", {{"anyOf", {range, some}}}},
                           {"slots", {{"anyOf", {range, some, {{"const", "auto"}}}}}}};
    const Json which = {{"anyOf", {range, some, kinds}}};
    return {{"type", "object"},
            {"minProperties", 1},
            {"additionalProperties", false},
            {"patternProperties", {{"^(cpu|auto|cuda(:[0-9]+)?)$", which}}}};
  }
  if (type == "layers") return {{"anyOf", {range, {{"type", "array"}, {"items", range}}}}};
  return {{"type", "string"}};
}

Json level_type(Level level, std::string_view sentence) {
  Json type = closed(sentence);
  for (const KeyInfo& key : all_keys()) {
    if (key.level != level) continue;
    Json value = value_type(key);
    // Beside $ref other keywords are ignored.
    if (!value.contains("$ref")) value["description"] = key.sentence;
    type["properties"][std::string(key.key)] = std::move(value);
  }
  return type;
}

}  // namespace

std::string rules_json_schema() {
  Json rule = level_type(Level::Rule, "which modules, and what becomes of them");
  rule["required"] = {"match", "replace"};
  Json match = level_type(Level::Match, "which modules; all that is given must hold");
  match["minProperties"] = 1;
  Json file = level_type(Level::File, "a rule file with defaults");
  file["required"] = {"rules"};
  Json schema = {
      {"$schema", "http://json-schema.org/draft-07/schema#"},
      {"title", "ktx rule file"},
      {"description", "Rules of ktx-compile; KTransformers' rule files are of this form too."},
      {"anyOf", {{{"$ref", "#/definitions/rules"}}, {{"$ref", "#/definitions/file"}}}},
  };
  schema["definitions"] = {
      {"file", file},
      {"rules", {{"type", "array"}, {"items", {{"$ref", "#/definitions/rule"}}}}},
      {"defaults", level_type(Level::Defaults, "what holds where no rule says")},
      {"rule", rule},
      {"match", match},
      {"replace", level_type(Level::Replace, "what becomes of the modules")},
      {"kwargs", kwargs_type()},
      {"device", device_type()},
      {"op", op_type()}};
  return schema.dump(1) + "\n";
}

}  // namespace ktx::rules
