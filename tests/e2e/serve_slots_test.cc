// Slots that outlive their server: saved in the middle of a prompt or of a sampled answer, the
// server killed, and the answer continued by another server, for every family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http_client.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

constexpr int kAnswer = 48;

class Slots : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Finished run = run_program({ktx_compile(), "-q", model_gguf(GetParam()), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }
  std::vector<std::string> serve() const {
    return {plan(), "--slot-dir", dir_.path(), "--max-batch", "2", "-t", "2"};
  }
  static json sampled(const json& prompt, int max_tokens) {
    return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0.9}, {"top_p", 0.9},
            {"seed", 11},       {"repeat_penalty", 1.1},    {"ignore_eos", true}};
  }
  static std::string complete(const ServerProcess& server, const json& body) {
    const HttpAnswer answer = server.post("/v1/completions", body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json parsed = answer.json();
    return parsed.contains("choices") ? parsed["choices"][0]["text"].get<std::string>() : "";
  }
  // What a server that has slot 0 from the file makes of the rest of its answer, and what
  // of it was there.
  std::string resumed(json& tokens) {
    const ServerProcess server(serve());
    const HttpAnswer restored = server.post("/slots/0?action=restore", R"({"filename": "x.slot"})");
    EXPECT_EQ(restored.status, 200) << restored.body;
    if (restored.status != 200) return "";
    const json state = restored.json();
    const int answered = state["n_answered"];
    tokens = state["tokens"];
    const json piece = json(std::vector<int>(tokens.end() - answered, tokens.end()));
    std::string had = server.post("/detokenize", json{{"tokens", piece}}.dump())
                          .json()["content"]
                          .get<std::string>();
    // Control tokens have a text here, and none in an answer.
    for (const std::string_view end :
         {"<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<｜end▁of▁sentence｜>",
          "<|end_of_text|>", "<|user|>", "<|observation|>", "[e~[", "<|return|>", "<|call|>",
          "<end_of_turn>", "<eos>"}) {
      for (size_t at; (at = had.find(end)) != std::string::npos;) had.erase(at, end.size());
    }
    return had +
           complete(server,
                    {{"resume_slot", 0}, {"max_tokens", kAnswer - answered}, {"ignore_eos", true}});
  }

  TempDir dir_;
};

TEST_P(Slots, AnAnswerGoesOnBehindAKill) {
  std::string whole;
  {
    ServerProcess server(serve());
    whole = complete(server, sampled("Once upon a time", kAnswer));
    Connection client(server.port());
    json body = sampled("Once upon a time", 3000);
    body["stream"] = true;
    client.send(http_request("POST", "/v1/completions", body.dump()));
    client.receive();
    // Not one token too late: what comes behind kAnswer is no part of the comparison.
    json saved;
    for (int i = 0; i < 200; ++i) {
      saved = server.post("/slots/0?action=save", R"({"filename": "x.slot"})").json();
      if (saved.value("n_answered", 0) > 0) break;
    }
    ASSERT_GT(saved.value("n_answered", 0), 0) << saved;
    server.stop(SIGKILL);
    if (saved["n_answered"] > kAnswer) GTEST_SKIP() << "the machine was too slow to save early";
  }
  json tokens;
  EXPECT_EQ(resumed(tokens), whole);
}

TEST_P(Slots, APromptGoesOnBehindAKill) {
  std::string whole, prompt;
  {
    // In many steps, so that a save meets it between two; the others compute it in the usual ones.
    std::vector<std::string> in_small_steps = serve();
    in_small_steps.insert(in_small_steps.end(), {"--chunk", "32"});
    ServerProcess server(in_small_steps);
    json saved;
    for (int attempt = 0; attempt < 50; ++attempt) {
      // Prompts that differ from their first token on, long enough to be caught in.
      prompt = std::to_string(attempt);
      for (int i = 0; i < 300; ++i) prompt += " " + std::to_string(i * attempt % 97);
      Connection client(server.port());
      client.send(http_request("POST", "/v1/completions", sampled(prompt, kAnswer).dump()));
      for (int i = 0; i < 200; ++i) {
        const json slot = server.get("/slots").json()[0];
        if (slot["is_processing"] == true) break;
      }
      saved = server.post("/slots/0?action=save", R"({"filename": "x.slot"})").json();
      if (saved.value("n_saved", 0) > 0 && saved["n_computed"] < saved["n_saved"] &&
          saved["n_answered"] == 0) {
        break;
      }
    }
    ASSERT_TRUE(saved.value("n_answered", 1) == 0 && saved["n_computed"] < saved["n_saved"])
        << saved;
    server.stop(SIGKILL);
  }
  json tokens;
  const std::string continued = resumed(tokens);
  const ServerProcess server(serve());
  EXPECT_EQ(continued, complete(server, sampled(tokens, kAnswer)));
}

