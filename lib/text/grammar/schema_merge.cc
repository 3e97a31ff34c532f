#include "lib/text/grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/decimal.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/string_formats.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

enum class MergeRule {
  Larger,
  Smaller,
  Union,     // of lists
  Common,    // of lists of values
  Both,      // each schema must hold
  BothEach,  // of each property
  Equal,     // or an error
  Same,      // or nothing can be valid
  Patterns,  // all of them must match
  Steps,     // a multiple of all of them
  Format,
  Choices,  // both must hold: kAlso
  Types,
  BothTrue,
  EitherTrue,
  Others,  // additionalProperties
  Tuple,   // done by merge_items()
};
struct Row {
  std::string_view keyword;
  MergeRule rule;
};
constexpr uint64_t kWorkOfCopy = 10;  // a value copied takes as long as so many comparisons

constexpr Row kRows[] = {
    {"type", MergeRule::Types},
    {"minimum", MergeRule::Larger},
    {"exclusiveMinimum", MergeRule::Larger},
    {"minLength", MergeRule::Larger},
    {"minItems", MergeRule::Larger},
    {"minProperties", MergeRule::Larger},
    {"maximum", MergeRule::Smaller},
    {"exclusiveMaximum", MergeRule::Smaller},
    {"maxLength", MergeRule::Smaller},
    {"maxItems", MergeRule::Smaller},
    {"maxProperties", MergeRule::Smaller},
    {"required", MergeRule::Union},
    {"allOf", MergeRule::Union},
    {"enum", MergeRule::Common},
    {"properties", MergeRule::BothEach},
    {"patternProperties", MergeRule::BothEach},
    {"contains", MergeRule::Equal},
    {"minContains", MergeRule::Equal},
    {"maxContains", MergeRule::Equal},
    {kAlso, MergeRule::Union},
    {kUnlike, MergeRule::Union},
    {kPatterns, MergeRule::Union},
    {kSteps, MergeRule::Union},
    {"items", MergeRule::Tuple},
    {"prefixItems", MergeRule::Tuple},
    {"propertyNames", MergeRule::Both},
    {"nullable", MergeRule::BothTrue},
    {"uniqueItems", MergeRule::EitherTrue},
    {"additionalProperties", MergeRule::Others},
    {"pattern", MergeRule::Patterns},
    {"const", MergeRule::Same},
    {"anyOf", MergeRule::Choices},
    {"oneOf", MergeRule::Choices},
    {"format", MergeRule::Format},
    {"multipleOf", MergeRule::Steps},
    {"unevaluatedProperties", MergeRule::Equal},
    {"unevaluatedItems", MergeRule::Equal},
};

Json both(const Json& a, const Json& b) {
  if (a == b || b == Json(true)) return a;
  if (a == Json(true)) return b;
  if (a == Json(false) || b == Json(false)) return false;
  return Json{{"allOf", Json::array({a, b})}};
}

std::vector<std::string> listed_types(const Json& type) {
  std::vector<std::string> out;
  if (type.is_string()) out.push_back(type.get<std::string>());
  if (type.is_array()) {
    for (const Json& name : type) {
      if (name.is_string()) out.push_back(name.get<std::string>());
    }
  }
  return out;
}

// An integer is a number.
Json common_types(const Json& a, const Json& b) {
  Json out = Json::array();
  const std::vector<std::string> names_b = listed_types(b);
  const auto in_b = [&](std::string_view name) {
    return std::find(names_b.begin(), names_b.end(), name) != names_b.end();
  };
  for (const std::string& name : listed_types(a)) {
    if (in_b(name) || (name == "integer" && in_b("number"))) {
      out.push_back(name);
    } else if (name == "number" && in_b("integer")) {
      out.push_back("integer");
    }
  }
  return out;
}

bool speaks_of_values(const Json& schema) {
  return std::any_of(schema.items().begin(), schema.items().end(),
                     [](const auto& item) { return !is_note(item.key()); });
}

bool forbids_others(const Json& schema) {
  const auto others = schema.find("additionalProperties");
  return others != schema.end() && *others == Json(false);
}

// A schema that forbids other properties also forbids those that only its partner names.
Status check_others(const Json& a, const Json& b, const std::string& path) {
  if (!forbids_others(a) || !b.contains("properties")) return {};
  const Json own = a.value("properties", Json::object());
  for (const auto& [name, schema] : b["properties"].items()) {
    if (!own.contains(name)) {
      return Error{fmt::format(
          "schema at {}: 'additionalProperties' of one part forbids property '{}' of another; "
          "leave it out or name the property in both",
          path, name)};
    }
  }
  return {};
}

