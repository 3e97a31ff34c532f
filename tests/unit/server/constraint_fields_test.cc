#include "lib/server/request/constraint_fields.h"

#include <gmock/gmock.h>

namespace ktx::server {
namespace {

using Kind = Constraint::Kind;
using ::testing::HasSubstr;

const Json kSchema = {{"type", "object"}};

Constraint read(const Json& body, ApiStatus& status) {
  FieldReader in(body);
  Constraint constraint;
  read_constraint(in, constraint);
  status = in.status();
  return constraint;
}

TEST(ConstraintFields, EachFormIsRead) {
  const struct {
    Json body;
    Kind kind;
    const char* field;
  } kCases[] = {
      {{{"response_format", {{"type", "text"}}}}, Kind::None, ""},
      {{{"response_format", nullptr}, {"grammar", ""}, {"guided_json", nullptr}}, Kind::None, ""},
      {{{"response_format", {{"type", "json_object"}}}}, Kind::JsonObject, "response_format"},
      {{{"response_format", {{"type", "json_object"}, {"schema", kSchema}}}},
       Kind::JsonSchema,
       "response_format.schema"},
      {{{"response_format", {{"type", "json_object"}, {"value", kSchema}}}},
       Kind::JsonSchema,
       "response_format.value"},
      {{{"response_format",
         {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", kSchema}}}}}},
       Kind::JsonSchema,
       "response_format.json_schema.schema"},
      {{{"response_format",
         {{"type", "json_schema"}, {"name", "n"}, {"strict", true}, {"schema", kSchema}}}},
       Kind::JsonSchema,
       "response_format.schema"},
      {{{"response_format", {{"type", "regex"}, {"value", "a+"}}}},
       Kind::Regex,
       "response_format.value"},
      {{{"response_format", {{"type", "grammar"}, {"grammar", "root ::= \"a\""}}}},
       Kind::Gbnf,
       "response_format.grammar"},
      {{{"json_schema", kSchema}}, Kind::JsonSchema, "json_schema"},
      {{{"guided_json", kSchema}}, Kind::JsonSchema, "guided_json"},
      {{{"guided_json", R"({"type": "object"})"}}, Kind::JsonSchema, "guided_json"},
      {{{"guided_regex", "a+"}}, Kind::Regex, "guided_regex"},
      {{{"guided_choice", {"a", "b"}}}, Kind::Choice, "guided_choice"},
      {{{"guided_grammar", "root ::= \"a\""}}, Kind::Gbnf, "guided_grammar"},
      {{{"structured_outputs", {{"json", kSchema}}}}, Kind::JsonSchema, "structured_outputs.json"},
      {{{"structured_outputs", {{"choice", {"a"}}, {"disable_fallback", true}}}},
       Kind::Choice,
       "structured_outputs.choice"},
      {{{"structured_outputs", {{"json_object", true}, {"disable_any_whitespace", false}}}},
       Kind::JsonObject,
       "structured_outputs.json_object"},
      {{{"regex", "a"}}, Kind::Regex, "regex"},
      {{{"ebnf", "root ::= \"a\""}}, Kind::Gbnf, "ebnf"},
  };
  for (const auto& c : kCases) {
    ApiStatus status;
    const Constraint constraint = read(c.body, status);
    EXPECT_TRUE(status) << c.body << status.error().message;
    EXPECT_EQ(constraint.kind, c.kind) << c.body;
    EXPECT_EQ(constraint.field, c.field) << c.body;
    EXPECT_TRUE(may_constrain(dump(c.body)) || c.kind == Kind::None) << c.body;
    if (c.kind == Kind::JsonSchema) {
      EXPECT_EQ(constraint.schema, kSchema) << c.body;
    }
  }
}

TEST(ConstraintFields, WhatMayConstrainIsSeenBeforeTheBodyIsParsed) {
  EXPECT_TRUE(may_constrain(R"({"grammar" : "root ::= .{1000}"})"));
  EXPECT_TRUE(may_constrain(R"({"\u0067rammar": ""})"));
  EXPECT_TRUE(may_constrain(R"({"tools": []})"));
  EXPECT_TRUE(may_constrain(R"({"format": {"type": "object"}})"));
  EXPECT_TRUE(may_constrain(R"({"a": "a grammar", "ebnf": ""})"));
  EXPECT_FALSE(
      may_constrain(R"({"messages": [{"role": "user", "content": "a grammar of tools"}]})"));
  EXPECT_FALSE(may_constrain(""));
}

TEST(ConstraintFields, WhatIsNotUnderstoodIsAnErrorThatNamesItsField) {
  const std::pair<Json, const char*> kCases[] = {
      {{{"response_format", "json"}}, "'response_format' is \"json\", expected an object"},
      {{{"response_format", Json::object()}}, "'response_format' has no type"},
      {{{"response_format", {{"type", "xml"}}}}, "'response_format.type' is \"xml\""},
      {{{"response_format", {{"type", "json_schema"}}}}, "has no 'json_schema' and no 'schema'"},
      {{{"response_format", {{"type", "json_schema"}, {"json_schema", kSchema}}}},
       "'response_format.json_schema' has no 'schema'"},
      {{{"response_format", {{"type", "json_schema"}, {"schema", "x"}}}},
       "'response_format.schema' is \"x\", expected a JSON schema"},
      {{{"response_format", {{"type", "text"}, {"schema", kSchema}}}},
       "'response_format.schema' stands in a format of type text"},
      {{{"response_format", {{"type", "json_object"}, {"shema", kSchema}}}},
       "'response_format' has 'shema', which is no field there"},
      {{{"response_format", {{"type", "regex"}}}}, "'response_format' has no 'pattern'"},
      {{{"guided_json", true}}, "'guided_json' is true, expected a JSON schema"},
      {{{"guided_json", "{"}}, "'guided_json' is \"{\", expected a JSON schema"},
      {{{"guided_choice", "a"}}, "'guided_choice' is \"a\", expected a list of strings"},
      {{{"guided_choice", {1}}}, "'guided_choice' is a list, expected a list of strings"},
      {{{"guided_choice", Json::array()}}, "expected a list of strings"},
      {{{"guided_regex", 1}}, "'guided_regex' is 1, expected a string"},
      {{{"structured_outputs", "x"}}, "'structured_outputs' is \"x\", expected an object"},
      {{{"structured_outputs", {{"jsn", kSchema}}}}, "'structured_outputs' has 'jsn'"},
      {{{"structured_outputs", {{"structural_tag", "{}"}}}},
       "'structured_outputs.structural_tag' is not supported"},
      {{{"guided_whitespace_pattern", "[ ]?"}}, "'guided_whitespace_pattern' is not supported"},
      {{{"grammar", "root ::= \"a\""}, {"grammar_lazy", true}}, "'grammar_lazy' is not supported"},
      {{{"guided_json", kSchema}, {"guided_regex", "a"}},
       "'guided_json' and 'guided_regex' both constrain the answer; send one of them"},
      {{{"response_format", {{"type", "json_object"}}}, {"grammar", "root ::= \"a\""}},
       "'response_format' and 'grammar' both constrain the answer"},
  };
  for (const auto& [body, message] : kCases) {
    ApiStatus status;
    (void)read(body, status);
    ASSERT_FALSE(status) << body;
    EXPECT_EQ(status.error().status, 400);
    EXPECT_FALSE(status.error().param.empty()) << body;
    EXPECT_THAT(status.error().message, HasSubstr(message)) << body;
  }
}

TEST(ConstraintFields, OllamasFormatIsAWordOrASchema) {
  const auto format = [](const Json& value, Constraint& constraint) {
    static const Json body = Json::object();
    FieldReader in(body);
    read_ollama_format(value, in, constraint);
    return in.status() ? "" : in.status().error().message;
  };
  Constraint none, object, schema, wrong;
  EXPECT_EQ(format("", none), "");
  EXPECT_EQ(none.kind, Kind::None);
  EXPECT_EQ(format("json", object), "");
  EXPECT_EQ(object.kind, Kind::JsonObject);
  EXPECT_EQ(format(kSchema, schema), "");
  EXPECT_EQ(schema.kind, Kind::JsonSchema);
  for (const Json& value : {Json("yaml"), Json(true), Json::array()}) {
    EXPECT_THAT(format(value, wrong), HasSubstr("expected \"json\" or a schema")) << value;
  }
}

}  // namespace
}  // namespace ktx::server
