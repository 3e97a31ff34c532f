#include "lib/server/request/constraint_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/support/strings.h"

namespace ktx::server {
namespace {

using Kind = Constraint::Kind;

enum class Form { Gbnf, Regex, Schema, Choice, Object, Refused };
struct FieldRow {
  std::string_view object;
  const char* name;
  Form form;
};
constexpr FieldRow kFields[] = {
#define KTX_CONSTRAINT_FIELD(object, name, form) {object, name, Form::form},
#include "lib/server/request/constraint_fields.def"
};
// Of `structured_outputs`, without meaning for an answer.
constexpr std::string_view kPassedOver[] = {"disable_fallback", "_backend", "_backend_was_auto"};
constexpr std::string_view kFormatFields[] = {"type",   "json_schema", "schema",  "value",  "name",
                                              "strict", "description", "grammar", "pattern"};
// Fields of protocols that have a schema within them.
constexpr std::string_view kOthers[] = {"response_format", "format", "tools"};
constexpr std::string_view kWrapperFields[] = {"name", "description", "schema", "strict"};

bool is_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("") ||
         (value.is_structured() && value.empty());
}

void set(Constraint made, const std::string& field, FieldReader& in, Constraint& constraint) {
  if (constraint.kind != Kind::None) {
    return in.fail(field, fmt::format("'{}' and '{}' both constrain the answer; send one of them",
                                      constraint.field, field));
  }
  made.field = field;
  constraint = std::move(made);
}

void set_text(Kind kind, const Json& value, const std::string& field, FieldReader& in,
              Constraint& constraint) {
  if (!value.is_string()) {
    return in.fail(field, fmt::format("'{}' is {}, expected a string", field, show(value)));
  }
  Constraint made;
  made.kind = kind;
  made.text = value.get<std::string>();
  if (made.text.empty()) return;
  set(std::move(made), field, in, constraint);
}

void set_schema(const Json& value, const std::string& field, FieldReader& in,
                Constraint& constraint) {
  Constraint made;
  made.kind = Kind::JsonSchema;
  made.schema = value.is_string() ? parse_nested(value.get_ref<const std::string&>()) : value;
  if (!made.schema.is_object()) {
    return in.fail(
        field, fmt::format("'{}' is {}, expected a JSON schema: an object", field, show(value)));
  }
  set(std::move(made), field, in, constraint);
}

void set_choice(const Json& value, const std::string& field, FieldReader& in,
                Constraint& constraint) {
  Constraint made;
  made.kind = Kind::Choice;
  bool good = value.is_array() && !value.empty();
  for (const Json& text : good ? value : Json::array()) {
    good = good && text.is_string();
    if (good) made.choice.push_back(text.get<std::string>());
  }
  if (!good) {
    return in.fail(field,
                   fmt::format("'{}' is {}, expected a list of strings", field, show(value)));
  }
  set(std::move(made), field, in, constraint);
}

void set_object(const Json& value, const std::string& field, FieldReader& in,
                Constraint& constraint) {
  if (!value.is_boolean()) {
    return in.fail(field, fmt::format("'{}' is {}, expected true or false", field, show(value)));
  }
  Constraint made;
  made.kind = Kind::JsonObject;
  if (value.get<bool>()) set(std::move(made), field, in, constraint);
}

void read_field(const FieldRow& row, const Json& value, const std::string& field, FieldReader& in,
                Constraint& constraint) {
  switch (row.form) {
    case Form::Gbnf:
      return set_text(Kind::Gbnf, value, field, in, constraint);
    case Form::Regex:
      return set_text(Kind::Regex, value, field, in, constraint);
    case Form::Schema:
      return set_schema(value, field, in, constraint);
    case Form::Choice:
      return set_choice(value, field, in, constraint);
    case Form::Object:
      return set_object(value, field, in, constraint);
    case Form::Refused:
      if (!is_nothing(value)) {
        in.fail(field, fmt::format("'{}' is not supported; leave it out", field));
      }
  }
}

// The fields of `object` that have a row.
void read_fields(const Json& values, std::string_view object, FieldReader& in,
                 Constraint& constraint) {
  for (const FieldRow& row : kFields) {
    const auto value = values.find(row.name);
    if (row.object != object || value == values.end() || value->is_null()) continue;
    const std::string field = object.empty() ? row.name : fmt::format("{}.{}", object, row.name);
    read_field(row, *value, field, in, constraint);
  }
}

void check_names(const Json& object, std::span<const std::string_view> known,
                 const std::string& field, FieldReader& in) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    in.fail(field, fmt::format("'{}' has '{}', which is no field there", field, printable(name)));
  }
}

