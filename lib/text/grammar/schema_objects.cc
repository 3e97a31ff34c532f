// Objects of a schema: properties in its order, then others.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "lib/text/grammar/schema_converter.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/schema_strings.h"
#include "lib/text/grammar/schema_values.h"
#include "lib/text/grammar/unique_list.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxKeyPatterns = 6;  // of patternProperties: a set of keys for each subset

}  // namespace

struct SchemaConverter::Members {
  Json properties, patterns;
  // Said or not: an object whose schema names properties has no others by default.
  Json others;
  const char* others_from = "additionalProperties";
  std::vector<std::string> names;
  std::vector<int> exprs;
  std::vector<bool> is_required;
  bool impossible = false;  // one that is required cannot be there
  int other = -1;           // one member of another name
};

Result<int> SchemaConverter::object(const Json& json, const std::string& path, int depth) {
  Members m;
  m.properties = json.value("properties", Json::object());
  if (!m.properties.is_object()) return wrong_type(path, "properties", m.properties, "an object");
  m.patterns = json.value("patternProperties", Json::object());
  if (!m.patterns.is_object()) {
    return wrong_type(path, "patternProperties", m.patterns, "an object");
  }
  const bool only_forbids = std::all_of(m.properties.begin(), m.properties.end(),
                                        [](const Json& value) { return value == Json(false); }) &&
                            !m.properties.empty();
  m.others = (!json.contains("properties") || only_forbids) && m.patterns.empty();
  for (const char* keyword : {"unevaluatedProperties", "additionalProperties"}) {
    if (!json.contains(keyword)) continue;
    m.others = json[keyword];
    m.others_from = keyword;
  }
  const Json unevaluated = json.value("unevaluatedProperties", Json(true));
  if (json.contains(kNegated) && unevaluated != Json(true)) {
    return schema_error(
        path,
        "'unevaluatedProperties' beside 'not', 'if' or 'oneOf' of properties is not supported");
  }
  KTX_TRY(named_members(json, path, depth, m));
  if (m.impossible) return g_.nothing();
  KTX_TRY(other_members(json, path, depth, m));
  return joined_members(json, path, m);
}

// What all that speaks of a name says of its value.
Result<Json> SchemaConverter::value_of_name(const Json& json, const std::string& name,
                                            const std::string& path) {
  const Json names = json.value("propertyNames", Json(true));
  if (!KTX_TRY(accepts_value(root_, names, name, at(path, "propertyNames"), work_))) {
    return Json(false);
  }
  Json parts = Json::array();
  if (const auto properties = json.find("properties");
      properties != json.end() && properties->contains(name)) {
    parts.push_back((*properties)[name]);
  }
  const Json patterns = json.value("patternProperties", Json::object());
  for (const auto& [pattern, value] : patterns.items()) {
    const Result<const RegularSet*> set = pattern_set(pattern, work_);
    if (!set) return schema_error(at(path, "patternProperties"), set.error().message);
    if ((*set)->contains(json_quoted(name))) parts.push_back(value);
  }
  if (parts.empty()) return Json();
  if (parts.size() == 1) return parts[0];
  return Json{{"allOf", std::move(parts)}};
}

Status SchemaConverter::named_members(const Json& json, const std::string& path, int depth,
                                      Members& m) {
  const Json required = json.value("required", Json::array());
  if (!required.is_array()) return wrong_type(path, "required", required, "an array");
  std::unordered_set<std::string> needed;
  for (const Json& name : required) {
    if (!name.is_string()) return wrong_type(path, "required", name, "an array of strings");
    needed.insert(name.get<std::string>());
  }
  const auto add = [&](const std::string& name, const Json& value,
                       const std::string& here) -> Status {
    const bool is_needed = needed.contains(name);
    if (value == Json(false) && is_needed) m.impossible = true;
    m.names.push_back(name);
    const int expr = KTX_TRY(schema(value, here, depth + 1));
    m.exprs.push_back(json_.member(g_.text(json_quoted(name)), expr));
    m.is_required.push_back(is_needed);
    return {};
  };
  const bool plain = m.patterns.empty() && !json.contains("propertyNames");
  for (const auto& [name, value] : m.properties.items()) {
    const std::string here = at(at(path, "properties"), name);
    KTX_TRY(add(name, plain ? value : KTX_TRY(value_of_name(json, name, path)), here));
  }
  const Json others = json.contains(m.others_from) ? m.others : Json(true);
  std::unordered_set<std::string> known(m.names.begin(), m.names.end());
  for (const Json& name : required) {
    const auto& text = name.get_ref<const std::string&>();
    if (!known.insert(text).second) continue;
    Json value = plain ? Json() : KTX_TRY(value_of_name(json, text, path));
    if (value.is_null()) value = others;
    KTX_TRY(add(text, value, at(path, m.others_from)));
  }
  return {};
}

