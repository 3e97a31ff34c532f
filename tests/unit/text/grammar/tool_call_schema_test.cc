#include "lib/text/grammar/tool_call_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/unit/text/grammar/grammar_tools.h"
#include "tests/unit/text/grammar/schema_check.h"

namespace ktx::text {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<Grammar> compile(const std::vector<CallableTool>& tools) {
  return Grammar::compile_tool_call(tools, small_vocabulary());
}
CallableTool tool(const std::string& name, std::string_view parameters) {
  return {name, ordered_json::parse(parameters), "tools[0].parameters"};
}
std::string call(const std::string& name, const std::string& arguments) {
  return fmt::format(R"({{"name": {}, "arguments": {}}})", ordered_json(name).dump(), arguments);
}
std::string error(const std::vector<CallableTool>& tools) {
  const Result<Grammar> grammar = compile(tools);
  return grammar.ok() ? "no error" : grammar.error().message;
}

// As pydantic, instructor and the SDKs write them.
TEST(ToolCallSchema, ReferencesAreRelativeToTheToolsSchema) {
  const char* const kNode = R"({"$defs": {"Node": {"type": "object",
      "properties": {"v": {"type": "integer"},
                     "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
      "required": ["v", "next"]}}, "$ref": "#/$defs/Node"})";
  const Result<Grammar> grammar = compile({tool("list", kNode)});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(matches(*grammar, call("list", R"({"v": 1, "next": {"v": 2, "next": null}})")));
  EXPECT_FALSE(matches(*grammar, call("list", R"({"v": 1, "next": {}})")));
  EXPECT_FALSE(matches(*grammar, call("list", "{}")));
  EXPECT_FALSE(matches(*grammar, call("other", R"({"v": 1, "next": null})")));

  const Result<Grammar> itself =
      compile({tool("tree", R"({"type": "object", "properties": {"kids": {"type": "array",
               "items": {"$ref": "#"}}}, "required": ["kids"]})")});
  ASSERT_TRUE(itself.ok()) << itself.error().message;
  EXPECT_TRUE(matches(*itself, call("tree", R"({"kids": [{"kids": []}]})")));
  EXPECT_FALSE(matches(*itself, call("tree", R"({"kids": [{"name": "tree"}]})")));
}

TEST(ToolCallSchema, DefinitionsOfTheSameNameDoNotMix) {
  const auto with = [](const char* place) {
    return fmt::format(R"({{"$defs": {{"Place": {}}}, "type": "object",
        "properties": {{"p": {{"$ref": "#/$defs/Place"}}}}, "required": ["p"]}})",
                       place);
  };
  const Result<Grammar> grammar =
      compile({tool("a", with(R"({"type": "string"})")), tool("b", with(R"({"type": "integer"})")),
               tool("c", R"({"definitions": {"Place": {"const": 7}},
        "properties": {"p": {"$ref": "#/definitions/Place"}}, "required": ["p"]})")});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(matches(*grammar, call("a", R"({"p": "x"})")));
  EXPECT_TRUE(matches(*grammar, call("b", R"({"p": 5})")));
  EXPECT_TRUE(matches(*grammar, call("c", R"({"p": 7})")));
  for (const char* name : {"b", "c"}) {
    EXPECT_FALSE(matches(*grammar, call(name, R"({"p": "x"})"))) << name;
  }
  EXPECT_FALSE(matches(*grammar, call("a", R"({"p": 5})")));
}

TEST(ToolCallSchema, NoParametersAreNoArguments) {
  for (const char* parameters :
       {"{}", R"({"type": "object"})", R"({"type": "object", "properties": {}})",
        R"({"properties": {}, "title": "Empty", "type": "object", "required": []})",
        R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {}, "additionalProperties": false})",
        R"({"type": ["object", "null"], "nullable": true})",
        R"({"$ref": "#/$defs/E", "$defs": {"E": {"type": "object", "properties": {}}}})"}) {
    const Result<Grammar> grammar = compile({tool("now", parameters)});
    ASSERT_TRUE(grammar.ok()) << parameters << grammar.error().message;
    EXPECT_TRUE(matches(*grammar, call("now", "{}"))) << parameters;
    EXPECT_FALSE(matches(*grammar, call("now", R"({"a": 1})"))) << parameters;
    EXPECT_FALSE(matches(*grammar, call("now", "null"))) << parameters;
    if (!std::string_view(parameters).starts_with("{\"$ref")) {
      EXPECT_FALSE(matches(*grammar, call("now", "{ }"))) << "clients compare the text";
    }
  }
  // Those that a schema allows in so many words stay possible.
  const Result<Grammar> free =
      compile({tool("any", R"({"type": "object", "additionalProperties": true})")});
  ASSERT_TRUE(free.ok());
  EXPECT_TRUE(matches(*free, call("any", R"({"a": 1})")));
}