// Properties that only the partner names are others to this one, which has a schema for them.
void limit_others(const Json& a, const Json& b, Json& out) {
  const auto others = a.find("additionalProperties");
  const auto properties = b.find("properties");
  if (others == a.end() || properties == b.end() || !properties->is_object()) return;
  const Json own = a.value("properties", Json::object());
  for (const auto& [name, schema] : properties->items()) {
    if (!own.contains(name)) out["properties"][name] = both(*others, schema);
  }
}

// Keys that only one's patterns match are others to the partner.
Status check_patterns(const Json& a, const Json& b, const std::string& path) {
  const auto others = a.find("additionalProperties");
  if (others == a.end() || *others == Json(true) || !b.contains("patternProperties")) return {};
  const Json none = Json::object();
  if (a.value("patternProperties", none) == b["patternProperties"]) return {};
  return schema_error(path,
                      "'additionalProperties' of one part with 'patternProperties' of another is "
                      "not supported; write both in one part");
}
// How often an item is contained belongs to what is contained.
Status check_contained(const Json& a, const Json& b, const std::string& path) {
  if (!a.contains("contains") || !b.contains("contains")) return {};
  for (const char* keyword : {"contains", "minContains", "maxContains"}) {
    if (a.value(keyword, Json()) == b.value(keyword, Json())) continue;
    return schema_error(path, "two different 'contains' that both must hold are not supported");
  }
  return {};
}

// What a schema says of the items behind its first ones.
const Json& rest_items(const Json& schema) {
  static const Json any = true;
  const auto items = schema.find("items");
  return items == schema.end() ? any : *items;
}

void merge_items(const Json& a, const Json& b, Json& out) {
  const Json none = Json::array();
  const Json first_a = a.value("prefixItems", none), first_b = b.value("prefixItems", none);
  if (a.contains("items") || b.contains("items")) out["items"] = both(rest_items(a), rest_items(b));
  if (!first_a.is_array() || !first_b.is_array() || (first_a.empty() && first_b.empty())) return;
  Json first = Json::array();
  for (size_t i = 0; i < std::max(first_a.size(), first_b.size()); ++i) {
    first.push_back(both(i < first_a.size() ? first_a[i] : rest_items(a),
                         i < first_b.size() ? first_b[i] : rest_items(b)));
  }
  out["prefixItems"] = std::move(first);
}

// What comparing the members of all lists and objects that both have can cost.
uint64_t compares(const Json& a, const Json& b) {
  uint64_t sum = a.size() * b.size();
  for (const auto& [keyword, value] : b.items()) {
    const auto mine = a.find(keyword);
    if (mine == a.end()) continue;
    sum += uint64_t{mine->size() + 1} * (value.size() + 1);
  }
  return sum;
}

Error too_much(const std::string& path) {
  return Error{fmt::format(
      "schema at {}: too many schemas are combined here; use fewer $ref and allOf, or shorter "
      "lists in them",
      path)};
}

}  // namespace

bool MergeWork::spend(uint64_t work) {
  const bool enough = work <= left;
  left = enough ? left - work : 0;
  return enough;
}

bool MergeWork::spend_copy(const Json& schema) {
  std::vector<const Json*> todo = {&schema};
  while (!todo.empty()) {
    const Json& value = *todo.back();
    todo.pop_back();
    if (!spend(kWorkOfCopy)) return false;
    if (!value.is_structured()) continue;
    for (const Json& item : value) todo.push_back(&item);
  }
  return true;
}