// A chat's answer comes whole behind the kill: what had been said, also as reasoning, and
// the rest.
TEST_P(Slots, AChatGoesOnBehindAKill) {
  const auto sampled_chat = [](int max_tokens) {
    return json{{"messages", {{{"role", "user"}, {"content", "Tell me a story about a fox."}}}},
                {"max_tokens", max_tokens},
                {"temperature", 0.9},
                {"top_k", 30},
                {"seed", 4},
                {"ignore_eos", true}};
  };
  json whole;
  {
    ServerProcess server(serve());
    ASSERT_EQ(server.post("/v1/chat/completions", sampled_chat(kAnswer / 2).dump()).status, 200);
    const json saved = server.post("/slots/0?action=save", R"({"filename": "x.slot"})").json();
    ASSERT_EQ(saved.value("n_answered", 0), kAnswer / 2) << saved;
    whole = server.post("/v1/chat/completions", sampled_chat(kAnswer).dump()).json();
    ASSERT_TRUE(whole.contains("choices")) << whole;
    server.stop(SIGKILL);
  }
  const ServerProcess server(serve());
  ASSERT_EQ(server.post("/slots/0?action=restore", R"({"filename": "x.slot"})").status, 200);
  const json rest = {
      {"resume_slot", 0}, {"max_tokens", kAnswer - kAnswer / 2}, {"ignore_eos", true}};
  const HttpAnswer answer = server.post("/v1/chat/completions", rest.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  // The slot is a place, not a part of what is answered: the whole answer ran beside the saved one.
  json resumed = answer.json()["choices"][0], expected = whole["choices"][0];
  EXPECT_EQ(resumed["id_slot"], 0);
  resumed.erase("id_slot");
  expected.erase("id_slot");
  EXPECT_EQ(resumed, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, Slots, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });

// A call that was cut in the middle of its arguments is a whole call in the end, streamed
// or not: tools and choice are given again, the conversation is not.
TEST(SlotFields, ACallGoesOnWithItsToolsGivenAgain) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan}).status, 0);
  const ServerProcess server({plan, "--max-batch", "1", "--slot-dir", dir.path()});
  const json tools = {{{"type", "function"},
                       {"function",
                        {{"name", "get_weather"},
                         {"parameters",
                          {{"type", "object"},
                           {"properties", {{"city", {{"type", "string"}, {"minLength", 30}}}}},
                           {"required", {"city"}}}}}}}};
  json body = {{"messages", {{{"role", "user"}, {"content", "Is it raining in Paris?"}}}},
               {"tools", tools},
               {"tool_choice", "required"},
               {"temperature", 0},
               {"max_tokens", 300}};
  const json whole = server.post("/v1/chat/completions", body.dump()).json();
  ASSERT_EQ(whole["choices"][0]["finish_reason"], "tool_calls") << whole;
  const json call = whole["choices"][0]["message"]["tool_calls"][0]["function"];

  json cut = body;
  cut["max_tokens"] = whole["usage"]["completion_tokens"].get<int>() / 2;
  ASSERT_EQ(server.post("/v1/chat/completions", cut.dump()).json()["choices"][0]["finish_reason"],
            "length");
  ASSERT_EQ(server.post("/slots/0?action=save", R"({"filename": "x"})").status, 200);
  body.erase("messages");
  body["resume_slot"] = 0;
  for (const bool streamed : {false, true}) {
    ASSERT_EQ(server.post("/slots/0?action=restore", R"({"filename": "x"})").status, 200);
    body["stream"] = streamed;
    const HttpAnswer answer = server.post("/v1/chat/completions", body.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    if (!streamed) {
      const json choice = answer.json()["choices"][0];
      EXPECT_EQ(choice["finish_reason"], "tool_calls") << answer.body;
      EXPECT_EQ(choice["message"]["tool_calls"][0]["function"], call);
      continue;
    }
    std::string name, arguments;
    for (const json& event : answer.events()) {
      if (event["choices"].empty() || !event["choices"][0]["delta"].contains("tool_calls"))
        continue;
      const json said = event["choices"][0]["delta"]["tool_calls"][0]["function"];
      name += said.value("name", "");
      arguments += said["arguments"];
    }
    EXPECT_EQ(name, call["name"]) << answer.body;
    EXPECT_EQ(json::parse(arguments), json::parse(call["arguments"].get<std::string>()));
  }
  // By now it has ended by itself.
  const HttpAnswer over = server.post("/v1/chat/completions", body.dump());
  EXPECT_EQ(over.status, 400);
  EXPECT_NE(over.body.find("the answer in slot 0 has ended"), std::string::npos) << over.body;
}

TEST(SlotFields, WhatCannotBeResumedIsNamed) {
  const TempDir dir;
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan}).status, 0);
  const ServerProcess server({plan, "--max-batch", "2"});
  for (const json& body : {json{{"resume_slot", 0}}, json{{"resume_slot", 2}},
                           json{{"resume_slot", -1}}, json{{"resume_slot", "x"}}}) {
    const HttpAnswer answer = server.post("/v1/completions", body.dump());
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], "resume_slot");
  }
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})").status, 200);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "a", "resume_slot": 0})").status, 400);
  EXPECT_EQ(server.post("/v1/chat/completions", R"({"messages": [], "resume_slot": 0})").status,
            400);
  EXPECT_EQ(server.post("/v1/chat/completions", R"({"resume_slot": 0, "n": 2})").status, 400);
  EXPECT_EQ(server.post("/v1/chat/completions", R"({"resume_slot": 7})").status, 400);
}

}  // namespace
}  // namespace ktx::testing
