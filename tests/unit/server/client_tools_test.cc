#include "lib/server/request/client_tools.h"

#include <gmock/gmock.h>

namespace ktx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RequestTools read(ToolForm form, const Json& list) {
  RequestTools tools;
  const auto read = read_tools(list, form, "tools", tools);
  EXPECT_TRUE(read) << read.error().message;
  return tools;
}
std::vector<std::string> names(const RequestTools& tools) {
  std::vector<std::string> out;
  for (const ClientTool& tool : tools.clients) out.push_back(tool.shown);
  return out;
}

TEST(ClientTools, EachProtocolsFormIsRead) {
  const Json schema = {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}};
  const std::pair<ToolForm, Json> kCases[] = {
      {ToolForm::Nested,
       {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", schema}}}}},
      {ToolForm::Flat, {{"type", "function"}, {"name", "f"}, {"parameters", schema}}},
      {ToolForm::Anthropic, {{"name", "f"}, {"input_schema", schema}}},
      {ToolForm::Anthropic, {{"type", "custom"}, {"name", "f"}, {"input_schema", schema}}},
  };
  for (const auto& [form, tool] : kCases) {
    const RequestTools tools = read(form, Json::array({tool}));
    EXPECT_EQ(tools.functions[0]["function"]["name"], "f") << tool;
    EXPECT_EQ(tools.functions[0]["function"]["parameters"], schema) << tool;
  }
}

TEST(ClientTools, ThoseOfAVendorsServerAreLeftOut) {
  const RequestTools codex =
      read(ToolForm::Flat, {{{"type", "web_search"}, {"external_web_access", true}},
                            {{"type", "image_generation"}},
                            {{"type", "tool_search"}},
                            {{"type", "mcp"}, {"server_label", "x"}},
                            {{"type", "function"}, {"name", "f"}}});
  EXPECT_THAT(names(codex), ElementsAre("f"));
  EXPECT_EQ(codex.notes[0], "tools[0]: web search is left out");
  EXPECT_EQ(codex.notes.size(), 4u);
  const RequestTools anthropic =
      read(ToolForm::Anthropic,
           {{{"type", "web_search_20250305"}, {"name", "web_search"}}, {{"name", "f"}}});
  EXPECT_THAT(names(anthropic), ElementsAre("f"));
  EXPECT_TRUE(read(ToolForm::Flat, {{{"type", "web_search"}}}).functions.is_null());
  for (const char* type :
       {"web_search", "web_search_preview", "mcp", "code_interpreter", "builtin_function",
        "retrieval", "file_search", "x_search", "browser_search", "code_execution"}) {
    const RequestTools chat =
        read(ToolForm::Nested, {{{"type", type}, {"function", {{"name", "$web_search"}}}},
                                {{"type", "function"}, {"function", {{"name", "f"}}}}});
    EXPECT_THAT(names(chat), ElementsAre("f")) << type;
    EXPECT_EQ(chat.notes.size(), 1u) << type;
  }
  const RequestTools others = read(ToolForm::Flat, {{{"type", "x_search"}},
                                                    {{"type", "browser_search"}},
                                                    {{"type", "code_execution"}},
                                                    {{"type", "function"}, {"name", "f"}}});
  EXPECT_THAT(names(others), ElementsAre("f"));
}

TEST(ClientTools, ThoseOfTheClientAreFunctions) {
  const RequestTools tools = read(
      ToolForm::Flat,
      {{{"type", "local_shell"}},
       {{"type", "shell"}, {"environment", {{"type", "local"}}}},
       {{"type", "apply_patch"}},
       {{"type", "tool_search"}, {"execution", "client"}, {"description", "Finds tools."}},
       {{"type", "custom"},
        {"name", "sql"},
        {"description", "Asks."},
        {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: \"s\""}}}}});
  EXPECT_THAT(names(tools),
              ElementsAre("local_shell", "shell", "apply_patch", "tool_search", "sql"));
  EXPECT_EQ(tools.clients[0].form, CallForm::LocalShell);
  EXPECT_EQ(tools.functions[3]["function"]["description"], "Finds tools.");
  const Json& custom = tools.functions[4]["function"];
  EXPECT_EQ(custom["parameters"]["properties"]["input"]["type"], "string");
  EXPECT_THAT(custom["description"].get<std::string>(), HasSubstr("lark grammar:\nstart: \"s\""));
  EXPECT_TRUE(
      read(ToolForm::Flat, {{{"type", "shell"}, {"environment", {{"type", "container_auto"}}}}})
          .functions.is_null());
  const RequestTools known =
      read(ToolForm::Anthropic,
           {{{"type", "bash_20250124"}, {"name", "bash"}},
            {{"type", "text_editor_20250728"}, {"name", "str_replace_based_edit_tool"}}});
  EXPECT_TRUE(known.functions[0]["function"]["parameters"]["properties"].contains("command"));
  EXPECT_TRUE(known.functions[1]["function"]["parameters"]["properties"].contains("old_str"));
}

