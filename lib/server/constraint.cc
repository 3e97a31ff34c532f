#include "lib/server/constraint.h"

#include <fmt/format.h>

namespace ktx::server {

std::optional<ApiError> read_response_format(const Json& format, Constraint& constraint) {
  const std::string param = "response_format";
  const auto type = format.find("type");
  if (type == format.end() || !type->is_string()) {
    return ApiError{400, "'response_format' has no type", param, ""};
  }
  const std::string name = type->get<std::string>();
  if (name == "text") return std::nullopt;
  if (name == "json_object") {
    constraint.kind = Constraint::Kind::JsonObject;
    return std::nullopt;
  }
  if (name == "json_schema") {
    const auto wrapper = format.find("json_schema");
    const Json* schema = nullptr;
    if (wrapper != format.end() && wrapper->is_object() && wrapper->contains("schema")) {
      schema = &(*wrapper)["schema"];
    } else if (format.contains("schema")) {
      schema = &format["schema"];
    }
    if (schema == nullptr || !schema->is_object()) {
      return ApiError{400, "'response_format.json_schema.schema' is no object",
                      param + ".json_schema", ""};
    }
    constraint.kind = Constraint::Kind::JsonSchema;
    constraint.schema = *schema;
    return std::nullopt;
  }
  return ApiError{400,
                  fmt::format("'response_format.type' is {}, expected text, json_object or "
                              "json_schema",
                              show(*type)),
                  param + ".type", ""};
}

std::optional<ApiError> make_filter(const ServedModel&, const Constraint& constraint,
                                    std::unique_ptr<runtime::TokenFilter>&) {
  if (constraint.kind == Constraint::Kind::None) return std::nullopt;
  return ApiError{501, "this version cannot constrain answers to a schema or grammar",
                  "response_format", ""};
}

}  // namespace ktx::server
