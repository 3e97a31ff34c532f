// Tool calls and reasoning in the form of each template over HTTP, whole and streamed, from a
// model that says them (scripted_model.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::json;

struct CallForm {
  const char* name;
  const char* marker;  // of the template
  const char* said;
  const char* reasoning;
  const char* content;
  std::vector<std::string> calls;  // "name {arguments}", without blanks
};

void PrintTo(const CallForm& form, std::ostream* out) {
  *out << form.name;
}

const CallForm kForms[] = {
    {"Hermes",
     "<tool_call>",
     "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\", \"days\": "
     "3}}\n</tool_call>",
     "",
     "I look.",
     {"weather {\"city\":\"Rom\",\"days\":3}"}},
    {"Glm",
     "<think> <arg_key>",
     "<think>Two cities.</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rom"
     "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>"
     "time\n<arg_key>zone</arg_key><arg_value>{\"a\": [1, 2]}</arg_value></tool_call>",
     "Two cities.",
     "",
     {"weather {\"city\":\"Rom\",\"days\":3}", "time {\"zone\":{\"a\":[1,2]}}"}},
    {"QwenCoder",
     "<function=",
     "Well.\n<tool_call>\n<function=weather>\n<parameter=city>\nRom\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "",
     "Well.",
     {"weather {\"city\":\"Rom\",\"days\":3}"}},
    {"MiniMax",
     "<minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Rom</parameter>\n"
     "<parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
     "",
     "",
     {"weather {\"city\":\"Rom\",\"days\":3}"}},
    {"Dsml",
     "｜DSML｜",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" "
     "string=\"true\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "",
     "",
     {"weather {\"city\":\"7\"}"}},
    {"Ministral",
     "[THINK] [TOOL_CALLS]",
     "[THINK]Both.[/THINK]I look.[TOOL_CALLS]weather[ARGS]{\"city\": \"Rom\"}[TOOL_CALLS]time"
     "[ARGS]{\"zone\": {}}",
     "Both.",
     "I look.",
     {"weather {\"city\":\"Rom\"}", "time {\"zone\":{}}"}},
    {"MistralList",
     "[TOOL_CALLS]",
     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\"}}]",
     "",
     "",
     {"weather {\"city\":\"Rom\"}"}},
    {"Gemma",
     "<|channel>thought <|tool_call>call:",
     "<|channel>thought\nBoth.\n<channel|>I look.<|tool_call>call:weather{city:<|\"|>Rom<|\"|>,"
     "days:3}<tool_call|><|tool_call>call:time{zone:{a:[1,true,<|\"|>x<|\"|>]}}<tool_call|>",
     "Both.",
     "I look.",
     {"weather {\"city\":\"Rom\",\"days\":3}", "time {\"zone\":{\"a\":[1,true,\"x\"]}}"}},
};

class CallForms : public ::testing::TestWithParam<CallForm> {
 protected:
  void SetUp() override {
    const std::string marker = GetParam().marker;
    const ScriptedModel model = {
        "{# " + marker + " #}{% for m in messages %}{{ m.content }}{% endfor %}<|go|>",
        pieces_of(GetParam().said)};
    ASSERT_TRUE(write_scripted_model(dir_.path("m.gguf"), model));
    const std::string plan = dir_.path("m.ktxplan");
    const Finished run = run_program({ktx_compile(), "-q", dir_.path("m.gguf"), "-o", plan});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{plan, "--max-batch", "2"});
  }

  HttpAnswer ask(bool stream) {
    const auto tool = [](const char* name, const char* text, const char* other) {
      const Json schema = {{"type", "object"},
                           {"properties", {{text, {{"type", "string"}}}, {other, Json::object()}}}};
      return Json{{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}}}};
    };
    const Json body = {{"messages", {{{"role", "user"}, {"content", "Go."}}}},
                       {"tools", {tool("weather", "city", "days"), tool("time", "of", "zone")}},
                       {"temperature", 0},
                       {"max_tokens", 300},
                       {"stream", stream}};
    return server_->post("/v1/chat/completions", body.dump());
  }

  // What a client has of an answer in the end.
  struct Said {
    std::string reasoning, content, finish;
    std::vector<std::string> calls;
  };
  void expect(Said said) {
    for (std::string& call : said.calls) {
      const size_t space = call.find(' ');
      const Json arguments = Json::parse(call.substr(space), nullptr, false);
      call.replace(space + 1, call.npos, arguments.dump());
    }
    EXPECT_EQ(said.reasoning, GetParam().reasoning);
    EXPECT_EQ(said.content, GetParam().content);
    EXPECT_EQ(said.calls, GetParam().calls);
    EXPECT_EQ(said.finish, "tool_calls");
  }

  const TempDir dir_;
  std::unique_ptr<ServerProcess> server_;
};

TEST_P(CallForms, ComeWhole) {
  const HttpAnswer answer = ask(false);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json choice = answer.json()["choices"][0], message = choice["message"];
  Said said = {message.value("reasoning_content", ""),
               message["content"].is_null() ? "" : message["content"].get<std::string>(),
               choice["finish_reason"],
               {}};
  for (const Json& call : message.value("tool_calls", Json::array())) {
    said.calls.push_back(call["function"]["name"].get<std::string>() + " " +
                         call["function"]["arguments"].get<std::string>());
  }
  expect(std::move(said));
}

TEST_P(CallForms, ComeInPieces) {
  const HttpAnswer answer = ask(true);
  ASSERT_EQ(answer.status, 200) << answer.body;
  Said said;
  size_t pieces = 0;
  for (const Json& event : answer.events()) {
    const Json choice = event["choices"][0], delta = choice["delta"];
    if (choice["finish_reason"].is_string()) said.finish = choice["finish_reason"];
    said.reasoning += delta.value("reasoning_content", "");
    if (delta.contains("content") && delta["content"].is_string()) {
      said.content += delta["content"].get<std::string>();
    }
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      const auto index = call["index"].get<size_t>();
      ASSERT_LE(index, said.calls.size());
      const Json& function = call["function"];
      if (index == said.calls.size()) said.calls.push_back(function.value("name", "") + " ");
      said.calls[index] += function.value("arguments", "");
      ++pieces;
    }
  }
  // Each call's name comes before its arguments.
  if (std::string_view(GetParam().name) != "MistralList") {
    EXPECT_GT(pieces, 2 * GetParam().calls.size());
  }
  expect(std::move(said));
}

INSTANTIATE_TEST_SUITE_P(All, CallForms, ::testing::ValuesIn(kForms),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ktx::testing