Result<Json> merge_schemas(const Json& a, const Json& b, const std::string& path, MergeWork& work) {
  if (a.is_boolean() || b.is_boolean()) return both(a, b);
  if (!a.is_object() || !b.is_object()) {
    return Error{fmt::format("schema at {}: expected an object or a boolean", path)};
  }
  if (!work.spend_copy(a) || !work.spend_copy(b) || !work.spend(compares(a, b))) {
    return too_much(path);
  }
  KTX_TRY(check_others(a, b, path));
  KTX_TRY(check_others(b, a, path));
  KTX_TRY(check_patterns(a, b, path));
  KTX_TRY(check_patterns(b, a, path));
  KTX_TRY(check_contained(a, b, path));
  Json out = a;
  std::vector<std::pair<const char*, Json>> more;  // for lists of what both say
  for (const auto& [keyword, value] : b.items()) {
    const auto mine = out.find(keyword);
    if (mine == out.end()) {
      out[keyword] = value;
      continue;
    }
    const auto row =
        std::find_if(std::begin(kRows), std::end(kRows),
                     [&keyword = keyword](const Row& r) { return r.keyword == keyword; });
    if (row == std::end(kRows) && is_note(keyword)) continue;  // the first stays
    const auto clash = [&path, &keyword = keyword] {
      return Error{
          fmt::format("schema at {}: two different '{}' that both must hold are not "
                      "supported; write one",
                      path, keyword)};
    };
    if (row == std::end(kRows)) {
      if (*mine != value) return clash();
      continue;
    }
    switch (row->rule) {
      case MergeRule::Larger:
      case MergeRule::Smaller:
        if (!is_numeric(value) || !is_numeric(*mine)) return clash();
        if (compare_numbers(value, *mine) == (row->rule == MergeRule::Larger ? 1 : -1)) {
          *mine = value;
        }
        break;
      case MergeRule::Union:
        if (!value.is_array() || !mine->is_array()) return clash();
        for (const Json& name : value) {
          if (std::find(mine->begin(), mine->end(), name) == mine->end()) mine->push_back(name);
        }
        break;
      case MergeRule::Common: {
        if (!value.is_array() || !mine->is_array()) return clash();
        Json common = Json::array();
        for (const Json& item : *mine) {
          if (std::find(value.begin(), value.end(), item) != value.end()) common.push_back(item);
        }
        *mine = common;
        break;
      }
      case MergeRule::BothEach:
        if (!value.is_object() || !mine->is_object()) return clash();
        for (const auto& [name, schema] : value.items()) {
          (*mine)[name] = mine->contains(name) ? both((*mine)[name], schema) : schema;
        }
        break;
      case MergeRule::Tuple:
        break;
      case MergeRule::BothTrue:
        *mine = *mine == Json(true) && value == Json(true);
        break;
      case MergeRule::EitherTrue:
        *mine = *mine == Json(true) || value == Json(true);
        break;
      case MergeRule::Both:
      case MergeRule::Others:
        *mine = both(*mine, value);
        break;
      case MergeRule::Types:
        *mine = common_types(*mine, value);
        break;
      case MergeRule::Equal:
        if (*mine != value) return clash();
        break;
      case MergeRule::Same:
        if (*mine != value) return Json(false);
        break;
      case MergeRule::Patterns:
        if (!mine->is_string() || !value.is_string()) return clash();
        if (*mine != value) more.push_back({kPatterns, value});
        break;
      case MergeRule::Steps:
        if (!is_numeric(*mine) || !is_numeric(value)) return clash();
        if (*mine != value) more.push_back({kSteps, value});
        break;
      case MergeRule::Choices:
        if (*mine != value) more.push_back({kAlso, Json{{keyword, value}}});
        break;
      case MergeRule::Format: {
        if (*mine == value || !value.is_string()) break;
        const std::string_view pattern = pattern_of_format(value.get_ref<const std::string&>());
        if (!pattern.empty()) more.push_back({kPatterns, Json(pattern)});
        break;
      }
    }
  }
  for (auto& [keyword, value] : more) {
    Json& list = out[keyword];
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(std::move(value));
  }
  // Null is a value of the whole where it is one of both.
  for (const auto* schema : {&a, &b}) {
    if (speaks_of_values(*schema) && !schema->contains("nullable")) out.erase("nullable");
  }
  limit_others(a, b, out);
  limit_others(b, a, out);
  merge_items(a, b, out);
  return out;
}

Status close_unevaluated(Json& schema, const std::string& path) {
  if (!schema.is_object()) return {};
  constexpr const char* kPairs[][2] = {{"unevaluatedProperties", "additionalProperties"},
                                       {"unevaluatedItems", "items"}};
  for (const auto& [unevaluated, others] : kPairs) {
    if (!schema.contains(unevaluated)) continue;
    if (schema.contains("anyOf") || schema.contains("oneOf") || schema.contains(kAlso) ||
        schema.contains(kNegated)) {
      return schema_error(path,
                          fmt::format("'{}' with anyOf, oneOf, not or if, both within another "
                                      "schema, is not supported; leave it out",
                                      unevaluated));
    }
    if (!schema.contains(others)) schema[others] = schema[unevaluated];
    schema.erase(unevaluated);
  }
  return {};
}

}  // namespace ktx::text::grammar
