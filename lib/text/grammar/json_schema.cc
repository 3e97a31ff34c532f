#include "lib/text/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "lib/support/strings.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_drafts.h"
#include "lib/text/grammar/schema_extent.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_merge.h"
#include "lib/text/grammar/schema_pointer.h"
#include "lib/text/grammar/schema_scalars.h"
#include "lib/text/grammar/unique_list.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxMerges = 10'000;  // their cost is bounded by MergeWork
constexpr int kMaxConversions = 20'000;
// Work of all objects' optional properties: each may come behind any before it.
constexpr size_t kMaxOptionalWork = 2'500'000;

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Converter {
 public:
  Converter(const Json& root, GrammarRules& rules, JsonParts& parts, SchemaWork& work)
      : root_(root), g_(rules), json_(parts), work_(work) {}

  // The expression of a value; the rules that it names are complete.
  Result<int> convert() {
    KTX_TRY(check_extent(root_));
    const int value = KTX_TRY(rule_of("#"));
    while (!pending_.empty()) {
      const auto [rule, pointer] = pending_.front();
      pending_.pop_front();
      g_.set_rule(rule,
                  KTX_TRY(schema(*KTX_TRY(resolve_pointer(root_, pointer, pointer)), pointer, 0)));
    }
    return value;
  }

 private:
  static std::string at(const std::string& path, std::string_view key) {
    return fmt::format("{}/{}", path, key);
  }

  // The rule of a referenced schema, converted later: references may be recursive.
  Result<int> rule_of(const std::string& pointer) {
    const auto [found, added] = rules_.try_emplace(pointer, 0);
    if (added) {
      found->second = g_.add_rule(pointer);
      pending_.push_back({found->second, pointer});
    }
    return g_.rule(found->second);
  }

  // Without $ref and allOf: what they say is merged into the schema.
  Result<Json> flatten(const Json& json, const std::string& path, int depth) {
    if (++work_.merge_count > kMaxMerges || depth > kMaxSchemaDepth ||
        !work_.merging.spend_copy(json)) {
      return schema_error(path, "too many schemas are combined here; use fewer $ref and allOf");
    }
    if (!json.is_object()) return json;
    KTX_TRY(check(json, path));
    Json out = has_old_words(json) ? KTX_TRY(modern_words(json, path)) : json;
    out.erase("$id");
    const Json whole = out;
    out.erase("$ref");
    out.erase("allOf");
    if (const auto ref = whole.find("$ref"); ref != whole.end()) {
      if (!ref->is_string()) return wrong_type(path, "$ref", *ref, "a string");
      const Json* target = KTX_TRY(resolve_pointer(root_, ref->get<std::string>(), path));
      out = KTX_TRY(merge(KTX_TRY(flatten_part(*target, path, depth + 1)), out, path));
    }
    if (const auto all = whole.find("allOf"); all != whole.end()) {
      if (!all->is_array()) return wrong_type(path, "allOf", *all, "an array");
      for (const Json& part : *all) {
        out = KTX_TRY(merge(out, KTX_TRY(flatten_part(part, at(path, "allOf"), depth + 1)), path));
      }
    }
    return out;
  }
  // The same for a schema beside others: what its unevaluated* forbid does not depend on them.
  Result<Json> flatten_part(const Json& json, const std::string& path, int depth) {
    Json out = KTX_TRY(flatten(json, path, depth));
    KTX_TRY(close_unevaluated(out, path));
    return out;
  }
  Result<Json> merge(const Json& a, const Json& b, const std::string& path) {
    return merge_schemas(a, b, path, work_.merging);
  }

  Status check(const Json& json, const std::string& path) {
    KTX_TRY(check_keywords(json, path));
    if (&json != &root_) KTX_TRY(check_inner_id(json, path));
    return {};
  }

  Result<int> schema(const Json& json, const std::string& path, int depth) {
    if (++work_.conversions > kMaxConversions || g_.too_large()) {
      return schema_error(path, "the schema is too large here; make it smaller or use $ref");
    }
    if (depth > kMaxSchemaDepth) {
      return schema_error(path, fmt::format("schemas are nested deeper than {}", kMaxSchemaDepth));
    }
    if (json.is_boolean()) return json.get<bool>() ? json_.any_value() : g_.nothing();
    if (!json.is_object()) return schema_error(path, "expected an object or a boolean");
    KTX_TRY(check(json, path));
    if (const auto ref = json.find("$ref"); ref != json.end() && says_nothing(json, "$ref")) {
      if (!ref->is_string()) return wrong_type(path, "$ref", *ref, "a string");
      const std::string pointer = ref->get<std::string>();
      KTX_TRY(resolve_pointer(root_, pointer, path));
      return rule_of(pointer);
    }
    if (json.contains("$ref") || json.contains("allOf") || has_old_words(json)) {
      return schema(KTX_TRY(flatten(json, path, 0)), path, depth + 1);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (json.contains(keyword)) return any_of(json, keyword, path, depth);
    }
    if (json.contains("const") || json.contains("enum")) return values(json, path);
    const int value = KTX_TRY(typed(json, path, depth));
    const auto nullable = json.find("nullable");
    if (nullable == json.end() || *nullable != Json(true)) return value;
    return g_.alternatives({value, json_.null()});
  }

  Result<int> any_of(const Json& json, const char* keyword, const std::string& path, int depth) {
    const Json& branches = json[keyword];
    if (!branches.is_array()) return wrong_type(path, keyword, branches, "an array");
    Json beside = json;
    beside.erase(keyword);
    const bool alone = says_nothing(json, keyword);
    std::vector<int> ways;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string here = at(at(path, keyword), std::to_string(i));
      if (alone) {
        ways.push_back(KTX_TRY(schema(branches[i], here, depth + 1)));
        continue;
      }
      const Json branch = KTX_TRY(flatten_part(branches[i], here, 0));
      const Json merged = KTX_TRY(merge(KTX_TRY(flatten(beside, path, 0)), branch, here));
      ways.push_back(KTX_TRY(schema(merged, here, depth + 1)));
    }
    return g_.alternatives(std::move(ways));
  }

  // const and enum. Of the keywords beside them only `type` can be checked at once.
  Result<std::vector<Json>> listed_values(const Json& json, const std::string& path) {
    Json list = Json::array();
    if (json.contains("enum")) list = json["enum"];
    if (!list.is_array()) return wrong_type(path, "enum", list, "an array");
    if (json.contains("const")) {
      const Json& value = json["const"];
      const bool listed = std::find(list.begin(), list.end(), value) != list.end();
      list = !json.contains("enum") || listed ? Json::array({value}) : Json::array();
    }
    for (const auto& [name, value] : json.items()) {
      if (!type_of_keyword(name).empty() && name != "format") {
        return schema_error(path,
                            fmt::format("'{}' beside 'enum' or 'const' is not supported; leave it "
                                        "out",
                                        name));
      }
    }
    std::optional<std::vector<std::string>> types;
    if (json.contains("type")) types = KTX_TRY(type_names(json, path));
    std::vector<Json> out;
    for (const Json& value : list) {
      const bool fits = !types || std::any_of(types->begin(), types->end(), [&](const auto& type) {
        return is_type(value, type);
      });
      if (fits) out.push_back(value);
    }
    return out;
  }
  Result<int> values(const Json& json, const std::string& path) {
    std::vector<int> ways;
    for (const Json& value : KTX_TRY(listed_values(json, path))) {
      ways.push_back(g_.text(json_text(value)));
    }
    return g_.alternatives(std::move(ways));
  }

  Result<int> typed(const Json& json, const std::string& path, int depth) {
    std::vector<std::string> types;
    if (json.contains("type")) {
      types = KTX_TRY(type_names(json, path));
    } else {
      types = types_of_keywords(json);
      if (types.empty()) return json_.any_value();
    }
    std::vector<int> ways;
    for (const std::string& type : types) {
      if (type == "string") ways.push_back(KTX_TRY(string_schema(json, path, g_, json_)));
      if (type == "integer" || type == "number") {
        ways.push_back(KTX_TRY(number_schema(json, path, type == "integer", g_, json_)));
      }
      if (type == "boolean") ways.push_back(json_.boolean());
      if (type == "null") ways.push_back(json_.null());
      if (type == "array") ways.push_back(KTX_TRY(array(json, path, depth)));
      if (type == "object") ways.push_back(KTX_TRY(object(json, path, depth)));
    }
    return g_.alternatives(std::move(ways));
  }

  Result<int> array(const Json& json, const std::string& path, int depth) {
    const int min = KTX_TRY(schema_count(json, "minItems", path, 0));
    const int max = KTX_TRY(schema_count(json, "maxItems", path, kNoLimit));
    if (max != kNoLimit && max < min) return g_.nothing();
    const auto unique = json.find("uniqueItems");
    if (unique != json.end() && *unique != Json(false) && (max == kNoLimit || max > 1)) {
      if (*unique != Json(true)) return wrong_type(path, "uniqueItems", *unique, "true or false");
      return unique_array(json, path, min, max);
    }
    int item = json_.any_value();
    for (const char* keyword : {"unevaluatedItems", "items"}) {
      if (!json.contains(keyword)) continue;
      item = KTX_TRY(schema(json[keyword], at(path, keyword), depth + 1));
    }
    const auto prefix = json.find("prefixItems");
    if (prefix == json.end()) return json_.array(g_.list(item, json_.separator(), min, max));
    if (!prefix->is_array()) return wrong_type(path, "prefixItems", *prefix, "an array");
    // From the back: what may follow i items.
    const int size = static_cast<int>(prefix->size());
    const int more_max = max == kNoLimit ? kNoLimit : std::max(0, max - size);
    int rest = g_.repeat(g_.sequence({json_.separator(), item}), std::max(0, min - size), more_max);
    for (int i = size - 1; i >= 0; --i) {
      const std::string here = at(at(path, "prefixItems"), std::to_string(i));
      const int first = KTX_TRY(schema((*prefix)[static_cast<size_t>(i)], here, depth + 1));
      std::vector<int> ways;
      if (i >= min) ways.push_back(g_.text(""));
      if (max == kNoLimit || i < max) {
        std::vector<int> parts = {first, rest};
        if (i > 0) parts.insert(parts.begin(), json_.separator());
        ways.push_back(g_.sequence(parts));
      }
      rest = g_.alternatives(std::move(ways));
    }
    return json_.array(rest);
  }

  // No value twice: values that are listed, in their order.
  Result<int> unique_array(const Json& json, const std::string& path, int min, int max) {
    const auto listed = [](const Json& s) { return s.contains("enum") || s.contains("const"); };
    Json item = json.value("items", Json(true));
    if (item.is_object()) item = KTX_TRY(flatten(item, at(path, "items"), 0));
    if (item.is_object() && item.value("type", Json()) == "boolean" && !listed(item)) {
      item["enum"] = {false, true};
    }
    const bool plain = item.is_object() && listed(item) && !item.contains("anyOf") &&
                       !item.contains("oneOf") && !json.contains("prefixItems");
    if (!plain) {
      return schema_error(path, "keyword 'uniqueItems' is supported where 'items' has an 'enum'");
    }
    std::vector<int> texts;
    std::unordered_set<std::string> known;
    size_t bytes = 0;
    for (const Json& value : KTX_TRY(listed_values(item, at(path, "items")))) {
      // 1 and 1.0 are equal.
      const std::string key =
          value.is_number() ? fmt::format("{:.17g}", value.get<double>()) : json_text(value);
      if (!known.insert(key).second) continue;
      texts.push_back(g_.text(json_text(value)));
      bytes += key.size();
    }
    work_.optional_work += texts.size() * bytes / 2;
    if (work_.optional_work > kMaxOptionalWork) {
      return schema_error(
          path,
          fmt::format("'uniqueItems' of {} values; leave it out or list fewer", texts.size()));
    }
    const auto items = unique_list(g_, json_.separator(), texts, min, max);
    if (!items) return schema_error(path, items.error().message);
    return json_.array(*items);
  }

  Result<int> object(const Json& json, const std::string& path, int depth) {
    const Json properties = json.value("properties", Json::object());
    if (!properties.is_object()) return wrong_type(path, "properties", properties, "an object");
    const Json required = json.value("required", Json::array());
    if (!required.is_array()) return wrong_type(path, "required", required, "an array");
    // Said or not: an object whose schema has `properties` has no others by default.
    Json others = !json.contains("properties");
    const char* others_from = "additionalProperties";
    for (const char* keyword : {"unevaluatedProperties", "additionalProperties"}) {
      if (!json.contains(keyword)) continue;
      others = json[keyword];
      others_from = keyword;
    }
    const bool says_others = json.contains(others_from);
    std::vector<std::string> names;
    std::vector<int> members;
    std::vector<bool> is_required;
    std::unordered_set<std::string_view> needed_names, known_names;
    for (const Json& name : required) {
      if (!name.is_string()) return wrong_type(path, "required", name, "an array of strings");
      needed_names.insert(name.get_ref<const std::string&>());
    }
    const auto add = [&](const std::string& name, int value, bool needed) {
      names.push_back(name);
      members.push_back(json_.member(g_.text(json_quoted(name)), value));
      is_required.push_back(needed);
    };
    for (const auto& [name, value] : properties.items()) {
      const std::string here = at(at(path, "properties"), name);
      known_names.insert(name);
      add(name, KTX_TRY(schema(value, here, depth + 1)), needed_names.contains(name));
    }
    for (const Json& name : required) {
      const auto& text = name.get_ref<const std::string&>();
      if (!known_names.insert(text).second) continue;
      const Json value = says_others ? others : Json(true);
      add(text, KTX_TRY(schema(value, at(path, others_from), depth + 1)), true);
    }
    KTX_TRY(count_optional(names, is_required, path));
    int min = KTX_TRY(schema_count(json, "minProperties", path, 0));
    int max = KTX_TRY(schema_count(json, "maxProperties", path, kNoLimit));
    if (max != kNoLimit && max < min) return g_.nothing();
    const int certain = static_cast<int>(needed_names.size());
    if (min <= certain) min = 0;
    if (max != kNoLimit && others == Json(false) && max >= static_cast<int>(names.size())) {
      max = kNoLimit;
    }
    if ((min > 0 || max != kNoLimit) && !members.empty()) {
      return schema_error(path,
                          "'minProperties' and 'maxProperties' are supported without 'properties' "
                          "only; use 'required'");
    }
    if (min > 1) {
      return schema_error(path,
                          "'minProperties' above 1 is not supported, since a name can come twice; "
                          "use 'required'");
    }
    const Json key_schema = json.value("propertyNames", Json(true));
    const bool any_key = key_schema == Json(true) || key_schema == Json::object();
    if (!any_key && !names.empty()) {
      return schema_error(path, "'propertyNames' is supported without 'properties' only");
    }
    if (others != Json(false)) {
      const int value = KTX_TRY(schema(others, at(path, others_from), depth + 1));
      const int key = !any_key        ? KTX_TRY(property_name(key_schema, path, depth))
                      : names.empty() ? json_.string(0, kNoLimit)
                                      : json_.other_key(names);
      const int member = json_.member(key, value);
      if (members.empty()) return json_.object(g_.list(member, json_.separator(), min, max));
      members.push_back(g_.list(member, json_.separator(), 1, kNoLimit));
      is_required.push_back(false);
    }
    if (members.empty() && min > 0) return g_.nothing();
    return json_.object(g_.joined(json_.separator(), std::move(members), std::move(is_required)));
  }

  Status count_optional(const std::vector<std::string>& names, const std::vector<bool>& is_required,
                        const std::string& path) {
    size_t bytes = 0, optional = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (is_required[i]) continue;
      bytes += names[i].size();
      ++optional;
    }
    work_.optional_work += optional * bytes / 2;
    if (work_.optional_work <= kMaxOptionalWork) return {};
    return schema_error(path, fmt::format("too many properties that are not required, {} here; "
                                          "require some of them or leave them out",
                                          optional));
  }

  // A key: a string, and what `propertyNames` says.
  Result<int> property_name(const Json& names, const std::string& path, int depth) {
    const std::string here = at(path, "propertyNames");
    const Json key = KTX_TRY(flatten_part(names, here, 0));
    return schema(KTX_TRY(merge({{"type", "string"}}, key, here)), here, depth + 1);
  }

  const Json& root_;
  GrammarRules& g_;
  JsonParts& json_;
  SchemaWork& work_;
  std::unordered_map<std::string, int> rules_;
  std::deque<std::pair<int, std::string>> pending_;
};

}  // namespace

Result<int> add_schema(const Json& schema, GrammarRules& rules, JsonParts& parts,
                       SchemaWork& work) {
  return Converter(schema, rules, parts, work).convert();
}

Result<GrammarRules> schema_rules(const Json& schema) {
  GrammarRules g;
  JsonParts parts(g);
  SchemaWork work;
  g.root = g.add_rule("root");
  const int value = KTX_TRY(add_schema(schema, g, parts, work));
  g.set_rule(g.root, g.sequence({parts.space(), value}));
  return g;
}

Result<GrammarRules> parse_json_schema(std::string_view schema) {
  return schema_rules(KTX_TRY(parse_schema_text(schema)));
}

GrammarRules any_json_object() {
  GrammarRules g;
  JsonParts json(g);
  g.root = g.add_rule("root");
  g.set_rule(g.root, g.sequence({json.space(), json.any_object()}));
  return g;
}

}  // namespace ktx::text::grammar