TEST(ClientTools, AGrammarOfACustomToolIsAPatternWhereItIsRegular) {
  const auto pattern = [](const char* grammar) {
    const Json format = {{"type", "grammar"}, {"syntax", "lark"}, {"definition", grammar}};
    const RequestTools tools =
        read(ToolForm::Flat, {{{"type", "custom"}, {"name", "t"}, {"format", format}}});
    const Json& input = tools.functions[0]["function"]["parameters"]["properties"]["input"];
    return string_or(input, "pattern", "none");
  };
  EXPECT_EQ(pattern("start: \"s\""), "^(?:(?:(?:s)))$");
  EXPECT_EQ(pattern("start: \"(\" start \")\""), "none");
}

TEST(ClientTools, ARegularExpressionOfACustomToolIsAPattern) {
  const RequestTools tools = read(
      ToolForm::Nested, {{{"type", "custom"},
                          {"custom",
                           {{"name", "day"},
                            {"format",
                             {{"type", "grammar"},
                              {"grammar", {{"syntax", "regex"}, {"definition", "[0-9]{4}"}}}}}}}}});
  EXPECT_EQ(tools.functions[0]["function"]["parameters"]["properties"]["input"]["pattern"],
            "^(?:[0-9]{4})$");
}

TEST(ClientTools, AToolInANamespaceHasBothNames) {
  const RequestTools tools =
      read(ToolForm::Flat,
           {{{"type", "namespace"},
             {"name", "mcp__git"},
             {"description", "d"},
             {"tools",
              {{{"type", "function"}, {"name", "log"}}, {{"type", "custom"}, {"name", "raw"}}}}},
            {{"type", "namespace"},
             {"name", "mcp__hg__"},
             {"description", "d"},
             {"tools", {{{"type", "function"}, {"name", "log"}}}}}});
  EXPECT_THAT(names(tools), ElementsAre("mcp__git__log", "mcp__git__raw", "mcp__hg__log"));
  const ClientTool* log = client_tool(tools.clients, "mcp__hg__log");
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->space + "|" + log->name, "mcp__hg__|log");
  EXPECT_EQ(client_tool(tools.clients, "raw")->form, CallForm::Custom) << "one tool has this name";
  EXPECT_EQ(client_tool(tools.clients, "log"), nullptr) << "two have it";
  EXPECT_EQ(client_tool(tools.clients, "mcp__git.log")->shown, "mcp__git__log");
  EXPECT_EQ(client_tool(tools.clients, "lo"), nullptr);
}

