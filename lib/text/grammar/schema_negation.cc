#include "lib/text/grammar/schema_negation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/schema_drafts.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_pointer.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxNegations = 2'000;
constexpr int kMaxNegationDepth = 16;

// A bound, and the one that forbids all that it allows.
struct NegatedBound {
  const char* keyword;
  const char* type;
  const char* other;
  int more;  // added to a count
};
constexpr NegatedBound kNegatedBounds[] = {
    {"minimum", "number", "exclusiveMaximum", 0},
    {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0},
    {"exclusiveMaximum", "number", "minimum", 0},
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
};

class Negation {
 public:
  Negation(const Json& root, SchemaWork& work) : root_(root), work_(work) {}

  Result<Json> of(const Json& given, const std::string& path, int depth) {
    if (given.is_boolean()) return Json(!given.get<bool>());
    if (!given.is_object()) return schema_error(path, "expected an object or a boolean");
    if (depth > kMaxNegationDepth || ++work_.negations > kMaxNegations) {
      return schema_error(path, "a negation of so many schemas is not supported");
    }
    KTX_TRY(check_keywords(given, path));
    const Json schema = has_old_words(given) ? KTX_TRY(modern_words(given, path)) : given;
    Json ways = Json::array();
    // Up to draft 7 what stands beside a $ref says nothing.
    if (schema.contains("$ref")) return of_keyword(schema, "$ref", schema["$ref"], path, depth);
    for (const auto& [keyword, value] : schema.items()) {
      const std::string here = fmt::format("{}/{}", path, keyword);
      Json way = KTX_TRY(of_keyword(schema, keyword, value, here, depth));
      if (way != Json(false)) ways.push_back(std::move(way));
    }
    if (ways.empty()) return Json(false);
    if (ways.size() == 1) return ways[0];
    return Json{{"anyOf", std::move(ways)}};
  }

 private:
  static Error refused(const std::string& path, std::string_view keyword) {
    return schema_error(
        path,
        fmt::format("'{}' cannot be negated for a 'not', 'if' or 'oneOf'; leave it out", keyword));
  }

  // What breaks this keyword.
  Result<Json> of_keyword(const Json& schema, const std::string& keyword, const Json& value,
                          const std::string& path, int depth) {
    if (keyword == "then" || keyword == "else") return Json(false);
    if (keyword == "minContains" || keyword == "maxContains") {
      if (!schema.contains("contains")) return Json(false);
      return refused(path, keyword);
    }
    if (is_note(keyword)) return Json(false);
    if (keyword == "type") return of_type(schema, path);
    if (keyword == "const") return unlike({{"enum", Json::array({value})}});
    if (keyword == "enum" && value.is_array()) return unlike({{"enum", value}});
    if (keyword == "pattern" && value.is_string()) {
      Json out = unlike({{"pattern", value}});
      out["type"] = "string";
      return out;
    }
    if (keyword == "if") return of_condition(schema, path, depth);
    if (keyword == "not") return Json{{"allOf", Json::array({value})}, {kNegated, true}};
    if (keyword == "multipleOf" && is_numeric(value)) return unlike_number(value);
    if (keyword == "$ref" && value.is_string()) {
      const Json* target = KTX_TRY(resolve_pointer(root_, value.get<std::string>(), path));
      return of(*target, path, depth + 1);
    }
    if ((keyword == "anyOf" || keyword == "allOf") && value.is_array()) {
      Json parts = Json::array();
      for (size_t i = 0; i < value.size(); ++i) {
        parts.push_back(KTX_TRY(of(value[i], fmt::format("{}/{}", path, i), depth + 1)));
      }
      return Json{{keyword == "anyOf" ? "allOf" : "anyOf", std::move(parts)}};
    }
    if (keyword == "required" && value.is_array()) {
      Json ways = Json::array();
      for (const Json& name : value) {
        if (!name.is_string()) return wrong_type(path, "required", name, "an array of strings");
        ways.push_back({{"type", "object"}, {"properties", {{name.get<std::string>(), false}}}});
      }
      return any_of(std::move(ways));
    }
    if (keyword == "properties" && value.is_object()) {
      Json ways = Json::array();
      for (const auto& [name, property] : value.items()) {
        Json other = KTX_TRY(of(property, fmt::format("{}/{}", path, name), depth + 1));
        if (other == Json(false)) continue;
        ways.push_back({{"type", "object"},
                        {"required", Json::array({name})},
                        {"properties", {{name, std::move(other)}}},
                        {kNegated, true}});
      }
      return any_of(std::move(ways));
    }
    if (keyword == "items" && !schema.contains("prefixItems")) {
      return Json{
          {"type", "array"}, {"contains", KTX_TRY(of(value, path, depth + 1))}, {kNegated, true}};
    }
    if (keyword == "contains" && !schema.contains("minContains") &&
        !schema.contains("maxContains")) {
      return Json{
          {"type", "array"}, {"items", KTX_TRY(of(value, path, depth + 1))}, {kNegated, true}};
    }
    for (const NegatedBound& row : kNegatedBounds) {
      if (keyword != row.keyword || !is_numeric(value)) continue;
      if (row.more == 0) return Json{{"type", row.type}, {row.other, value}};
      const double count = number_value(value) + row.more;
      if (count < 0) return Json(false);
      return Json{{"type", row.type}, {row.other, count}};
    }
    return refused(path, keyword);
  }

  // Met without what it wants, or unmet without what it wants else.
  Result<Json> of_condition(const Json& schema, const std::string& path, int depth) {
    Json ways = Json::array();
    const Json unmet = KTX_TRY(of(schema["if"], path, depth + 1));
    for (const char* keyword : {"then", "else"}) {
      if (!schema.contains(keyword)) continue;
      Json broken = KTX_TRY(of(schema[keyword], path, depth + 1));
      const Json& condition = keyword[0] == 't' ? schema["if"] : unmet;
      ways.push_back({{"allOf", Json::array({condition, std::move(broken)})}, {kNegated, true}});
    }
    return any_of(std::move(ways));
  }

  static Json any_of(Json ways) {
    if (ways.empty()) return false;
    if (ways.size() == 1) return ways[0];
    return Json{{"anyOf", std::move(ways)}};
  }
  static Json unlike_number(const Json& step) {
    Json out = unlike({{"multipleOf", step}});
    out["type"] = "number";
    return out;
  }
  static Json unlike(Json what) { return Json{{kUnlike, Json::array({std::move(what)})}}; }

  Result<Json> of_type(const Json& schema, const std::string& path) {
    const std::vector<std::string> types = KTX_TRY(type_names(schema, path));
    const auto has = [&](std::string_view name) {
      return std::find(types.begin(), types.end(), name) != types.end();
    };
    Json others = Json::array();
    for (const char* type : {"string", "number", "boolean", "null", "array", "object"}) {
      const bool whole_numbers = std::string_view(type) == "number" && has("integer");
      if (!has(type) && !whole_numbers) others.push_back(type);
    }
    Json ways = Json::array();
    if (!others.empty()) ways.push_back({{"type", std::move(others)}});
    if (has("integer") && !has("number")) ways.push_back(unlike_number(1));
    return any_of(std::move(ways));
  }

  const Json& root_;
  SchemaWork& work_;
};

}  // namespace

Result<Json> negated(const Json& root, const Json& schema, const std::string& path,
                     SchemaWork& work) {
  return Negation(root, work).of(schema, path, 0);
}

}  // namespace ktx::text::grammar
