#include "lib/server/request/tool_parameters.h"

#include <algorithm>
#include <string_view>

#include "lib/support/strings.h"

namespace ktx::server {
namespace {

constexpr int kMaxSchemaDepth = 8;

// "#/$defs/Place" in `root`; null where there is none.
const Json* find_local(const Json& root, std::string_view ref) {
  if (!ref.starts_with("#")) return nullptr;
  const Json* at = &root;
  const std::vector<std::string_view> parts = split(ref.substr(1), '/');
  for (size_t i = 1; i < parts.size(); ++i) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(std::string(parts[i]));
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

// Does a schema speak of values of this type, beside others maybe?
bool speaks_of(const Json& schema, std::string_view type, const Json& root, int depth) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return false;
  const bool of_null = type == "null";
  const auto is_such = [&](const Json& value) {
    return of_null ? value.is_null() : value.is_string();
  };
  if (of_null && schema.contains("nullable") && schema["nullable"] == Json(true)) return true;
  if (const auto given = schema.find("type"); given != schema.end()) {
    if (given->is_array()) return std::count(given->begin(), given->end(), Json(type)) > 0;
    return *given == Json(type);
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    const auto others = std::find_if(values->begin(), values->end(), [](const Json& value) {
      return !value.is_string() && !value.is_null();
    });
    return others == values->end() && std::any_of(values->begin(), values->end(), is_such);
  }
  if (schema.contains("const")) return is_such(schema["const"]);
  if (const auto ref = schema.find("$ref"); ref != schema.end() && ref->is_string()) {
    const Json* found = find_local(root, ref->get_ref<const std::string&>());
    return found != nullptr && speaks_of(*found, type, root, depth + 1);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto parts = schema.find(key);
    if (parts == schema.end() || !parts->is_array()) continue;
    const bool any = std::any_of(parts->begin(), parts->end(), [&](const Json& part) {
      return speaks_of(part, type, root, depth + 1);
    });
    if (any) return true;
  }
  return false;
}

}  // namespace

std::vector<text::OfferedTool> offered_tools(const Json& tools) {
  std::vector<text::OfferedTool> out;
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    text::OfferedTool& offered = out.emplace_back();
    offered.name = function["name"].get<std::string>();
    const Json& root = function["parameters"];
    const auto properties = root.find("properties");
    if (properties == root.end() || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->items()) {
      if (!speaks_of(schema, "string", root, 0)) continue;
      offered.text_parameters.push_back(name);
      if (speaks_of(schema, "null", root, 0)) offered.nullable_texts.push_back(name);
    }
  }
  return out;
}

}  // namespace ktx::server
