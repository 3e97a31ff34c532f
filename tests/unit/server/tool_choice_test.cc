#include "lib/server/answer/tool_choice.h"

#include <gmock/gmock.h>

namespace ktx::server {
namespace {

using Kind = Constraint::Kind;
using ::testing::HasSubstr;

Json tools(std::initializer_list<const char*> names) {
  Json list = Json::array();
  for (const char* name : names) {
    list.push_back({{"type", "function"}, {"function", {{"name", name}}}});
  }
  RequestTools out;
  EXPECT_TRUE(read_tools(list, ToolForm::Nested, "tools", out));
  return out.functions;
}
std::vector<std::string> names_of(const Json& tools) {
  std::vector<std::string> out;
  for (const Json& tool : tools) out.push_back(tool["function"]["name"]);
  return out;
}
ServedModel hermes() {
  ServedModel model;
  model.tool_format = text::ToolCallFormat::Hermes;
  return model;
}

TEST(ToolChoice, EveryProtocolsFormIsUnderstood) {
  using Names = std::vector<std::string>;
  const Names kBoth = {"a", "b"}, kOne = {"b"};
  const struct {
    Json choice;
    bool forced;
    Names names;
  } kCases[] = {
      {nullptr, false, kBoth},
      {"auto", false, kBoth},
      {"required", true, kBoth},
      {"any", true, kBoth},
      {{{"type", "auto"}, {"disable_parallel_tool_use", true}}, false, kBoth},
      {{{"type", "any"}}, true, kBoth},
      {{{"type", "required"}}, true, kBoth},
      {{{"type", "function"}, {"function", {{"name", "b"}}}}, true, kOne},
      {{{"function", {{"name", "b"}}}}, true, kOne},
      {{{"type", "function"}, {"name", "b"}}, true, kOne},
      {{{"type", "tool"}, {"name", "b"}}, true, kOne},
      {{{"type", "allowed_tools"},
        {"allowed_tools",
         {{"mode", "required"},
          {"tools", {{{"type", "function"}, {"function", {{"name", "b"}}}}}}}}},
       true,
       kOne},
      {{{"type", "allowed_tools"},
        {"mode", "auto"},
        {"tools", {{{"type", "function"}, {"name", "b"}}}}},
       false,
       kOne},
  };
  const ServedModel model = hermes();
  for (const auto& c : kCases) {
    Json offered = tools({"a", "b"});
    Constraint constraint;
    const auto applied = apply_tool_choice(model, c.choice.is_null() ? nullptr : &c.choice,
                                           ToolForm::Nested, offered, constraint);
    ASSERT_TRUE(applied) << c.choice << applied.error().message;
    EXPECT_EQ(names_of(offered), c.names) << c.choice;
    EXPECT_EQ(constraint.kind, c.forced ? Kind::ToolCall : Kind::None) << c.choice;
    if (c.forced) {
      EXPECT_EQ(constraint.tools.size(), c.names.size()) << c.choice;
      EXPECT_EQ(constraint.tools.back().place, "'tools[1].function.parameters'");
    }
  }
  for (const Json& none : {Json("none"), Json{{"type", "none"}}}) {
    Json offered = tools({"a"});
    Constraint constraint;
    EXPECT_TRUE(apply_tool_choice(model, &none, ToolForm::Nested, offered, constraint));
    EXPECT_TRUE(offered.is_null());
  }
}

TEST(ToolChoice, WhatCannotBeDoneIsAnError) {
  const std::pair<Json, const char*> kCases[] = {
      {"c", "'tool_choice' is \"c\", expected none, auto, required, any or a function"},
      {3, "'tool_choice' is 3"},
      {Json::array({"auto"}), "'tool_choice' is a list"},
      {{{"type", "sometimes"}}, "'tool_choice' is \"sometimes\""},
      {{{"type", 1}}, "'tool_choice' is 1"},
      {{{"type", "custom"}, {"custom", {{"name", "a"}}}}, "'tool_choice' is \"custom\""},
      {{{"type", "tool"}}, "names no function"},
      {{{"type", "function"}, {"function", {{"name", 3}}}}, "names no function"},
      {{{"type", "tool"}, {"name", "gone"}}, "'tool_choice' names 'gone', which is no tool"},
      {{{"type", "allowed_tools"}, {"mode", "never"}, {"tools", {{{"name", "a"}}}}},
       "'tool_choice.mode'"},
      {{{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", Json::array()}},
       "'tool_choice.tools'"},
      {{{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"name", "gone"}}}}},
       "names 'gone'"},
  };
  const ServedModel model = hermes();
  for (const auto& [choice, message] : kCases) {
    Json offered = tools({"a"});
    Constraint constraint;
    const auto applied = apply_tool_choice(model, &choice, ToolForm::Nested, offered, constraint);
    ASSERT_FALSE(applied) << choice;
    EXPECT_EQ(applied.error().status, 400);
    EXPECT_THAT(applied.error().message, HasSubstr(message)) << choice;
  }
  const Json any = {{"type", "any"}};
  Json nothing, offered = tools({"a"});
  Constraint constraint;
  EXPECT_THAT(apply_tool_choice(model, &any, ToolForm::Nested, nothing, constraint).error().message,
              HasSubstr("without 'tools'"));
  constraint.kind = Kind::Gbnf;
  constraint.field = "grammar";
  EXPECT_THAT(apply_tool_choice(model, &any, ToolForm::Nested, offered, constraint).error().message,
              HasSubstr("'grammar' exclude each other"));
  // A format is that of an answer in words: the call wins.
  constraint = {};
  constraint.kind = Kind::JsonSchema;
  constraint.schema = {{"type", "integer"}};
  constraint.field = "response_format";
  EXPECT_TRUE(apply_tool_choice(model, &any, ToolForm::Nested, offered, constraint));
  EXPECT_EQ(constraint.kind, Kind::ToolCall);
  EXPECT_EQ(constraint.field, "tools");
  EXPECT_TRUE(constraint.schema.is_null());
  ServedModel mute;
  EXPECT_THAT(
      apply_tool_choice(mute, nullptr, ToolForm::Nested, offered, constraint).error().message,
      HasSubstr("--tool-format none"));
}

// In the generic form the whole answer follows a grammar, also where no call is forced.
TEST(ToolChoice, TheGenericFormConstrainsTheAnswer) {
  ServedModel model;
  model.tool_format = text::ToolCallFormat::Generic;
  Json offered = tools({"a", "b"});
  Constraint constraint;
  ASSERT_TRUE(apply_tool_choice(model, nullptr, ToolForm::Nested, offered, constraint));
  EXPECT_EQ(constraint.kind, Kind::ToolAnswer);
  EXPECT_EQ(constraint.tools.size(), 2u);
  constraint = {};
  const Json any = {{"type", "any"}};
  ASSERT_TRUE(apply_tool_choice(model, &any, ToolForm::Nested, offered, constraint));
  EXPECT_EQ(constraint.kind, Kind::ToolCall);
  // A format is that of its answers.
  constraint = {};
  constraint.kind = Kind::JsonObject;
  ASSERT_TRUE(apply_tool_choice(model, nullptr, ToolForm::Nested, offered, constraint));
  EXPECT_EQ(constraint.kind, Kind::ToolAnswer);
  EXPECT_EQ(constraint.schema, (Json{{"type", "object"}}));
  EXPECT_EQ(constraint.tools.size(), 2u);
  EXPECT_FALSE(constraint.or_call);
  // A grammar of the request leaves no room for calls.
  constraint = {};
  constraint.kind = Kind::Gbnf;
  ASSERT_TRUE(apply_tool_choice(model, nullptr, ToolForm::Nested, offered, constraint));
  EXPECT_EQ(constraint.kind, Kind::Gbnf);
  EXPECT_TRUE(offered.is_null());
}

// Where no call is forced, a format leaves them possible: behind a marker, or in the grammar.
TEST(ToolChoice, AFormatLeavesCallsPossible) {
  for (const auto form : {text::ToolCallFormat::Hermes, text::ToolCallFormat::Llama3}) {
    const bool bare = form == text::ToolCallFormat::Llama3;
    ServedModel model;
    model.tool_format = form;
    for (const Kind kind : {Kind::JsonSchema, Kind::JsonObject, Kind::Regex}) {
      Json offered = tools({"a", "b"});
      Constraint constraint;
      constraint.kind = kind;
      constraint.field = "response_format";
      ASSERT_TRUE(apply_tool_choice(model, nullptr, ToolForm::Nested, offered, constraint));
      EXPECT_EQ(offered.size(), 2u);
      EXPECT_EQ(constraint.field, "response_format");
      EXPECT_EQ(constraint.or_call, kind != Kind::Regex);
      EXPECT_EQ(constraint.tools.size(), bare && kind != Kind::Regex ? 2u : 0u);
      EXPECT_EQ(constraint.kind, bare && kind == Kind::JsonObject ? Kind::JsonSchema : kind);
    }
  }
}

}  // namespace
}  // namespace ktx::server
