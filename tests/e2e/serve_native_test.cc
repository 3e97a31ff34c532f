// llama.cpp's own endpoints, as its clients use them: /completion, /infill, /embeddings, and what
// its server adds to OpenAI's answers. (llama_server/run.py runs its own tests.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "tests/support/http_client.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The model with three of its unused tokens as those that fill in the middle.
void add_fim_tokens(const std::string& path) {
  auto gguf = input::GgufFile::open(model_gguf("llama"), {});
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  input::GgufWriter writer;
  for (const input::GgufValue& value : gguf->metadata()) {
    if (value.key == "tokenizer.ggml.tokens") {
      const auto tokens = gguf->strings(value.key);
      std::vector<std::string> names(tokens->begin(), tokens->end());
      names[2040] = "<|fim_prefix|>";
      names[2041] = "<|fim_suffix|>";
      names[2042] = "<|fim_middle|>";
      writer.add_strings(std::string(value.key), names);
    } else if (value.key == "tokenizer.ggml.token_type" && value.ints()) {
      const auto types = *value.ints();
      std::vector<int32_t> all(types.begin(), types.end());
      for (size_t id = 2040; id < 2043; ++id) all[id] = 3;  // control
      writer.add_i32s(std::string(value.key), all);
    } else {
      writer.copy(value);
    }
  }
  for (const input::GgufTensor& tensor : gguf->tensors()) writer.copy(tensor);
  ASSERT_TRUE(writer.write(path).ok());
}