TEST(ToolCallSchema, ArgumentsAreAnObject) {
  const Result<Grammar> grammar = compile({tool("f", R"({"anyOf": [{"type": "null"},
      {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]})")});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(matches(*grammar, call("f", R"({"a": 1})")));
  EXPECT_FALSE(matches(*grammar, call("f", "null")));
  EXPECT_THAT(error({tool("f", R"({"type": "string"})")}), HasSubstr("are an object"));
  EXPECT_THAT(error({tool("f", R"({"enum": [1, "a"]})")}), HasSubstr("no text at all"));
}

TEST(ToolCallSchema, AFormatMayStandBesideCalls) {
  const std::vector<CallableTool> tools = {tool("f", R"({"properties": {"a": {"type": "integer"}},
                                                         "required": ["a"]})")};
  const AnswerFormat format = {ordered_json::parse(R"({"$defs": {"B": {"type": "boolean"}},
      "properties": {"b": {"$ref": "#/$defs/B"}}, "required": ["b"]})"),
                               "'response_format'"};
  const auto bare =
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Llama3, &format);
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  EXPECT_TRUE(matches(*bare, R"({"name": "f", "parameters": {"a": 1}})"));
  EXPECT_TRUE(matches(*bare, R"({"b": true})"));
  EXPECT_FALSE(matches(*bare, R"({"b": 1})"));
  EXPECT_FALSE(matches(*bare, call("f", R"({"a": 1})")));
  const auto generic =
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Generic, &format);
  ASSERT_TRUE(generic.ok()) << generic.error().message;
  EXPECT_TRUE(matches(*generic, R"({"tool_call": {"name": "f", "arguments": {"a": 1}}})"));
  EXPECT_TRUE(matches(*generic, R"({"response": {"b": true}})"));
  EXPECT_FALSE(matches(*generic, R"({"response": "b"})"));
  EXPECT_FALSE(matches(*generic, R"({"b": true})"));
  const AnswerFormat bad = {ordered_json::parse(R"({"$ref": "#/gone"})"), "'response_format'"};
  EXPECT_THAT(
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Llama3, &bad).error().message,
      HasSubstr("'response_format': schema at #: '$ref'"));
}

TEST(ToolCallSchema, DifferentItemsHoldBesideCalls) {
  const std::vector<CallableTool> tools = {tool("f", "{}")};
  const AnswerFormat format = {ordered_json::parse(R"({"properties": {"a": {"type": "array",
      "items": {"type": "integer"}, "uniqueItems": true}}, "required": ["a"]})"),
                               ""};
  for (const auto& [form, text] : {std::pair{CallForm::Llama3, R"({{"a": [1, {}]}})"},
                                   {CallForm::Generic, R"({{"response": {{"a": [1, {}]}}}})"}}) {
    const auto grammar = Grammar::compile_tool_call(tools, small_vocabulary(), form, &format);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    EXPECT_TRUE(matches(*grammar, fmt::format(fmt::runtime(text), 2)));
    EXPECT_FALSE(matches(*grammar, fmt::format(fmt::runtime(text), 1)));
  }
}

TEST(ToolCallSchema, NamesMayBeAnything) {
  for (const std::string name :
       {"a.b-c/d", "mit \"quotes\"", "zurück 你好 🦊", "back\\slash", "a\nb"}) {
    const Result<Grammar> grammar = compile({tool(name, "{}"), tool("other", "{}")});
    ASSERT_TRUE(grammar.ok()) << name;
    EXPECT_TRUE(matches(*grammar, call(name, "{}"))) << name;
    EXPECT_FALSE(matches(*grammar, call(name + "x", "{}"))) << name;
  }
}

TEST(ToolCallSchema, ErrorsNameTheTool) {
  std::vector<CallableTool> tools = {tool("a", "{}"), tool("b", R"({"properties":
      {"x": {"$ref": "#/$defs/gone"}}})")};
  tools[1].place = "tools[1].input_schema";
  EXPECT_EQ(error(tools),
            "tools[1].input_schema: schema at #/properties/x: '$ref' to '#/$defs/gone': there is "
            "no '$defs'");
}