TEST(ClientTools, AChoiceIsOfTheNamesThatTheModelSees) {
  const RequestTools tools =
      read(ToolForm::Flat, {{{"type", "local_shell"}},
                            {{"type", "namespace"},
                             {"name", "n"},
                             {"tools", {{{"type", "function"}, {"name", "auto"}}}}}});
  const auto named = [](const char* name) { return Json{{"type", "function"}, {"name", name}}; };
  EXPECT_EQ(shown_choice("auto", tools), "auto");
  EXPECT_EQ(shown_choice({{"type", "auto"}}, tools), Json({{"type", "auto"}})) << "no name";
  EXPECT_EQ(shown_choice({{"type", "local_shell"}}, tools), named("local_shell"));
  EXPECT_EQ(shown_choice(named("auto"), tools), named("n__auto"));
  EXPECT_EQ(shown_choice({{"type", "function"}, {"namespace", "n"}, {"name", "auto"}}, tools),
            named("n__auto"));
  EXPECT_EQ(shown_choice({{"type", "web_search"}}, tools), Json({{"type", "web_search"}}));
  const Json allowed = {{"type", "allowed_tools"},
                        {"mode", "auto"},
                        {"tools", {{{"type", "local_shell"}}, {{"type", "web_search"}}}}};
  EXPECT_EQ(shown_choice(allowed, tools)["tools"], Json::array({named("local_shell")}));
  const Json hosted = {
      {"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"type", "web_search"}}}}};
  EXPECT_EQ(shown_choice(hosted, tools), "none");
}

TEST(ClientTools, MistakesAreNamedWithTheirPlace) {
  const std::tuple<ToolForm, Json, const char*> kWrong[] = {
      {ToolForm::Nested, {{"name", "f"}}, "'tools[0]' is no {\"type\": \"function\""},
      {ToolForm::Nested, {{"function", {{"name", ""}}}}, "'tools[0].function' has no name"},
      {ToolForm::Nested, {{"type", "telepathy"}}, "'tools[0]' is of type 'telepathy', expected"},
      {ToolForm::Nested,
       {{"function", {{"name", "f"}, {"parameters", "x"}}}},
       "'tools[0].function.parameters' is \"x\", expected a JSON schema"},
      {ToolForm::Flat, {{"type", "telepathy"}}, "'tools[0]' is of type 'telepathy', expected"},
      {ToolForm::Flat, {{"type", "function"}}, "'tools[0]' has no name"},
      {ToolForm::Flat, {{"name", "f"}, {"parameters", false}}, "'tools[0].parameters' is false"},
      {ToolForm::Flat, {{"type", "namespace"}, {"name", "n"}}, "'tools[0]' has no tools"},
      {ToolForm::Flat,
       {{"type", "namespace"}, {"name", "n"}, {"tools", {{{"type", "function"}}}}},
       "'tools[0].tools[0]' has no name"},
      {ToolForm::Anthropic,
       {{"name", "f"}, {"input_schema", 1}},
       "'tools[0].input_schema' is 1, expected a JSON schema"},
      {ToolForm::Anthropic, "f", "'tools[0]' is \"f\", expected an object"},
  };
  for (const auto& [form, tool, message] : kWrong) {
    RequestTools tools;
    const auto read = read_tools(Json::array({tool}), form, "tools", tools);
    ASSERT_FALSE(read) << tool;
    EXPECT_THAT(read.error().message, HasSubstr(message)) << tool;
  }
  Json inner = Json::array();
  for (size_t i = 0; i <= kMaxTools; ++i) {
    inner.push_back({{"type", "function"}, {"name", "f" + std::to_string(i)}});
  }
  RequestTools tools;
  const Json many = {{{"type", "namespace"}, {"name", "n"}, {"tools", inner}}};
  EXPECT_THAT(read_tools(many, ToolForm::Flat, "tools", tools).error().message,
              HasSubstr("'tools[0].tools[256]' is one function too many"));
}

TEST(ClientTools, TheInputOfACustomToolIsOneText) {
  EXPECT_EQ(custom_input(custom_arguments("a\n\"b\"")), "a\n\"b\"");
  EXPECT_EQ(custom_input(R"({"patch": "p"})"), "p") << "another name for the only text";
  EXPECT_EQ(custom_input(R"("p")"), "p");
  EXPECT_EQ(custom_input(R"({"a": 1, "b": 2})"), R"({"a": 1, "b": 2})");
  EXPECT_EQ(custom_input("not JSON"), "not JSON");
}

}  // namespace
}  // namespace ktx::server