// Members of other names: by which patterns match them.
Status SchemaConverter::other_members(const Json& json, const std::string& path, int depth,
                                      Members& m) {
  const Json key_schema = json.value("propertyNames", Json(true));
  const bool any_key = key_schema == Json(true) || key_schema == Json::object();
  if (m.patterns.empty()) {
    if (m.others == Json(false)) return {};
    const int value = KTX_TRY(schema(m.others, at(path, m.others_from), depth + 1));
    int key = -1;
    if (any_key) {
      key = m.names.empty() ? json_.string(0, kNoLimit) : json_.other_key(m.names);
    } else if (m.names.empty()) {
      key = KTX_TRY(property_name(key_schema, path, depth));
    } else {
      RegularSet keys = KTX_TRY(property_names(key_schema, path));
      keys = KTX_TRY(without(keys, KTX_TRY(listed_strings(m.names, work_)), work_.regular));
      key = g_.set(std::move(keys));
    }
    m.other = json_.member(key, value);
    return {};
  }
  const std::string here = at(path, "patternProperties");
  if (m.patterns.size() > kMaxKeyPatterns) {
    return schema_error(here, fmt::format("{} patterns; at most {} are supported",
                                          m.patterns.size(), kMaxKeyPatterns));
  }
  // Keys with what holds for them, split by one pattern after the other.
  struct Keys {
    RegularSet set;
    Json parts = Json::array();
  };
  const auto sets = [&]() -> Result<std::vector<Keys>> {
    RegularSet all = KTX_TRY(property_names(key_schema, path));
    all = KTX_TRY(without(all, KTX_TRY(listed_strings(m.names, work_)), work_.regular));
    std::vector<Keys> split = {{std::move(all), Json::array()}};
    for (const auto& [pattern, value] : m.patterns.items()) {
      const RegularSet* matching = KTX_TRY(pattern_set(pattern, work_));
      std::vector<Keys> next;
      for (Keys& keys : split) {
        Keys in = {KTX_TRY(common(keys.set, *matching, work_.regular)), keys.parts};
        in.parts.push_back(value);
        Keys out = {KTX_TRY(without(keys.set, *matching, work_.regular)), std::move(keys.parts)};
        for (Keys* part : {&in, &out}) {
          if (!part->set.is_empty()) next.push_back(std::move(*part));
        }
      }
      split = std::move(next);
    }
    return split;
  };
  Result<std::vector<Keys>> split = sets();
  if (!split) return schema_error(here, split.error().message);
  std::vector<int> ways;
  for (Keys& keys : *split) {
    const Json value = keys.parts.empty()       ? m.others
                       : keys.parts.size() == 1 ? keys.parts[0]
                                                : Json{{"allOf", keys.parts}};
    if (value == Json(false)) continue;
    const int expr = KTX_TRY(schema(value, here, depth + 1));
    ways.push_back(json_.member(g_.set(std::move(keys.set)), expr));
  }
  if (!ways.empty()) m.other = g_.alternatives(std::move(ways));
  return {};
}

Result<int> SchemaConverter::joined_members(const Json& json, const std::string& path, Members& m) {
  int min = KTX_TRY(schema_count(json, "minProperties", path, 0));
  int max = KTX_TRY(schema_count(json, "maxProperties", path, kNoLimit));
  if (max != kNoLimit && max < min) return g_.nothing();
  const auto certain =
      static_cast<int>(std::count(m.is_required.begin(), m.is_required.end(), true));
  if (min <= certain) min = 0;
  if (m.other < 0 && max >= static_cast<int>(m.names.size())) max = kNoLimit;
  // Another name can come twice, which is one property.
  if (min > 1 && min > static_cast<int>(m.names.size()) + 1 && m.other >= 0) {
    return schema_error(path,
                        "'minProperties' above 1 is not supported, since a name can come twice; "
                        "use 'required'");
  }
  if (m.exprs.empty()) {
    if (m.other < 0) return min > 0 ? g_.nothing() : json_.object(g_.text(""));
    if (min > 1) {
      return schema_error(path,
                          "'minProperties' above 1 is not supported, since a name can come twice; "
                          "use 'required'");
    }
    return json_.object(g_.list(m.other, json_.separator(), min, max));
  }
  if (min > 0 || max != kNoLimit) {
    const auto members = counted_members(
        g_, json_.separator(), {std::move(m.exprs), std::move(m.is_required), m.other}, min, max);
    if (!members) return schema_error(path, members.error().message);
    return json_.object(*members);
  }
  if (m.other >= 0) {
    m.exprs.push_back(g_.list(m.other, json_.separator(), 1, kNoLimit));
    m.is_required.push_back(false);
  }
  return json_.object(g_.joined(json_.separator(), std::move(m.exprs), std::move(m.is_required)));
}

// Keys as a set: any strings, or those that `propertyNames` describes.
Result<RegularSet> SchemaConverter::property_names(const Json& names, const std::string& path) {
  const std::string here = at(path, "propertyNames");
  const Json key = KTX_TRY(flatten_part(names, here, 0));
  const Json merged = KTX_TRY(merge({{"type", "string"}}, key, here));
  if (merged == Json(false)) return RegularSet{};
  if (merged.contains("enum") || merged.contains("const")) {
    return listed_strings(Json(KTX_TRY(listed_values(merged, here))), work_);
  }
  if (merged.contains("anyOf") || merged.contains("oneOf") || merged.contains(kAlso)) {
    return schema_error(here, "choices beside other properties are not supported");
  }
  const auto types = KTX_TRY(type_names(merged, here));
  if (types.empty()) return RegularSet{};
  return string_set(merged, here, work_);
}

// A key: a string, and what `propertyNames` says.
Result<int> SchemaConverter::property_name(const Json& names, const std::string& path, int depth) {
  const std::string here = at(path, "propertyNames");
  const Json key = KTX_TRY(flatten_part(names, here, 0));
  return schema(KTX_TRY(merge({{"type", "string"}}, key, here)), here, depth + 1);
}

}  // namespace ktx::text::grammar
