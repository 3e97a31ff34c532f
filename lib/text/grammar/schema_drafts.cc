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

}  // namespace

bool has_old_words(const Json& schema) {
  return schema.contains("additionalItems") || is_tuple(schema) ||
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
  return out;
}

}  // namespace ktx::text::grammar
