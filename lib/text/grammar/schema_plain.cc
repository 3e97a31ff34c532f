#include "lib/text/grammar/schema_plain.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lib/text/grammar/schema_keywords.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Their members have names of the user's, each with a schema.
constexpr std::string_view kNamed[] = {"properties",       "patternProperties", "$defs",
                                       "definitions",      "dependencies",      "dependentSchemas",
                                       "dependentRequired"};
constexpr std::string_view kValues[] = {"const", "enum", "default", "example", "examples"};

template <typename Names>
bool is_one_of(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Calls `visit(schema, pointer)` for the schema and those within it.
template <typename Visit>
void each_schema(Json& json, const std::string& pointer, bool named, const Visit& visit) {
  if (!json.is_structured()) return;
  if (json.is_object() && !named) visit(json, pointer);
  size_t index = 0;
  for (const auto& [key, value] : json.items()) {
    std::string name = json.is_object() ? key : std::to_string(index++);
    const bool is_keyword = json.is_object() && !named;
    if (is_keyword && is_one_of(kValues, name)) continue;
    const bool holds_names = is_keyword && is_one_of(kNamed, name);
    std::string step;
    for (const char c : name) {
      step += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
    }
    each_schema(value, pointer + "/" + step, holds_names, visit);
  }
}

std::string text_of(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found != schema.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

Json plain_schema(const Json& schema) {
  Json out = schema;
  std::unordered_map<std::string, std::string> names;  // "#place": the pointer; "": several have it
  const auto add = [&](const std::string& name, const std::string& pointer) {
    const auto [known, added] = names.try_emplace(name, pointer);
    if (!added) known->second = "";
  };
  each_schema(out, "#", false, [&](Json& part, const std::string& pointer) {
    for (auto member = part.begin(); member != part.end();) {
      const bool unset = member->is_null() && !is_one_of(kValues, member.key());
      const bool no_list = member->is_null() && member.key() == "enum";
      if (unset || no_list) {
        member = part.erase(member);
      } else {
        ++member;
      }
    }
    if (const std::string anchor = text_of(part, "$anchor"); !anchor.empty()) {
      add("#" + anchor, pointer);
    }
    std::string id = text_of(part, "$id");
    if (id.ends_with('#')) id.pop_back();
    if (!id.empty()) add(id, pointer);
  });
  std::string own = text_of(out.is_object() ? out : Json::object(), "$id");
  if (own.ends_with('#')) own.pop_back();
  each_schema(out, "#", false, [&](Json& part, const std::string&) {
    std::string ref = text_of(part, "$ref");
    if (ref.empty() || ref == "#" || ref.starts_with("#/")) return;
    if (!own.empty() && ref.starts_with(own + "#")) ref = ref.substr(own.size());
    const auto known = names.find(ref);
    if (known != names.end() && !known->second.empty()) ref = known->second;
    if (ref.starts_with('#')) part["$ref"] = ref;
  });
  return out;
}

}  // namespace ktx::text::grammar
