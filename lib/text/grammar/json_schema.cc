#include "lib/text/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/text/exact_json.h"
#include "lib/text/grammar/json_parts.h"
#include "lib/text/grammar/schema_conditions.h"
#include "lib/text/grammar/schema_converter.h"
#include "lib/text/grammar/schema_disjoint.h"
#include "lib/text/grammar/schema_drafts.h"
#include "lib/text/grammar/schema_extent.h"
#include "lib/text/grammar/schema_keywords.h"
#include "lib/text/grammar/schema_negation.h"
#include "lib/text/grammar/schema_numbers.h"
#include "lib/text/grammar/schema_plain.h"
#include "lib/text/grammar/schema_pointer.h"
#include "lib/text/grammar/schema_strings.h"
#include "lib/text/grammar/schema_values.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxMerges = 10'000;  // their cost is bounded by MergeWork
constexpr int kMaxConversions = 20'000;
constexpr int kMaxDepth = 250;          // of schemas in each other; a condition takes three
constexpr int kMaxImpossibleDepth = 4;  // how deep a contradiction is looked for

// No user's keyword may look like one of ours.
Status refuse_own_keywords(const Json& root) {
  std::vector<const Json*> todo = {&root};
  while (!todo.empty()) {
    const Json& value = *todo.back();
    todo.pop_back();
    if (!value.is_structured()) continue;
    for (const auto& [key, item] : value.items()) {
      if (value.is_object() && is_own_keyword(key)) {
        return Error{"the schema has a name that begins with the character U+0001"};
      }
      if (item.is_structured()) todo.push_back(&item);
    }
  }
  return {};
}

}  // namespace

Result<int> SchemaConverter::convert() {
  KTX_TRY(refuse_own_keywords(root_));
  const int value = KTX_TRY(rule_of("#"));
  while (!pending_.empty()) {
    const auto [rule, pointer] = pending_.front();
    pending_.pop_front();
    g_.set_rule(rule,
                KTX_TRY(schema(*KTX_TRY(resolve_pointer(root_, pointer, pointer)), pointer, 0)));
  }
  return value;
}

std::string SchemaConverter::at(const std::string& path, std::string_view key) {
  return fmt::format("{}/{}", path, key);
}

// The rule of a referenced schema, converted later: references may be recursive.
Result<int> SchemaConverter::rule_of(const std::string& pointer) {
  const auto [found, added] = rules_.try_emplace(pointer, 0);
  if (added) {
    found->second = g_.add_rule(pointer);
    pending_.push_back({found->second, pointer});
  }
  return g_.rule(found->second);
}

Status SchemaConverter::check(const Json& json, const std::string& path) {
  KTX_TRY(check_keywords(json, path, &g_.notes));
  if (&json != &root_) KTX_TRY(check_inner_id(json, path));
  return {};
}