void read_structured_outputs(FieldReader& in, Constraint& constraint) {
  const std::string object = "structured_outputs";
  const Json* values = in.object(object.c_str());
  if (values == nullptr) return;
  std::vector<std::string_view> known(std::begin(kPassedOver), std::end(kPassedOver));
  for (const FieldRow& row : kFields) {
    if (row.object == object) known.push_back(row.name);
  }
  check_names(*values, known, object, in);
  read_fields(*values, object, in, constraint);
}

// The schema of a format and where it stands; null: none is given.
struct FoundSchema {
  const Json* schema = nullptr;
  std::string field;
};
FoundSchema find_schema(const Json& format, const std::string& field, FieldReader& in) {
  if (const auto wrapper = format.find("json_schema");
      wrapper != format.end() && !wrapper->is_null()) {
    const std::string here = field + ".json_schema";
    const bool holds = wrapper->is_object() && wrapper->contains("schema");
    if (!holds) {
      in.fail(here, fmt::format("'{}' has no 'schema'", here));
      return {};
    }
    check_names(*wrapper, kWrapperFields, here, in);
    return {&(*wrapper)["schema"], here + ".schema"};
  }
  for (const char* name : {"schema", "value"}) {
    const auto value = format.find(name);
    if (value != format.end() && !value->is_null()) return {&*value, field + "." + name};
  }
  return {};
}

void set_format_text(Kind kind, const Json& format, const char* name, const std::string& field,
                     FieldReader& in, Constraint& constraint) {
  for (const char* key : {name, "value"}) {
    const auto value = format.find(key);
    if (value == format.end() || value->is_null()) continue;
    return set_text(kind, *value, field + "." + key, in, constraint);
  }
  in.fail(field, fmt::format("'{}' has no '{}'", field, name));
}

}  // namespace

void read_format(const Json& format, const std::string& field, FieldReader& in,
                 Constraint& constraint) {
  if (!format.is_object()) {
    return in.fail(field, fmt::format("'{}' is {}, expected an object", field, show(format)));
  }
  const std::string type = string_or(format, "type", "");
  if (type.empty()) return in.fail(field, fmt::format("'{}' has no type", field));
  check_names(format, kFormatFields, field, in);
  if (type == "regex") {
    return set_format_text(Kind::Regex, format, "pattern", field, in, constraint);
  }
  if (type == "grammar") {
    return set_format_text(Kind::Gbnf, format, "grammar", field, in, constraint);
  }
  const bool any_object = type == "json_object" || type == "json";
  if (type != "text" && type != "json_schema" && !any_object) {
    return in.fail(field + ".type",
                   fmt::format("'{}.type' is {}, expected text, json_object, json_schema, regex or "
                               "grammar",
                               field, show(format["type"])));
  }
  const FoundSchema found = find_schema(format, field, in);
  if (!in.status()) return;
  if (type == "text") {
    if (found.schema == nullptr) return;
    return in.fail(found.field, fmt::format("'{}' stands in a format of type text; write "
                                            "\"type\": \"json_schema\"",
                                            found.field));
  }
  if (found.schema != nullptr) return set_schema(*found.schema, found.field, in, constraint);
  if (any_object) return set_object(true, field, in, constraint);
  in.fail(field, fmt::format("'{}' has no 'json_schema' and no 'schema'", field));
}

void read_ollama_format(const Json& format, FieldReader& in, Constraint& constraint) {
  if (format == "") return;
  if (format == "json") return set_object(true, "format", in, constraint);
  if (format.is_object()) return set_schema(format, "format", in, constraint);
  in.fail("format", fmt::format("'format' is {}, expected \"json\" or a schema", show(format)));
}

bool may_constrain(std::string_view body) {
  const auto has = [&](std::string_view name) {
    return body.find(fmt::format("\"{}\"", name)) != body.npos;
  };
  // Names can be written with escapes, too.
  return body.find("\\u00") != body.npos ||
         std::any_of(std::begin(kFields), std::end(kFields),
                     [&](const FieldRow& row) { return has(row.name); }) ||
         std::any_of(std::begin(kOthers), std::end(kOthers), has);
}

void read_constraint(FieldReader& in, Constraint& constraint) {
  if (const Json* format = in.object("response_format")) {
    read_format(*format, "response_format", in, constraint);
  }
  read_structured_outputs(in, constraint);
  read_fields(in.all(), "", in, constraint);
}

}  // namespace ktx::server