// One call's schemas share the limits of one.
TEST(ToolCallSchema, HostileToolsMeetLimits) {
  EXPECT_THAT(error({tool("a", R"({"$ref": "#"})")}), HasSubstr("too many schemas"));
  std::string parts;
  for (int i = 0; i < 20; ++i) {
    parts += fmt::format(R"("d{}": {{"allOf": [{{"$ref": "#/$defs/d{}"}}, {{"minLength": {}}}]}},)",
                         i, i + 1, i);
  }
  const std::string chain =
      R"({"$defs": {)" + parts +
      R"("d20": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}})";
  EXPECT_EQ(error({tool("a", chain)}), "no error");
  EXPECT_THAT(error(std::vector<CallableTool>(256, tool("a", chain))),
              HasSubstr("too many schemas"));
}

TEST(ToolCallSchema, RandomCallsAreValid) {
  const ordered_json parameters = ordered_json::parse(R"({"$defs": {
      "Kind": {"enum": ["fox", "hare"], "title": "Kind", "type": "string"},
      "Place": {"properties": {"city": {"maxLength": 12, "type": "string"},
                               "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["city"], "type": "object"}},
    "properties": {"kind": {"$ref": "#/$defs/Kind"}, "start": {"$ref": "#/$defs/Place"},
                   "stops": {"items": {"$ref": "#/$defs/Place"}, "maxItems": 2, "type": "array"},
                   "pair": {"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "integer"},
                            {"type": "string"}], "type": "array"}},
    "required": ["kind", "start", "stops", "pair"], "type": "object"})");
  const Result<Grammar> grammar = compile({{"Trip", parameters, ""}});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  std::mt19937 random(4);
  int ended = 0;
  for (int round = 0; round < 60; ++round) {
    const Sample answer = sample(*grammar, random, 400);
    if (!answer.ended) continue;
    ++ended;
    const ordered_json said = ordered_json::parse(answer.text, nullptr, false);
    ASSERT_FALSE(said.is_discarded()) << answer.text;
    EXPECT_EQ(said["name"], "Trip");
    EXPECT_EQ(schema_violation(parameters, parameters, said["arguments"]), "") << answer.text;
  }
  EXPECT_GT(ended, 20);
}

// A tool that need not be called is no reason to refuse a request.
TEST(ToolCallSchema, WhatNoGrammarCanKeepIsPassedOverWhereNoCallIsForced) {
  const std::vector<CallableTool> tools = {tool("f", R"x({"type": "object",
      "properties": {"p": {"type": "string", "pattern": "(a)\\1"}, "n": {"type": "integer"},
                     "r": {"$ref": "http://x/y"}, "s": {"type": "integer", "max_imum": 3}},
      "required": ["p"]})x")};
  EXPECT_THAT(error(tools), HasSubstr("tools[0].parameters: schema at #/properties/p: pattern"));
  const Result<Grammar> generic =
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Generic);
  ASSERT_TRUE(generic.ok()) << generic.error().message;
  const auto called = [](const std::string& arguments) {
    return R"({"tool_call": )" + call("f", arguments) + "}";
  };
  EXPECT_TRUE(matches(*generic, called(R"({"p": "any text", "n": 3, "r": [1], "s": 9})")));
  EXPECT_FALSE(matches(*generic, called(R"({"p": "any text", "n": "3"})")));
  EXPECT_FALSE(matches(*generic, called(R"({"p": 1})")));
  EXPECT_FALSE(matches(*generic, called("{}")));
  EXPECT_TRUE(matches(*generic, R"({"response": "none"})"));
  EXPECT_THAT(
      generic->notes(),
      ::testing::Contains(HasSubstr("tools[0].parameters: schema at #/properties/p: pattern")));
  EXPECT_THAT(generic->notes(), ::testing::Contains(HasSubstr("'$ref' to 'http://x/y'")));
  // The format is what the answer must follow.
  const AnswerFormat format = {ordered_json::parse(R"x({"pattern": "(a)\\1"})x"), "'format'"};
  EXPECT_FALSE(
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Generic, &format).ok());
}

TEST(ToolCallSchema, ToolsThatAreTooMuchTogetherTakeAnyObject) {
  std::string properties;
  // Host names as zod has them: of each length there are states of their own.
  for (int i = 0; i < 3; ++i) {
    properties += fmt::format(
        R"x({}"p{}": {{"type": "string", "pattern": "^(?=.{{1,{}}}$)[a-z](?:[a-z-]{{0,61}}[a-z])?(?:\\.[a-z](?:[-a-z]{{0,61}}[a-z])?)*$"}})x",
        i == 0 ? "" : ", ", i, 253 - i);
  }
  const std::vector<CallableTool> tools = {
      tool("f", R"({"type": "object", "properties": {)" + properties + "}}")};
  EXPECT_FALSE(compile(tools).ok());
  const Result<Grammar> generic =
      Grammar::compile_tool_call(tools, small_vocabulary(), CallForm::Generic);
  ASSERT_TRUE(generic.ok()) << generic.error().message;
  EXPECT_TRUE(matches(*generic, R"({"tool_call": {"name": "f", "arguments": {"p0": 1}}})"));
  EXPECT_THAT(generic->notes(), ::testing::Contains(HasSubstr("any object")));
}

}  // namespace
}  // namespace ktx::text