// Without $ref, allOf, conditions and old words: what they say is merged into the schema.
Result<Json> SchemaConverter::flatten(const Json& json, const std::string& path, int depth) {
  if (++work_.merge_count > kMaxMerges || depth > kMaxSchemaDepth ||
      !work_.merging.spend_copy(json)) {
    return schema_error(path, "too many schemas are combined here; use fewer $ref and allOf");
  }
  if (!json.is_object()) return json;
  KTX_TRY(check(json, path));
  Json out = has_old_words(json) ? KTX_TRY(modern_words(json, path)) : json;
  out.erase("$id");
  if (!out.contains("contains")) out.erase("minContains"), out.erase("maxContains");
  if (has_conditions(out)) out = KTX_TRY(without_conditions(root_, out, path, work_));
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
Result<Json> SchemaConverter::flatten_part(const Json& json, const std::string& path, int depth) {
  Json out = KTX_TRY(flatten(json, path, depth));
  KTX_TRY(close_unevaluated(out, path));
  return out;
}
Result<Json> SchemaConverter::merge(const Json& a, const Json& b, const std::string& path) {
  return merge_schemas(a, b, path, work_.merging);
}
Result<Json> SchemaConverter::merge_parts(const Json& a, const Json& b, const std::string& path) {
  return flatten(KTX_TRY(merge(a, KTX_TRY(flatten_part(b, path, 0)), path)), path, 0);
}

// Nothing can be a value of it, as far as listed values and required properties show.
// Contradictions are left out of choices early: each `if` doubles them.
Result<bool> SchemaConverter::is_impossible(Json& json, const std::string& path, int depth) {
  if (!json.is_object()) return json == Json(false);
  if (json.contains("type") && json["type"].is_array() && json["type"].empty()) return true;
  if (json.contains("enum") || json.contains("const")) {
    return KTX_TRY(listed_values(json, path)).empty();
  }
  if (depth >= kMaxImpossibleDepth || !json.contains("required") || !json.contains("properties")) {
    return false;
  }
  for (const Json& name : json["required"]) {
    if (!name.is_string()) continue;
    const auto property = json["properties"].find(name.get<std::string>());
    if (property == json["properties"].end()) continue;
    if (*property == Json(false)) return true;
    if (!property->contains("allOf")) continue;
    *property = KTX_TRY(flatten(*property, path, 0));
    if (KTX_TRY(is_impossible(*property, path, depth + 1))) return true;
  }
  return false;
}

Result<int> SchemaConverter::schema(const Json& json, const std::string& path, int depth) {
  Result<int> out = whole_schema(json, path, depth);
  const bool spent = g_.too_large() || work_.conversions > kMaxConversions || depth > kMaxDepth;
  return out || !work_.lenient || spent ? std::move(out)
                                        : looser_schema(json, out.error(), path, depth);
}

// The same schema, made looser step by step until it can be converted: choices may overlap, then
// only types, names and listed values stay, then only types.
Result<int> SchemaConverter::looser_schema(const Json& json, const Error& error,
                                           const std::string& path, int depth) {
  add_note(fmt::format("{}; this part is passed over", error.message), &g_.notes);
  if (!json.is_object()) return json_.any_value();
  Json choices = json;
  if (json.contains("oneOf") && !json.contains("anyOf")) choices["anyOf"] = choices["oneOf"];
  choices.erase("oneOf");
  const auto only = [&](std::initializer_list<const char*> names) {
    Json out = Json::object();
    for (const char* name : names) {
      if (json.contains(name)) out[name] = json[name];
    }
    return out;
  };
  const Json looser[] = {choices, only({"type", "properties", "required", "items", "enum"}),
                         only({"type"})};
  for (const Json& one : looser) {
    if (one == json) continue;
    Result<int> out = whole_schema(one, path, depth);
    if (out || g_.too_large()) return out;
  }
  return json_.any_value();
}

Result<int> SchemaConverter::whole_schema(const Json& json, const std::string& path, int depth) {
  if (++work_.conversions > kMaxConversions || g_.too_large()) {
    return schema_error(path, "the schema is too large here; make it smaller or use $ref");
  }
  if (depth > kMaxDepth) {
    return schema_error(path, fmt::format("schemas are nested deeper than {}", kMaxDepth));
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
  if (json.contains("$ref") || json.contains("allOf") || has_old_words(json) ||
      has_conditions(json)) {
    return schema(KTX_TRY(flatten(json, path, 0)), path, depth + 1);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (json.contains(keyword)) return any_of(json, keyword, path, depth);
  }
  // One choice after the other.
  if (const auto also = json.find(kAlso); also != json.end()) {
    Json rest = json;
    const Json next = (*also)[0];
    rest[kAlso].erase(0);
    if (rest[kAlso].empty()) rest.erase(kAlso);
    return schema(KTX_TRY(merge(rest, next, path)), path, depth + 1);
  }
  if (json.contains("const") || json.contains("enum")) return values(json, path);
  const int value = KTX_TRY(typed(json, path, depth));
  const auto nullable = json.find("nullable");
  if (nullable == json.end() || *nullable != Json(true)) return value;
  return g_.alternatives({value, json_.null()});
}

// The branches with what stands beside them; of a oneOf each without values of the others.
Result<std::vector<Json>> SchemaConverter::branches_of(const Json& json, const char* keyword,
                                                       const std::string& path) {
  const Json& given = json[keyword];
  Json beside = json;
  beside.erase(keyword);
  beside = KTX_TRY(flatten(beside, path, 0));
  std::vector<Json> branches;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string here = at(at(path, keyword), std::to_string(i));
    branches.push_back(KTX_TRY(merge(beside, KTX_TRY(flatten_part(given[i], here, 0)), here)));
  }
  if (std::string_view(keyword) == "anyOf") return branches;
  std::vector<Json> out = branches;
  for (size_t i = 0; i < branches.size(); ++i) {
    // Those that can have values in common with it: as it is, or, once more is merged into it, at
    // all.
    std::vector<size_t> near;
    for (const bool whole : {true, false}) {
      if (!whole && near.empty()) break;
      near.clear();
      for (size_t j = 0; j < branches.size(); ++j) {
        if (i != j && !are_disjoint(root_, branches[i], branches[j], whole, work_)) {
          near.push_back(j);
        }
      }
    }
    for (const size_t j : near) {
      const std::string here = at(at(path, keyword), std::to_string(j));
      const Result<Json> others = negated(root_, given[j], here, work_);
      if (!others) {
        return schema_error(at(path, keyword),
                            fmt::format("a value may fit both branch {} and {}; use anyOf, or give "
                                        "them a property with different 'const' ({})",
                                        std::min(i, j), std::max(i, j), others.error().message));
      }
      out[i] = KTX_TRY(merge_parts(out[i], *others, here));
    }
  }
  return out;
}

Result<int> SchemaConverter::any_of(const Json& json, const char* keyword, const std::string& path,
                                    int depth) {
  const Json& branches = json[keyword];
  if (!branches.is_array()) return wrong_type(path, keyword, branches, "an array");
  std::vector<int> ways;
  // As they are: references stay rules of their own.
  bool alone = says_nothing(json, keyword);
  for (size_t i = 0; alone && keyword[0] == 'o' && i < branches.size(); ++i) {
    for (size_t j = 0; alone && j < branches.size(); ++j) {
      alone = i == j || are_disjoint(root_, branches[i], branches[j], true, work_);
    }
  }
  if (alone) {
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string here = at(at(path, keyword), std::to_string(i));
      ways.push_back(KTX_TRY(schema(branches[i], here, depth + 1)));
    }
    return g_.alternatives(std::move(ways));
  }
  std::vector<Json> merged = KTX_TRY(branches_of(json, keyword, path));
  for (size_t i = 0; i < merged.size(); ++i) {
    const std::string here = at(at(path, keyword), std::to_string(i));
    if (KTX_TRY(is_impossible(merged[i], here, 0))) continue;
    ways.push_back(KTX_TRY(schema(merged[i], here, depth + 1)));
  }
  return g_.alternatives(std::move(ways));
}

