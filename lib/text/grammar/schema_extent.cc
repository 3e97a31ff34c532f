#include "lib/text/grammar/schema_extent.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/support/json_nesting.h"
#include "lib/text/exact_json.h"

namespace ktx::text::grammar {
namespace {

using Json = nlohmann::ordered_json;

// Nesting, and the bytes that the text has at least; without recursion of our own.
struct Extent {
  int depth = 0;
  size_t bytes = 0;
};
Extent extent_of(const Json& json) {
  std::vector<std::pair<const Json*, int>> todo = {{&json, 1}};
  Extent out;
  while (!todo.empty()) {
    const auto [value, depth] = todo.back();
    todo.pop_back();
    out.depth = std::max(out.depth, depth);
    out.bytes += 1;
    if (value->is_string()) out.bytes += value->get_ref<const std::string&>().size();
    if (depth > kMaxSchemaDepth || out.bytes > kMaxSchemaBytes) break;
    if (!value->is_structured()) continue;
    for (const auto& [key, item] : value->items()) {
      if (value->is_object()) out.bytes += key.size();
      todo.push_back({&item, depth + 1});
    }
  }
  return out;
}

Error too_long(size_t bytes) {
  return Error{
      fmt::format("the schema has {} bytes; at most {} are allowed", bytes, kMaxSchemaBytes)};
}

}  // namespace

Status check_extent(const Json& schema) {
  const Extent extent = extent_of(schema);
  if (extent.bytes > kMaxSchemaBytes) return too_long(extent.bytes);
  if (extent.depth > kMaxSchemaDepth) {
    return Error{fmt::format("the schema is nested deeper than {}", kMaxSchemaDepth)};
  }
  return {};
}

Result<Json> parse_schema_text(std::string_view text) {
  if (text.size() > kMaxSchemaBytes) return too_long(text.size());
  if (json_member_pairs(text) > kMaxMemberPairs) {
    return Error{
        "the schema has too many members in one object; at most 10000 are possible, "
        "fewer of long names"};
  }
  // The only exceptions here are nlohmann's; they say where the text is no JSON.
  try {
    Json schema = parse_json(text);
    return schema.is_discarded() ? Json::parse(text) : std::move(schema);
  } catch (const std::exception& e) {
    return Error{fmt::format("the schema is not JSON: {}", e.what())};
  }
}

}  // namespace ktx::text::grammar