class Native : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    add_fim_tokens(dir_->path("fim.gguf"));
    const Finished run =
        run_program({ktx_compile(), "-q", dir_->path("fim.gguf"), "-o", dir_->path("fim.ktxplan")});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ = new ServerProcess({dir_->path("fim.ktxplan"), "--max-batch", "2", "--ctx", "256",
                                 "--chunk", "32", "--seed", "7", "-n", "20", "--alias", "one,two",
                                 "--pooling", "none", "--tags", "small,chat", "--context-shift"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static json ask(const std::string& path, const json& body, int status = 200) {
    const HttpAnswer answer = server_->post(path, body.dump());
    EXPECT_EQ(answer.status, status) << answer.body;
    return answer.json();
  }

  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* Native::dir_ = nullptr;
ServerProcess* Native::server_ = nullptr;

constexpr const char* kBegin = "Once upon a time";

TEST_F(Native, ACompletionTellsAllOfItself) {
  const json answer = ask("/completion", {{"prompt", kBegin}, {"n_predict", 8}});
  EXPECT_EQ(answer["tokens_predicted"], 8);
  EXPECT_EQ(answer["tokens_evaluated"], 5);
  EXPECT_EQ(answer["timings"]["predicted_n"], 8);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_EQ(answer["prompt"], std::string("<|begin_of_text|>") + kBegin);
  EXPECT_EQ(answer["tokens"], json::array());
  const json& settings = answer["generation_settings"];
  EXPECT_EQ(settings["seed"], 7) << "--seed";
  EXPECT_EQ(settings["n_predict"], 8);
  EXPECT_EQ(settings["temperature"], 0.8);
  // The same again, as --seed says, also without the leading /v1 and as OpenAI's endpoint.
  const json again =
      ask("/completions", {{"prompt", kBegin}, {"n_predict", 8}, {"return_tokens", true}});
  EXPECT_EQ(again["content"], answer["content"]);
  EXPECT_EQ(again["tokens"].size(), 8u);
  EXPECT_EQ(ask("/v1/completions", {{"prompt", kBegin}, {"max_tokens", 8}})["choices"][0]["text"],
            answer["content"]);
  // Without a limit --n is it.
  EXPECT_EQ(
      ask("/completion", {{"prompt", "1, 2, 3, 4,"}, {"ignore_eos", true}})["tokens_predicted"],
      20);
}

TEST_F(Native, AStreamHasItsTokensTimesAndProgress) {
  std::string prompt;
  for (int i = 0; i < 25; ++i) prompt += " the old fox";
  const HttpAnswer answer = server_->post("/completion", json{{"prompt", prompt},
                                                              {"n_predict", 4},
                                                              {"stream", true},
                                                              {"n_probs", 3},
                                                              {"temperature", 0},
                                                              {"ignore_eos", true},
                                                              {"timings_per_token", true},
                                                              {"return_progress", true}}
                                                             .dump());
  std::vector<json> progress;
  int64_t tokens = 0;
  const std::vector<json> events = answer.events();
  for (const json& event : events) {
    if (event.contains("prompt_progress")) progress.push_back(event["prompt_progress"]);
    if (event["stop"] == true || event.contains("prompt_progress")) continue;
    tokens += static_cast<int64_t>(event["tokens"].size());
    EXPECT_EQ(event["timings"]["predicted_n"], tokens);
    EXPECT_EQ(event["completion_probabilities"].size(), event["tokens"].size());
    EXPECT_EQ(event["completion_probabilities"][0]["top_logprobs"].size(), 3u);
  }
  EXPECT_EQ(tokens, 4);
  EXPECT_EQ(events.back()["stop"], true);
  EXPECT_EQ(events.back()["content"], "");
  ASSERT_GE(progress.size(), 3u) << "a report before, and one for each chunk of 32";
  EXPECT_EQ(progress[0]["processed"], progress[0]["cache"]);
  EXPECT_EQ(progress.back()["processed"], progress.back()["total"]);
  for (size_t i = 1; i < progress.size(); ++i) {
    EXPECT_GT(progress[i]["processed"], progress[i - 1]["processed"]);
  }
}

TEST_F(Native, SampledProbabilitiesAreThoseOfTheDraw) {
  const json answer = ask("/completion", {{"prompt", kBegin},
                                          {"n_predict", 6},
                                          {"n_probs", 5},
                                          {"post_sampling_probs", true},
                                          {"top_k", 3},
                                          {"min_p", 0},
                                          {"top_p", 1}});
  for (const json& token : answer["completion_probabilities"]) {
    double sum = 0;
    EXPECT_LE(token["top_probs"].size(), 3u);
    for (const json& each : token["top_probs"]) sum += each["prob"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_GT(token["prob"], 0);
  }
  // A greedy answer had no choice.
  const json greedy = ask("/completion", {{"prompt", kBegin},
                                          {"n_predict", 1},
                                          {"n_probs", 5},
                                          {"post_sampling_probs", true},
                                          {"temperature", 0}});
  EXPECT_EQ(greedy["completion_probabilities"][0]["prob"], 1);
}

TEST_F(Native, PromptsMixTextsTokensAndObjects) {
  const json tokens = ask("/tokenize", {{"content", kBegin}, {"add_special", true}})["tokens"];
  const json greedy = {{"temperature", 0}, {"n_predict", 6}};
  const auto content = [&](const json& prompt) {
    json body = greedy;
    body["prompt"] = prompt;
    return ask("/completion", body);
  };
  const json alone = content(kBegin)["content"];
  const json list = content({tokens, kBegin, {{"prompt_string", kBegin}}});
  ASSERT_EQ(list.size(), 3u);
  for (const json& each : list) EXPECT_EQ(each["content"], alone);
  json mixed = tokens;
  mixed.push_back(", there");
  EXPECT_EQ(content(mixed)["tokens_evaluated"], tokens.size() + 2);
  const json refused =
      ask("/completion",
          {{"prompt", {{"prompt_string", "a"}, {"multimodal_data", json::array({"AAAA"})}}}}, 400);
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("reads text only"));
}

TEST_F(Native, OnlyTheFieldsThatAreAskedFor) {
  const json answer =
      ask("/completion",
          {{"prompt", kBegin},
           {"n_predict", 2},
           {"response_fields", {"content", "generation_settings/n_predict", "no/such"}}});
  EXPECT_EQ(answer.size(), 2u);
  EXPECT_EQ(answer["generation_settings/n_predict"], 2);
}

TEST_F(Native, InfillPutsTheGapBehindItsSurroundings) {
  const json answer = ask("/infill", {{"input_prefix", "Once upon"},
                                      {"prompt", " a"},
                                      {"input_suffix", " fox"},
                                      {"n_predict", 3},
                                      {"input_extra", {{{"filename", "a.h"}, {"text", "int"}}}}});
  EXPECT_EQ(answer["prompt"],
            "<|begin_of_text|>\n\n--- a.h ---\n\nint<|fim_prefix|>Once upon a<|fim_suffix|> fox"
            "<|fim_middle|>");
  ask("/infill", {{"input_extra", {{{"filename", 1}, {"text", "int"}}}}}, 400);
  // A long file keeps what is nearest to the gap.
  std::string far;
  for (int i = 0; i < 500; ++i) far += " fox";
  const json cut =
      ask("/infill", {{"input_prefix", far + " near"}, {"input_suffix", far}, {"n_predict", 1}});
  EXPECT_LT(cut["tokens_evaluated"], 256);
  EXPECT_THAT(cut["prompt"].get<std::string>(), HasSubstr(" near<|fim_suffix|> fox"));
}

TEST_F(Native, AFullContextGoesOnBehindADrop) {
  const json answer = ask("/completion", {{"prompt", kBegin},
                                          {"n_predict", 300},
                                          {"temperature", 0},
                                          {"n_keep", 3},
                                          {"ignore_eos", true}});
  EXPECT_EQ(answer["tokens_predicted"], 300) << "of a context of 256";
  EXPECT_EQ(answer["truncated"], true);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["generation_settings"]["n_keep"], 3);
}

TEST_F(Native, PredictionsAreAnswersToTheirInstances) {
  const json chat = {{"@requestFormat", "chatCompletions"},
                     {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                     {"max_tokens", 4},
                     {"stream", true}};
  const json completion = {{"@requestFormat", "/completion"}, {"prompt", kBegin}, {"n_predict", 3}};
  const json tokens = {{"@requestFormat", "tokenize"}, {"content", kBegin}};
  const json nothing = {{"@requestFormat", "modelsLoad"}};
  const json wrong = {{"@requestFormat", "completions"}, {"max_tokens", "many"}};
  const json answer =
      ask("/predict", {{"instances", json::array({chat, completion, tokens, nothing, wrong, 5})}});
  const json& predictions = answer["predictions"];
  ASSERT_EQ(predictions.size(), 6u);
  EXPECT_EQ(predictions[0]["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(predictions[1]["tokens_predicted"], 3);
  EXPECT_EQ(predictions[2]["tokens"].size(), 4u);
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(predictions[i].contains("error")) << predictions[i];
  EXPECT_EQ(ask("/predict", {{"instances", json::array()}})["predictions"], json::array());
  ask("/predict", json::object(), 400);
  ask("/predict", {{"instances", json(std::vector<int>(129))}}, 400);
}

TEST_F(Native, GrammarsNameTokens) {
  const json answer = ask("/completion", {{"prompt", kBegin},
                                          {"n_predict", 5},
                                          {"return_tokens", true},
                                          {"grammar", "root ::= <|fim_prefix|> !<[33]> <[34]>"}});
  ASSERT_GE(answer["tokens"].size(), 3u);
  EXPECT_EQ(answer["tokens"][0], 2040);
  EXPECT_NE(answer["tokens"][1], 33);
  EXPECT_EQ(answer["tokens"][2], 34);
  const json refused =
      ask("/completion", {{"prompt", kBegin}, {"grammar", "root ::= <nope>"}}, 400);
  EXPECT_THAT(refused["error"]["message"], HasSubstr("no token has exactly this text"));
}

TEST_F(Native, BiasesAreTextsTokensAndLists) {
  const auto content = [&](const json& bias) {
    return ask("/completion", {{"prompt", kBegin},
                               {"n_predict", 12},
                               {"temperature", 0},
                               {"ignore_eos", true},
                               {"logit_bias", bias}})["content"]
        .get<std::string>();
  };
  ASSERT_THAT(content(nullptr), HasSubstr(" was"));
  EXPECT_THAT(content({{" was", false}}), ::testing::Not(HasSubstr(" was")));
  EXPECT_THAT(content(json::array({{" was", -100}})), ::testing::Not(HasSubstr(" was")));
  const json settings =
      ask("/completion", {{"prompt", kBegin}, {"n_predict", 1}, {"ignore_eos", true}});
  EXPECT_FALSE(settings["generation_settings"]["logit_bias"].empty());
}

TEST_F(Native, RefusesMethodsThatAreNotHere) {
  const auto refused = [&](json more) {
    json body = {{"prompt", kBegin}, {"n_predict", 1}};
    body.update(more);
    return ask("/completion", body, 400)["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refused({{"mirostat", 1}}), HasSubstr("only 0 and 2"));
  EXPECT_THAT(refused({{"tfs_z", 0.5}}), HasSubstr("only 1 is possible here"));
  EXPECT_THAT(refused({{"samplers", {"temperature", "top_k"}}}), HasSubstr("the order is"));
  EXPECT_THAT(refused({{"samplers", {"magic"}}}), HasSubstr("does not exist here"));
  EXPECT_THAT(refused({{"logit_bias", json::array({json::array({1})})}}),
              HasSubstr("[token, bias]"));
  EXPECT_THAT(refused({{"id_slot", 9}}), HasSubstr("'id_slot' is 9"));
  // Neutral values, and the others with their own.
  ask("/completion", {{"prompt", kBegin},
                      {"n_predict", 4},
                      {"tfs_z", 1},
                      {"lora", json::array()},
                      {"use_beam_search", false},
                      {"mirostat", 2},
                      {"dry_multiplier", 0.8},
                      {"dry_sequence_breakers", {"\n"}},
                      {"xtc_probability", 0.5},
                      {"typical_p", 0.9},
                      {"top_n_sigma", 1.5},
                      {"dynatemp_range", 0.2},
                      {"samplers", {"top_k", "temperature"}}});
}

TEST_F(Native, ARequestMayNameItsSlot) {
  for (const int slot : {1, 0, 1}) {
    EXPECT_EQ(
        ask("/completion", {{"prompt", kBegin}, {"n_predict", 1}, {"id_slot", slot}})["id_slot"],
        slot);
  }
  const json slots = server_->get("/slots").json();
  EXPECT_EQ(slots[1]["n_ctx"], 256);
  EXPECT_EQ(slots[1]["next_token"]["n_decoded"], 1);
  // Choices that name the same slot wait for each other, and block no other request.
  const json chat = ask("/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                              {"n", 3},
                                              {"max_tokens", 2},
                                              {"id_slot", 0}});
  for (const json& choice : chat["choices"]) EXPECT_EQ(choice["id_slot"], 0);
}

TEST_F(Native, WhatDoesNotFitIsSaidInNumbers) {
  std::string prompt;
  for (int i = 0; i < 400; ++i) prompt += " fox";
  const json error = ask("/chat/completions",
                         {{"messages", {{{"role", "user"}, {"content", prompt}}}}}, 400)["error"];
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["n_ctx"], 256);
  EXPECT_GT(error["n_prompt_tokens"], 400);
}

TEST_F(Native, TokensOfAConversationAreCounted) {
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const json counted = ask("/chat/completions/input_tokens", {{"messages", messages}});
  EXPECT_EQ(counted["input_tokens"], ask("/apply-template", {{"messages", messages}})["tokens"]);
  EXPECT_EQ(ask("/responses/input_tokens", {{"input", "Hi"}})["input_tokens"],
            counted["input_tokens"]);
}

TEST_F(Native, VerboseTellsThePrompt) {
  json body = {
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}, {"verbose", true}};
  const json told = ask("/v1/chat/completions", body);
  EXPECT_THAT(told["__verbose"]["prompt"].get<std::string>(), HasSubstr("Hi<|eot_id|>"));
  EXPECT_EQ(told["__verbose"]["generation_settings"]["n_predict"], 2);
  body["verbose"] = false;
  EXPECT_FALSE(ask("/v1/chat/completions", body).contains("__verbose"));
}

TEST_F(Native, EmbeddingsWithoutPoolingAreOneForEachToken) {
  const json list = ask("/embeddings", {{"content", "fox fox"}});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["embedding"].size(),
            ask("/tokenize", {{"content", "fox fox"}, {"add_special", true}})["tokens"].size());
  EXPECT_EQ(list[0]["embedding"][0].size(), 256u);
  EXPECT_THAT(ask("/v1/embeddings", {{"input", "fox"}}, 400)["error"]["message"].get<std::string>(),
              HasSubstr("/embeddings has them"));
}

TEST_F(Native, TheServerTellsItsDefaults) {
  const json props = server_->get("/props").json();
  EXPECT_EQ(props["default_generation_settings"]["params"]["seed"], 7);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 256);
  EXPECT_EQ(props["model_path"], "fim.ktxplan") << "not the folder, which is nobody's business";
  const json model = server_->get("/models").json()["data"][0];
  EXPECT_EQ(model["aliases"], json::array({"one", "two"}));
  EXPECT_EQ(model["tags"], json::array({"small", "chat"}));
  EXPECT_EQ(server_->get("/v1/models/two").status, 200);
}

// A template that knows neither tools nor a system message, as Gemma 2's.
TEST(NativeOptions, AForcedCallNeedsNoTemplateOfTools) {
  TempDir dir;
  const Finished run =
      run_program({ktx_compile(), "-q", model_gguf("qwen2"), "-o", dir.path("q.ktxplan")});
  ASSERT_EQ(run.status, 0) << run.err;
  std::ofstream(dir.path("t.jinja"))
      << "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
         "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
  const ServerProcess server({dir.path("q.ktxplan"), "--chat-template-file", dir.path("t.jinja")});
  const json tool = {
      {"type", "function"},
      {"function",
       {{"name", "add"},
        {"parameters",
         {{"type", "object"},
          {"properties", {{"a", {{"type", "integer"}, {"maximum", 99}, {"minimum", 0}}}}},
          {"required", {"a"}}}}}}};
  json body = {{"messages",
                {{{"role", "system"}, {"content", "Be brief."}},
                 {{"role", "user"}, {"content", "Add one."}}}},
               {"tools", {tool}},
               {"tool_choice", "required"},
               {"verbose", true}};
  const json answer = server.post("/v1/chat/completions", body.dump()).json();
  const json& call = answer["choices"][0]["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "add") << answer;
  EXPECT_TRUE(json::parse(call["arguments"].get<std::string>()).contains("a"));
  const std::string prompt = answer["__verbose"]["prompt"];
  EXPECT_THAT(prompt, HasSubstr("<user>Be brief."));
  EXPECT_THAT(prompt, HasSubstr("{\"name\":\"add\""));
  EXPECT_THAT(prompt, HasSubstr("Add one.<assistant>"));
  body["tool_choice"] = "auto";
  EXPECT_EQ(server.post("/v1/chat/completions", body.dump()).status, 200);
}

TEST(NativeOptions, TemplatesReasoningSlotsAndLocalPages) {
  TempDir dir;
  const Finished run =
      run_program({ktx_compile(), "-q", model_gguf("deepseek3"), "-o", dir.path("r.ktxplan")});
  ASSERT_EQ(run.status, 0) << run.err;
  std::ofstream(dir.path("t.jinja")) << "{% for m in messages %}<{{ m.content }}>{% endfor %}"
                                        "{% if add_generation_prompt %}<think>\n{% endif %}";
  const ServerProcess server({dir.path("r.ktxplan"), "--chat-template-file", dir.path("t.jinja"),
                              "--reasoning", "off", "--slots", "off", "--cors", "localhost"});
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  const json prompt = server.post("/apply-template", body).json();
  EXPECT_EQ(prompt["prompt"], "<Hi><think>\n</think>") << "the template opens it anyway";
  const json asked = server
                         .post("/apply-template",
                               R"({"messages": [{"role": "user", "content": "Hi"}],
                                   "chat_template_kwargs": {"enable_thinking": true}})")
                         .json();
  EXPECT_EQ(asked["prompt"], "<Hi><think>\n");
  EXPECT_EQ(server.get("/slots").status, 501);
  for (const auto& [origin, allowed] : {std::pair("http://localhost:3000", true),
                                        {"https://[::1]", true},
                                        {"http://localhost.evil.com", false},
                                        {"http://notlocalhost", false}}) {
    Connection client(server.port());
    client.send("OPTIONS /completion HTTP/1.1\r\nHost: localhost\r\nOrigin: " +
                std::string(origin) + "\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.count("access-control-allow-origin"), allowed ? 1u : 0u) << origin;
  }
}

}  // namespace
}  // namespace ktx::testing
