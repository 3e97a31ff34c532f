// The budget of the reasoning and reasoning before a constrained answer, over HTTP and in a chat.
// A scripted model reasons for twelve tokens; the small gpt-oss writes its channels by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kReasoning[] = {"one ", "two ", "three ", "four ", "five ", "six "};

struct Said {
  std::string reasoning, content;
};
void PrintTo(const Said& said, std::ostream* out) {
  *out << "[" << said.reasoning << "] " << said.content;
}
bool operator==(const Said& a, const Said& b) {
  return a.reasoning == b.reasoning && a.content == b.content;
}

Said said_by(const ServerProcess& server, Json body, const std::string& question, bool stream) {
  body["messages"] = {{{"role", "user"}, {"content", question}}};
  body["temperature"] = 0;
  if (!body.contains("max_tokens")) body["max_tokens"] = 150;
  body["stream"] = stream;
  const HttpAnswer answer = server.post("/v1/chat/completions", body.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
  Said said;
  const auto take = [&](const Json& message) {
    said.reasoning += message.value("reasoning_content", "");
    if (message.contains("content") && message["content"].is_string()) {
      said.content += message["content"].get<std::string>();
    }
  };
  if (!stream) {
    take(answer.json()["choices"][0]["message"]);
    return said;
  }
  for (const Json& event : answer.events()) take(event["choices"][0]["delta"]);
  return said;
}

class ReasoningBudgets : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    ScriptedModel model;
    model.chat_template = "{# <think> #}{% for m in messages %}{{ m.content }}{% endfor %}<|go|>";
    model.answer = {"<think>"};
    model.answer.insert(model.answer.end(), std::begin(kReasoning), std::end(kReasoning));
    model.answer.insert(model.answer.end(), {"</think>", "The ", "answer", "."});
    model.controls = {"<think>", "</think>"};
    ASSERT_TRUE(write_scripted_model(dir_->path("m.gguf"), model));
    const Finished run = run_program({ktx_compile(), "-q", dir_->path("m.gguf"), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({plan(), "--max-batch", "2"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static std::string plan() { return dir_->path("m.ktxplan"); }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* ReasoningBudgets::dir_ = nullptr;
ServerProcess* ReasoningBudgets::server_ = nullptr;

TEST_F(ReasoningBudgets, EndTheReasoningAndTheAnswerComes) {
  const std::string all = "one two three four five six";
  for (const bool stream : {false, true}) {
    const auto said = [&](const Json& body) { return said_by(*server_, body, "Go.", stream); };
    EXPECT_EQ(said(Json::object()), (Said{all, "The answer."}));
    EXPECT_EQ(said({{"reasoning_budget", 3}}), (Said{"one two three", "The answer."}));
    EXPECT_EQ(said({{"reasoning_budget", 0}}), (Said{"", "The answer."}));
    EXPECT_EQ(said({{"reasoning_budget", -1}}), (Said{all, "The answer."}));
    EXPECT_EQ(said({{"reasoning_budget", 100}}), (Said{all, "The answer."}));
    EXPECT_EQ(said({{"reasoning_budget_tokens", 1}, {"reasoning_budget_message", "Enough."}}),
              (Said{"one Enough.", "The answer."}));
    EXPECT_EQ(said({{"thinking_budget_tokens", 2}}), (Said{"one two", "The answer."}));
  }
}

TEST_F(ReasoningBudgets, CountAsReasoningTokens) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Go."}}}},
                     {"temperature", 0},
                     {"reasoning_budget", 3}};
  const HttpAnswer answer = server_->post("/v1/chat/completions", body.dump());
  const Json usage = answer.json()["usage"];
  EXPECT_EQ(usage["completion_tokens"], 9) << "<think>, three, </think>, three, the end";
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 4) << answer.body;
}

TEST_F(ReasoningBudgets, AreAnthropicsBudgetTokens) {
  const Json body = {{"messages", {{{"role", "user"}, {"content", "Go."}}}},
                     {"temperature", 0},
                     {"max_tokens", 100},
                     {"thinking", {{"type", "enabled"}, {"budget_tokens", 2}}}};
  const Json content = server_->post("/v1/messages", body.dump()).json()["content"];
  ASSERT_EQ(content.size(), 2u) << content;
  EXPECT_EQ(content[0]["thinking"], "one two");
  EXPECT_EQ(content[1]["text"], "The answer.");
}

TEST_F(ReasoningBudgets, WithIgnoredEndsAnAnswerGoesOn) {
  const Json body = {{"reasoning_budget", 1}, {"ignore_eos", true}, {"max_tokens", 20}};
  EXPECT_EQ(said_by(*server_, body, "Go.", false).reasoning, "one");
  Json whole = body;
  whole["messages"] = {{{"role", "user"}, {"content", "Go."}}};
  whole["temperature"] = 0;
  const Json answer = server_->post("/v1/chat/completions", whole.dump()).json();
  EXPECT_EQ(answer["usage"]["completion_tokens"], 20);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST_F(ReasoningBudgets, WrongOnesAreNamed) {
  for (const Json& wrong : {Json(-2), Json("many"), Json(1.5)}) {
    const Json body = {{"messages", {{{"role", "user"}, {"content", "Go."}}}},
                       {"reasoning_budget", wrong}};
    const HttpAnswer answer = server_->post("/v1/chat/completions", body.dump());
    EXPECT_EQ(answer.status, 400) << wrong;
    EXPECT_THAT(answer.body, HasSubstr("reasoning_budget"));
  }
}

TEST_F(ReasoningBudgets, MayBeTheServersOwn) {
  const ServerProcess server({plan(), "--max-batch", "2", "--reasoning-budget", "2",
                              "--reasoning-budget-message", "Well."});
  const auto said = [&](const Json& body) { return said_by(server, body, "Go.", false); };
  EXPECT_EQ(said(Json::object()), (Said{"one two Well.", "The answer."}));
  EXPECT_EQ(said({{"reasoning_budget", 3}}), (Said{"one two three Well.", "The answer."}));
  EXPECT_EQ(said({{"reasoning_budget", -1}}).reasoning, "one two three four five six");
  // In the other protocols, too.
  const Json messages = {{{"role", "user"}, {"content", "Go."}}};
  const Json ollama = {
      {"messages", messages}, {"stream", false}, {"options", {{"temperature", 0}}}};
  const Json message = server.post("/api/chat", ollama.dump()).json()["message"];
  EXPECT_EQ(message["thinking"], "one two Well.");
  EXPECT_EQ(message["content"], "The answer.");
  const Json responses = {{"input", "Go."}, {"temperature", 0}};
  const Json output = server.post("/v1/responses", responses.dump()).json()["output"];
  ASSERT_EQ(output.size(), 2u) << output;
  EXPECT_EQ(output[0]["content"][0]["text"], "one two Well.");
  EXPECT_EQ(output[1]["content"][0]["text"], "The answer.");
  const Json anthropic = {{"messages", messages}, {"temperature", 0}, {"max_tokens", 100}};
  EXPECT_EQ(server.post("/v1/messages", anthropic.dump()).json()["content"][0]["thinking"],
            "one two Well.");
}

TEST_F(ReasoningBudgets, HoldInAChat) {
  const auto chat = [](const std::vector<std::string>& more) {
    std::vector<std::string> args = {ktx_run(), "chat", plan(), "--temp", "0"};
    args.insert(args.end(), more.begin(), more.end());
    const Finished run = run_program(args, "Go.\nGo.\n");
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  // As the model says it, tags and all, and so again.
  EXPECT_EQ(chat({"--reasoning-budget", "2"}),
            "<think>one two </think>The answer.\n<think>one two </think>The answer.\n");
  EXPECT_THAT(chat({}), HasSubstr("three four five six </think>The answer."));
  EXPECT_THAT(chat({"--reasoning-budget=1", "--reasoning-budget-message=Ok."}),
              HasSubstr("<think>one Ok.</think>The answer."));
}

// Tags that are no tokens of the vocabulary: a schema and a forced call begin behind them as well.
TEST(PlainReasoning, ComesBeforeAConstrainedAnswer) {
  const TempDir dir;
  ScriptedModel model;
  model.chat_template = "{# <think> #}{% for m in messages %}{{ m.content }}{% endfor %}<|go|>";
  model.answer = {"<thi",  "nk>",      "one ",
                  "two ",  "</th",     "ink>",
                  "{\"na", "me\": \"", "f\", \"arguments\": {}}"};
  ASSERT_TRUE(write_scripted_model(dir.path("m.gguf"), model));
  const std::string plan = dir.path("m.ktxplan");
  const Finished run = run_program({ktx_compile(), "-q", dir.path("m.gguf"), "-o", plan});
  ASSERT_EQ(run.status, 0) << run.err;
  const ServerProcess server({plan, "--max-batch", "2"});
  const Json schema = {{"type", "object"}};
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  Json body = {{"json_schema", schema}, {"reasoning_effort", "high"}};
  for (const bool stream : {false, true}) {
    EXPECT_EQ(said_by(server, body, "Go.", stream),
              (Said{"one two", "{\"name\": \"f\", \"arguments\": {}}"}));
  }
  body["reasoning_budget"] = 1;
  EXPECT_EQ(said_by(server, body, "Go.", false).reasoning, "one");
  body = {{"tools", {tool}}, {"tool_choice", "required"}, {"reasoning_effort", "high"}};
  EXPECT_EQ(said_by(server, body, "Go.", false).reasoning, "one two");
}

class HarmonyReasoning : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("gpt_oss"), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({plan(), "--max-batch", "2"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static std::string plan() { return dir_->path("m.ktxplan"); }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* HarmonyReasoning::dir_ = nullptr;
ServerProcess* HarmonyReasoning::server_ = nullptr;

constexpr const char* kSum = "What is 7 + 12?";

TEST_F(HarmonyReasoning, IsCutByItsBudget) {
  const Said whole = said_by(*server_, Json::object(), kSum, false);
  ASSERT_GT(whole.reasoning.size(), 10u);
  for (const bool stream : {false, true}) {
    const Said cut = said_by(*server_, {{"reasoning_budget", 2}}, kSum, stream);
    EXPECT_TRUE(whole.reasoning.starts_with(cut.reasoning)) << cut.reasoning;
    EXPECT_LT(cut.reasoning.size(), whole.reasoning.size());
    EXPECT_FALSE(cut.content.empty());
    EXPECT_EQ(cut.content.find("<|"), std::string::npos);
    const Said none = said_by(*server_, {{"reasoning_budget", 0}}, kSum, stream);
    EXPECT_EQ(none.reasoning, "");
    EXPECT_FALSE(none.content.empty());
  }
}

TEST_F(HarmonyReasoning, ComesBeforeAConstrainedAnswerWhereItIsAskedFor) {
  const Json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "integer"}, {"maximum", 99}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  for (const bool stream : {false, true}) {
    for (const bool reasons : {true, false}) {
      Json body = {{"json_schema", schema}};
      if (reasons) body["reasoning_effort"] = "low";
      const Said said = said_by(*server_, body, kSum, stream);
      EXPECT_EQ(said.reasoning.empty(), !reasons) << said.reasoning;
      const Json value = Json::parse(said.content, nullptr, false);
      ASSERT_TRUE(value.is_object()) << said.content;
      EXPECT_TRUE(value["a"].is_number_integer()) << said.content;
      if (!reasons) continue;
      body["reasoning_budget"] = 1;
      const Said cut = said_by(*server_, body, kSum, stream);
      EXPECT_LT(cut.reasoning.size(), said.reasoning.size());
      EXPECT_TRUE(Json::parse(cut.content, nullptr, false).is_object()) << cut.content;
    }
  }
}

TEST_F(HarmonyReasoning, InAPipeTheContentIsPrinted) {
  const Finished run = run_program({ktx_run(), "chat", plan(), "--temp", "0"},
                                   std::string(kSum) + "\n" + kSum + "\n");
  ASSERT_EQ(run.status, 0) << run.err;
  const Said said = said_by(*server_, Json::object(), kSum, false);
  EXPECT_TRUE(run.out.starts_with(said.content + "\n")) << run.out;
  EXPECT_EQ(run.out.find("analysis"), std::string::npos);
  EXPECT_EQ(run.out.find("<|"), std::string::npos);
  const Finished once =
      run_program({ktx_run(), "generate", plan(), "--temp", "0", "--chat", "--prompt", kSum});
  EXPECT_EQ(once.out, said.content + "\n") << once.err;
}

}  // namespace
}  // namespace ktx::testing
