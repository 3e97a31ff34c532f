#include "lib/text/grammar/schema_drafts.h"

#include <algorithm>
#include <vector>

#include "lib/text/grammar/schema_keywords.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

bool is_boolean(const Json& schema, const char* keyword) {
  const auto value = schema.find(keyword);
  return value != schema.end() && value->is_boolean();
}
bool is_tuple(const Json& schema) {
  const auto items = schema.find("items");
  return items != schema.end() && items->is_array();
}

// Draft 4: the bound itself stands in the other keyword.
void move_bound(Json& schema, const char* keyword, const char* exclusive) {
  if (!is_boolean(schema, exclusive)) return;
  const bool open = schema[exclusive].get<bool>();
  schema.erase(exclusive);
  if (!open || !schema.contains(keyword)) return;
  schema[exclusive] = schema[keyword];
  schema.erase(keyword);
}

Status forbid_types(Json& schema, const Json& unwanted, const std::string& path) {
  const std::vector<std::string> out = KTX_TRY(type_names(unwanted, path));
  std::vector<std::string> types = {"string", "number", "boolean", "null", "array", "object"};
  if (schema.contains("type")) types = KTX_TRY(type_names(schema, path));
  const auto is_out = [&](std::string_view type) {
    return std::find(out.begin(), out.end(), type) != out.end();
  };
  Json left = Json::array();
  for (const std::string& type : types) {
    if (is_out(type) || (type == "integer" && is_out("number"))) continue;
    if (type == "number" && is_out("integer")) {
      return schema_error(path, "'not' of integers beside numbers is not supported; leave it out");
    }
    left.push_back(type);
  }
  schema["type"] = std::move(left);
  if (is_out("null")) schema.erase("nullable");
  return {};
}

// The values of `enum` or `const` that are none of `unwanted`.
void forbid_values(Json& schema, const Json& unwanted) {
  Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
  const auto is_out = [&](const Json& value) {
    return std::find(unwanted.begin(), unwanted.end(), value) != unwanted.end();
  };
  Json left = Json::array();
  for (const Json& value : values) {
    if (!is_out(value)) left.push_back(value);
  }
  schema["enum"] = std::move(left);
}

Status apply_not(Json& schema, const std::string& path) {
  const Json unwanted = schema["not"];
  schema.erase("not");
  if (unwanted == Json(false)) return {};
  if (!unwanted.is_object() && !unwanted.is_boolean()) {
    return wrong_type(path, "not", unwanted, "a schema");
  }
  if (unwanted.is_boolean() || says_nothing(unwanted, "")) {
    schema["enum"] = Json::array();
    schema.erase("const");
    return {};
  }
  const bool lists =
      schema.contains("const") || (schema.contains("enum") && schema["enum"].is_array());
  if (unwanted.contains("type") && says_nothing(unwanted, "type")) {
    return forbid_types(schema, unwanted, path);
  }
  if (lists && unwanted.contains("const") && says_nothing(unwanted, "const")) {
    forbid_values(schema, Json::array({unwanted["const"]}));
    return {};
  }
  if (lists && unwanted.contains("enum") && unwanted["enum"].is_array() &&
      says_nothing(unwanted, "enum")) {
    forbid_values(schema, unwanted["enum"]);
    return {};
  }
  return schema_error(path,
                      "keyword 'not' is supported with 'type' alone, or with 'enum' or 'const' "
                      "beside them; leave it out");
}

}  // namespace

bool has_old_words(const Json& schema) {
  return schema.contains("not") || schema.contains("additionalItems") || is_tuple(schema) ||
         is_boolean(schema, "exclusiveMinimum") || is_boolean(schema, "exclusiveMaximum");
}

Result<Json> modern_words(const Json& schema, const std::string& path) {
  Json out = schema;
  move_bound(out, "minimum", "exclusiveMinimum");
  move_bound(out, "maximum", "exclusiveMaximum");
  if (is_tuple(out)) {
    if (out.contains("prefixItems")) {
      return schema_error(path, "'prefixItems' beside a list of 'items'; leave one out");
    }
    out["prefixItems"] = out["items"];
    out.erase("items");
    if (out.contains("additionalItems")) out["items"] = out["additionalItems"];
  }
  // Beside one schema for all items it says nothing.
  out.erase("additionalItems");
  if (out.contains("not")) KTX_TRY(apply_not(out, path));
  return out;
}

}  // namespace ktx::text::grammar
