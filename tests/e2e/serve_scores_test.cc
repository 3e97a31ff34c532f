// What evaluation harnesses ask of a server: log-probabilities of a prompt's own tokens, and token
// ids; and numbers as they were sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/http_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class ServeScores : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const std::string plan = dir_->path("m.ktxplan");
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan});
    ASSERT_EQ(run.status, 0) << run.err;
    server_ =
        new ServerProcess({plan, "--max-batch", "3", "--chunk", "32", "--precision", "exact"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static Json ask(const std::string& path, const Json& body) {
    const HttpAnswer answer = server_->post(path, body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }
  static Json complete(Json body) {
    body["temperature"] = 0;
    return ask("/v1/completions", body);
  }
  static std::vector<int32_t> tokens_of(const std::string& text) {
    return ask("/tokenize", {{"content", text}})["tokens"].get<std::vector<int32_t>>();
  }
  static TempDir* dir_;
  static ServerProcess* server_;
};
TempDir* ServeScores::dir_ = nullptr;
ServerProcess* ServeScores::server_ = nullptr;

// The answer's log-probabilities are those that it has as a part of a prompt.
TEST_F(ServeScores, PromptsHaveTheLogprobsThatAnswersHad) {
  const std::vector<int32_t> prompt = tokens_of("The quick brown fox jumps over");
  const Json native =
      ask("/completion",
          {{"prompt", prompt}, {"n_predict", 40}, {"temperature", 0}, {"return_tokens", true}});
  std::vector<int32_t> whole = prompt;
  for (const Json& id : native["tokens"]) whole.push_back(id);
  const Json given = complete({{"prompt", prompt}, {"max_tokens", 40}, {"logprobs", 2}});
  const Json& answered = given["choices"][0]["logprobs"]["token_logprobs"];
  for (const int max_tokens : {0, 1, 3}) {
    for (const bool cached : {true, false}) {
      const Json scored = complete({{"prompt", whole},
                                    {"echo", true},
                                    {"max_tokens", max_tokens},
                                    {"logprobs", 2},
                                    {"cache_prompt", cached}});
      const Json& found = scored["choices"][0]["logprobs"];
      // The answer ends here, with a token that has an entry as well.
      const auto more = scored["usage"]["completion_tokens"].get<size_t>();
      EXPECT_EQ(more, std::min(max_tokens, 1));
      const size_t count = whole.size() + more;
      ASSERT_EQ(found["token_logprobs"].size(), count);
      ASSERT_EQ(found["tokens"].size(), count);
      ASSERT_EQ(found["top_logprobs"].size(), count);
      ASSERT_EQ(found["text_offset"].size(), count);
      EXPECT_TRUE(found["token_logprobs"][0].is_null());
      EXPECT_TRUE(found["top_logprobs"][0].is_null());
      for (size_t i = 1; i < whole.size(); ++i) {
        ASSERT_TRUE(found["token_logprobs"][i].is_number());
        EXPECT_EQ(found["top_logprobs"][i].size(), 2u);
        if (i < prompt.size()) continue;
        EXPECT_NEAR(found["token_logprobs"][i].get<double>(),
                    answered[i - prompt.size()].get<double>(), 1e-4)
            << i;
      }
      std::string joined;
      for (size_t i = 0; i < whole.size(); ++i) joined += found["tokens"][i].get<std::string>();
      EXPECT_EQ(joined, scored["choices"][0]["text"]);
    }
  }
}

// As lm-evaluation-harness sends them: many prompts of different lengths at once, beside others.
TEST_F(ServeScores, ManyPromptsAtOnceAreScoredAsAlone) {
  Json prompts = Json::array();
  std::vector<std::vector<double>> alone;
  for (int i = 0; i < 32; ++i) {
    std::string text = "The lazy dog " + std::to_string(i % 4);
    for (int more = 0; more < i % 8; ++more) text += " jumps over the quick brown fox";
    const std::vector<int32_t> ids = tokens_of(text);
    prompts.push_back(ids);
    if (i >= 8) continue;
    const Json one =
        complete({{"prompt", ids}, {"echo", true}, {"max_tokens", 1}, {"logprobs", 1}});
    std::vector<double>& values = alone.emplace_back();
    for (const Json& value : one["choices"][0]["logprobs"]["token_logprobs"]) {
      values.push_back(value.is_null() ? 0 : value.get<double>());
    }
  }
  const Json all =
      complete({{"prompt", prompts}, {"echo", true}, {"max_tokens", 1}, {"logprobs", 1}});
  ASSERT_EQ(all["choices"].size(), 32u);
  for (size_t i = 0; i < 32; ++i) {
    const Json& found = all["choices"][i]["logprobs"]["token_logprobs"];
    ASSERT_EQ(found.size(), prompts[i].size() + 1) << i;
    if (i >= 8) continue;
    for (size_t t = 1; t < found.size(); ++t) EXPECT_EQ(found[t].get<double>(), alone[i][t]) << i;
  }
}

TEST_F(ServeScores, StreamsAndTextsAreScored) {
  const Json whole =
      complete({{"prompt", "The quick"}, {"echo", true}, {"max_tokens", 4}, {"logprobs", 0}});
  const HttpAnswer streamed = server_->post("/v1/completions", Json{{"prompt", "The quick"},
                                                                    {"echo", true},
                                                                    {"max_tokens", 4},
                                                                    {"logprobs", 0},
                                                                    {"temperature", 0},
                                                                    {"stream", true}}
                                                                   .dump());
  std::string text;
  Json values = Json::array();
  for (size_t at = 0; (at = streamed.body.find("data: {", at)) != std::string::npos; ++at) {
    const size_t end = streamed.body.find('\n', at);
    const Json event = Json::parse(streamed.body.substr(at + 6, end - at - 6));
    if (event["choices"].empty()) continue;
    const Json& choice = event["choices"][0];
    text += choice["text"].get<std::string>();
    if (choice["logprobs"].is_null()) continue;
    for (const Json& value : choice["logprobs"]["token_logprobs"]) values.push_back(value);
  }
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(values, whole["choices"][0]["logprobs"]["token_logprobs"]);
  const HttpAnswer too_many = server_->post(
      "/v1/completions",
      Json{{"prompt", std::vector<std::vector<int32_t>>(200, std::vector<int32_t>(600, 65))},
           {"echo", true},
           {"logprobs", 20},
           {"max_tokens", 0}}
          .dump());
  EXPECT_EQ(too_many.status, 400);
  EXPECT_THAT(too_many.body, HasSubstr("would tell 2520000 numbers, at most 2000000"));
}

// Bytes of characters are tokens, too, and no two of them have one name.
TEST_F(ServeScores, TokensOfBytesHaveNamesOfTheirOwn) {
  const Json answer =
      complete({{"prompt", "🦊𓂀"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 20}});
  const Json& found = answer["choices"][0]["logprobs"];
  bool bytes = false;
  for (size_t i = 1; i < found["tokens"].size(); ++i) {
    EXPECT_EQ(found["top_logprobs"][i].size(), 20u);
    bytes = bytes || found["tokens"][i].get<std::string>().starts_with("bytes:\\x");
  }
  EXPECT_TRUE(bytes) << found["tokens"];
}

TEST_F(ServeScores, TokenizeReadsControlTokensAsIsAsked) {
  const std::string end = "<|im_end|>";
  const std::vector<int32_t> token = tokens_of(end);
  ASSERT_EQ(token.size(), 1u);
  for (const bool special : {true, false}) {
    const Json spelt =
        ask("/tokenize",
            {{"content", "a" + end}, {"parse_special", false}, {"add_special", special}})["tokens"];
    EXPECT_GT(spelt.size(), 3u);
    for (const Json& id : spelt) EXPECT_NE(id, token[0]);
    EXPECT_EQ(ask("/detokenize", {{"tokens", spelt}})["content"], "a" + end);
  }
  const Json pieces = ask(
      "/tokenize", {{"content", end}, {"parse_special", false}, {"with_pieces", true}})["tokens"];
  std::string text;
  for (const Json& piece : pieces) text += piece["piece"].get<std::string>();
  EXPECT_EQ(text, end);
}

TEST_F(ServeScores, ReportedSeedsGiveTheAnswerAgain) {
  const Json body = {{"prompt", "Once"}, {"n_predict", 12}, {"temperature", 1.7}};
  for (int i = 0; i < 8; ++i) {
    const Json first = ask("/completion", body);
    Json again = body;
    again["seed"] = first["generation_settings"]["seed"];
    EXPECT_LT(again["seed"].get<double>(), 0x1p53);
    EXPECT_EQ(ask("/completion", again)["content"], first["content"]) << again["seed"];
  }
  for (const char* seed :
       {"-7", "9223372036854775808", "18446744073709551615", "18446744073709551609"}) {
    const HttpAnswer answer = server_->post(
        "/completion", R"({"prompt": "a", "n_predict": 1, "seed": )" + std::string(seed) + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  const HttpAnswer beyond = server_->post(
      "/completion", R"({"prompt": "a", "n_predict": 1, "seed": 18446744073709551616})");
  EXPECT_EQ(beyond.status, 400);
  EXPECT_THAT(beyond.body,
              HasSubstr("'seed' is 18446744073709551616, expected a whole number from"));
}

// Digits beyond those of 64 bits, from a tool to the prompt.
TEST_F(ServeScores, IntegersKeepTheirDigits) {
  const std::string big = "340282366920938463463374607431768211455";
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"id": {"type": "integer", "maximum": )" +
      big + R"(, "default": 18446744073709551615}}}}}])";
  const HttpAnswer prompt =
      server_->post("/apply-template",
                    R"({"messages": [{"role": "user", "content": "a"}], "tools": )" + tools + "}");
  EXPECT_EQ(prompt.status, 200) << prompt.body;
  EXPECT_THAT(prompt.body, HasSubstr(big));
  EXPECT_THAT(prompt.body, HasSubstr("18446744073709551615"));
  const HttpAnswer forced = server_->post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 60, "tool_choice": "required",
          "response_format": {"type": "json_object"}, "tools": )" +
          tools + "}");
  EXPECT_EQ(forced.status, 200) << forced.body;
  EXPECT_THAT(forced.body, HasSubstr("\"tool_calls\""));
}

// Numbers that no double can hold are an error only where a number is needed.
TEST_F(ServeScores, NumbersBeyondAllDoublesArePassedOn) {
  const std::string messages =
      R"("messages": [{"role": "user", "content": "a"}], "max_tokens": 40)";
  const std::string schema = R"({"type": "object", "properties": {"id": {"type": "integer",
      "minimum": -1e400, "maximum": 1e400, "default": 1e400, "examples": [1e999]}},
      "required": ["id"], "additionalProperties": false})";
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": )" + schema + "}}]";
  const std::string format =
      R"("response_format": {"type": "json_schema", "json_schema": {"schema": )" + schema + "}}";
  for (const std::string& rest : {tools, tools + R"(, "tool_choice": "required")", format,
                                  std::string(R"("unknown": 1e400, "metadata": {"a": -1e400})")}) {
    const HttpAnswer answer =
        server_->post("/v1/chat/completions", "{" + messages + ", " + rest + "}");
    EXPECT_EQ(answer.status, 200) << rest << answer.body;
  }
  for (const char* field : {"temperature", "top_k", "seed", "max_tokens", "n"}) {
    const HttpAnswer answer =
        server_->post("/v1/chat/completions", "{" + messages + ", \"" + field + "\": 1e400}");
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr(std::string("'") + field + "' is 1e400, expected"));
  }
  const HttpAnswer bias =
      server_->post("/v1/chat/completions", "{" + messages + R"(, "logit_bias": {"5": 1e400}})");
  EXPECT_THAT(bias.body, HasSubstr("'logit_bias' of token \\\"5\\\" is 1e400"));
}

TEST_F(ServeScores, UnknownKeywordsAreToldInAHeader) {
  const HttpAnswer answer = server_->post(
      "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 20, "response_format":
          {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1], "placeholder": "p"}}}})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(
      answer.headers.at("x-ktx-note"),
      "'response_format.json_schema.schema': schema at #: unknown keyword 'placeholder' is passed over");
}

}  // namespace
}  // namespace ktx::testing