// Those of const and enum that the keywords beside them accept.
Result<std::vector<Json>> SchemaConverter::listed_values(const Json& json,
                                                         const std::string& path) {
  const Json list = json.contains("enum") ? json["enum"] : Json::array({json["const"]});
  if (!list.is_array()) return wrong_type(path, "enum", list, "an array");
  Json beside = json;
  beside.erase("enum");
  std::vector<Json> out;
  for (const Json& value : list) {
    if (KTX_TRY(accepts_value(root_, beside, value, path, work_))) out.push_back(value);
  }
  return out;
}
Result<int> SchemaConverter::values(const Json& json, const std::string& path) {
  std::vector<int> ways;
  for (const Json& value : KTX_TRY(listed_values(json, path))) {
    ways.push_back(g_.text(json_text(value)));
  }
  return g_.alternatives(std::move(ways));
}

Result<int> SchemaConverter::typed(const Json& json, const std::string& path, int depth) {
  std::vector<std::string> types;
  const auto unlike = json.find(kUnlike);
  if (json.contains("type")) {
    types = KTX_TRY(type_names(json, path));
  } else {
    types = types_of_keywords(json);
    if (types.empty() && unlike == json.end()) return json_.any_value();
    if (types.empty()) types = {"string", "number", "boolean", "null", "array", "object"};
  }
  const auto is_out = [&](const Json& value) {
    return unlike != json.end() &&
           std::any_of(unlike->begin(), unlike->end(), [&](const Json& part) {
             const Json values = part.value("enum", Json::array());
             return std::find(values.begin(), values.end(), value) != values.end();
           });
  };
  std::vector<int> ways;
  for (const std::string& type : types) {
    if (type == "string") ways.push_back(KTX_TRY(string_schema(json, path, g_, json_, work_)));
    if (type == "integer" || type == "number") {
      ways.push_back(KTX_TRY(number_schema(json, path, type == "integer", g_, json_, work_)));
    }
    if (type == "boolean") {
      for (const bool value : {true, false}) {
        if (!is_out(value)) ways.push_back(g_.text(value ? "true" : "false"));
      }
    }
    if (type == "null" && !is_out(nullptr)) ways.push_back(json_.null());
    if (type != "array" && type != "object") continue;
    for (const Json& part : unlike == json.end() ? Json::array() : *unlike) {
      for (const Json& value : part.value("enum", Json::array())) {
        if (!is_type(value, type)) continue;
        return schema_error(path, fmt::format("'not' of an {} as a whole is not supported; leave "
                                              "it out",
                                              type));
      }
    }
    ways.push_back(type == "array" ? KTX_TRY(array(json, path, depth))
                                   : KTX_TRY(object(json, path, depth)));
  }
  return g_.alternatives(std::move(ways));
}

Result<int> add_schema(const Json& schema, GrammarRules& rules, JsonParts& parts,
                       SchemaWork& work) {
  KTX_TRY(check_extent(schema));
  const Json plain = plain_schema(schema);
  return SchemaConverter(plain, rules, parts, work).convert();
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
