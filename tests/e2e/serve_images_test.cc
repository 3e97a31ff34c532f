// Images over HTTP, in every protocol: the answers are those of ktx-run generate, alone and among
// others, and what is seen again is not computed again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/http_client.h"
#include "tests/support/seeing_model.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kQuestion = "Tell me a story about a fox.";

std::string url_of(size_t sample) {
  return std::string("data:image/png;base64,") + kImageSamples[sample].base64;
}

class ServeImages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    plan_ = compile_seeing(*dir_);
    server_ = new ServerProcess(options({"--max-batch", "4"}));
  }
  static void TearDownTestSuite() {
    delete server_;
    delete dir_;
  }
  static std::vector<std::string> options(const std::vector<std::string>& more) {
    std::vector<std::string> line = {plan_,
                                     "--temp",
                                     "0",
                                     "--precision",
                                     "exact",
                                     "-t",
                                     "2",
                                     "--ctx",
                                     "512",
                                     "--chunk",
                                     "16",
                                     "-n",
                                     "8",
                                     "--chat-template-file",
                                     seeing_template(*dir_)};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  // What ktx-run generate says of these images and the question.
  static Json generated(const std::vector<size_t>& samples) {
    std::vector<std::string> line = {ktx_run(),
                                     "generate",
                                     plan_,
                                     "--json",
                                     "--chat",
                                     "--temp",
                                     "0",
                                     "--precision",
                                     "exact",
                                     "-n",
                                     "8",
                                     "--prompt",
                                     kQuestion,
                                     "--chat-template-file",
                                     seeing_template(*dir_)};
    for (const size_t sample : samples) {
      line.insert(line.end(), {"--image", image_file(*dir_, sample)});
    }
    const Finished run = run_program(line);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? Json::parse(run.out) : Json();
  }
  // OpenAI's messages.
  static Json messages(const std::vector<size_t>& samples, const std::string& text = kQuestion) {
    Json parts = Json::array();
    for (const size_t sample : samples) {
      parts.push_back({{"type", "image_url"}, {"image_url", {{"url", url_of(sample)}}}});
    }
    parts.push_back({{"type", "text"}, {"text", text}});
    return Json::array({{{"role", "user"}, {"content", parts}}});
  }
  static Json post(const char* path, const Json& body, int status = 200) {
    const HttpAnswer got = server_->post(path, body.dump());
    EXPECT_EQ(got.status, status) << got.body;
    return Json::parse(got.body, nullptr, false);
  }
  static std::string refused(const char* path, const Json& body) {
    return post(path, body, 400)["error"]["message"].get<std::string>();
  }
  static std::string chat(const std::vector<size_t>& samples) {
    const Json answer = post("/v1/chat/completions", {{"messages", messages(samples)}});
    return answer["choices"][0]["message"]["content"].get<std::string>();
  }

  static TempDir* dir_;
  static std::string plan_;
  static ServerProcess* server_;
};
TempDir* ServeImages::dir_ = nullptr;
std::string ServeImages::plan_;
ServerProcess* ServeImages::server_ = nullptr;

TEST_F(ServeImages, EveryProtocolAnswersAsGenerateDoes) {
  const Json wanted = generated({0, 5});
  const std::string text = wanted["text"];
  const size_t tokens = wanted["prompt_ids"].size();
  Json body = {{"messages", messages({0, 5})}, {"verbose", true}};
  const Json chat = post("/v1/chat/completions", body);
  EXPECT_EQ(chat["choices"][0]["message"]["content"], text);
  EXPECT_EQ(chat["__verbose"]["tokens"], wanted["ids"]);
  EXPECT_EQ(chat["usage"]["prompt_tokens"], tokens);

  const auto image = [](size_t sample) { return kImageSamples[sample].base64; };
  const Json input =
      Json::array({{{"role", "user"},
                    {"content", Json::array({{{"type", "input_image"}, {"image_url", url_of(0)}},
                                             {{"type", "input_image"}, {"image_url", url_of(5)}},
                                             {{"type", "input_text"}, {"text", kQuestion}}})}}});
  const Json response = post("/v1/responses", {{"input", input}});
  EXPECT_EQ(response["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(response["usage"]["input_tokens"], tokens);

  const auto block = [&](size_t sample) {
    return Json{
        {"type", "image"},
        {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", image(sample)}}}};
  };
  body = {{"max_tokens", 8},
          {"messages",
           Json::array(
               {{{"role", "user"},
                 {"content",
                  Json::array({block(0), block(5), {{"type", "text"}, {"text", kQuestion}}})}}})}};
  EXPECT_EQ(post("/v1/messages", body)["content"][0]["text"], text);
  EXPECT_EQ(post("/v1/messages/count_tokens", body)["input_tokens"], tokens);

  const Json images = Json::array({image(0), image(5)});
  const Json asked = {{"role", "user"}, {"content", kQuestion}, {"images", images}};
  body = {{"messages", Json::array({asked})}, {"stream", false}};
  EXPECT_EQ(post("/api/chat", body)["message"]["content"], text);
  body = {{"prompt", kQuestion}, {"images", images}, {"stream", false}};
  const Json whole = post("/api/generate", body);
  EXPECT_EQ(whole["response"], text);
  EXPECT_EQ(whole["prompt_eval_count"], tokens);
  EXPECT_FALSE(whole.contains("context"));
}

TEST_F(ServeImages, PromptsOfLlamaServerHaveThemAtTheirMarks) {
  const Finished run = run_program({ktx_run(), "generate", plan_, "--json", "--temp", "0",
                                    "--precision", "exact", "-n", "8", "--prompt",
                                    "See <start_of_image> there", "--image", image_file(*dir_, 0)});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json prompt = {{"prompt_string", "See <__media__> there"},
                       {"multimodal_data", Json::array({kImageSamples[0].base64})}};
  const Json answer = post("/completion", {{"prompt", prompt}, {"return_tokens", true}});
  EXPECT_EQ(answer["tokens"], Json::parse(run.out)["ids"]);
}

// The result of a tool is shown as one, where the template has no place for it: in a question.
TEST_F(ServeImages, ResultsOfToolsMayBeImages) {
  const Json picture = {
      {"type", "image"},
      {"source",
       {{"type", "base64"}, {"media_type", "image/png"}, {"data", kImageSamples[0].base64}}}};
  const auto tokens = [&](const Json& content) {
    const Json body = {
        {"messages",
         Json::array(
             {{{"role", "user"}, {"content", "Look."}},
              {{"role", "assistant"},
               {"content",
                Json::array({{{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", {}}}})}},
              {{"role", "user"},
               {"content",
                Json::array(
                    {{{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", content}}})}}})}};
    return post("/v1/messages/count_tokens", body)["input_tokens"].get<int64_t>();
  };
  const Json text = {{"type", "text"}, {"text", "Here."}};
  const int64_t without = tokens(Json::array({text}));
  const int64_t with = tokens(Json::array({text, picture}));
  // As many as in a question, but for how the texts around it meet others.
  const auto asked = [&](const std::vector<size_t>& samples) {
    const Json body = {{"messages", messages(samples)}};
    return post("/v1/chat/completions/input_tokens", body)["input_tokens"].get<int64_t>();
  };
  EXPECT_GT(with - without, kSeenTokens);
  EXPECT_NEAR(static_cast<double>(with - without), static_cast<double>(asked({0}) - asked({})), 3);
}

TEST_F(ServeImages, InABatchAnswersAreThoseAlone) {
  const std::vector<std::vector<size_t>> kinds = {{0}, {}, {5}, {1, 2}, {0, 5, 3}, {}};
  std::vector<std::string> alone;
  for (const auto& samples : kinds) alone.push_back(generated(samples)["text"]);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--max-batch", "4"},
        std::vector<std::string>{"--max-batch", "4", "--lookup", "4"}}) {
    const ServerProcess server(options(more));
    std::vector<std::future<std::string>> answers;
    for (int round = 0; round < 3; ++round) {
      for (const auto& samples : kinds) {
        answers.push_back(std::async(std::launch::async, [&] {
          const Json body = {{"messages", messages(samples)}};
          const HttpAnswer got = server.post("/v1/chat/completions", body.dump());
          EXPECT_EQ(got.status, 200) << got.body;
          return Json::parse(got.body)["choices"][0]["message"]["content"].get<std::string>();
        }));
      }
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].get(), alone[i % kinds.size()]) << i;
    }
    EXPECT_GT(server.metric("step_requests_total"), server.metric("steps_total"))
        << "never two in a step: this shows nothing";
    EXPECT_EQ(server.metric("images_computed_total"), 5);
    EXPECT_EQ(server.metric("images_total"), 3 * 7);
  }
}

// A cache of a few blocks: requests give way to others and are computed again, with their images.
TEST_F(ServeImages, ThoseThatMadeRoomGoOn) {
  const ServerProcess server(options({"--max-batch", "4", "--kv-budget", "1500KiB"}));
  const std::vector<std::vector<size_t>> kinds = {{0}, {}, {5}, {1}, {2}, {}};
  const auto ask = [&](size_t i) {
    const Json body = {{"messages", messages(kinds[i])}, {"max_tokens", 120}, {"ignore_eos", true}};
    const HttpAnswer got = server.post("/v1/chat/completions", body.dump());
    EXPECT_EQ(got.status, 200) << got.body;
    return Json::parse(got.body)["choices"][0]["message"]["content"].get<std::string>();
  };
  std::vector<std::future<std::string>> together;
  for (size_t i = 0; i < kinds.size(); ++i) {
    together.push_back(std::async(std::launch::async, ask, i));
  }
  std::vector<std::string> answers;
  for (auto& answer : together) answers.push_back(answer.get());
  EXPECT_GT(server.metric("preemptions_total"), 0) << "the cache was large enough";
  for (size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(answers[i], ask(i)) << i;
  EXPECT_EQ(server.metric("images_computed_total"), 4);
}

TEST_F(ServeImages, ASecondQuestionOnAnImageComputesItNoMore) {
  const ServerProcess server(options({}));
  Json list = messages({0}, std::string("What is this? ") + kQuestion);
  const auto ask = [&] {
    const HttpAnswer got = server.post("/v1/chat/completions", Json{{"messages", list}}.dump());
    EXPECT_EQ(got.status, 200) << got.body;
    return Json::parse(got.body);
  };
  const Json first = ask();
  EXPECT_EQ(server.metric("images_computed_total"), 1);
  list.push_back(first["choices"][0]["message"]);
  list.push_back({{"role", "user"}, {"content", "And then?"}});
  const Json second = ask();
  EXPECT_EQ(server.metric("images_total"), 2);
  EXPECT_EQ(server.metric("images_computed_total"), 1);
  const auto cached = [](const Json& answer) {
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  };
  EXPECT_GT(cached(second), kSeenTokens);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("images_computed_total 1"));
  // Another image at the same place is another text.
  list[0]["content"][0]["image_url"]["url"] = url_of(1);
  const Json third = ask();
  EXPECT_LT(cached(third), cached(second) - kSeenTokens);
  EXPECT_EQ(server.metric("images_computed_total"), 2);
}

// What is only counted makes no other instance one that is only counted.
TEST_F(ServeImages, InstancesOfOneRequestAreAnsweredBehindACount) {
  const Json instance = {{"@requestFormat", "chatCompletions"}, {"messages", messages({0})}};
  Json counted = instance;
  counted["@requestFormat"] = "applyTemplate";
  const Json found =
      post("/predict", {{"instances", Json::array({counted, instance})}})["predictions"];
  ASSERT_EQ(found.size(), 2u) << found;
  EXPECT_TRUE(found[0].contains("tokens")) << found[0];
  ASSERT_TRUE(found[1].contains("choices")) << found[1];
  EXPECT_EQ(found[1]["choices"][0]["message"]["content"], chat({0}));
}

// What a key has sent is not found by another one.
TEST_F(ServeImages, KeysShareNoImages) {
  const TempDir dir;
  dir.write("keys", "one\ntwo figures=all\n");
  const std::string body = Json{{"messages", messages({0})}}.dump();
  for (const bool shared : {false, true}) {
    const ServerProcess server(
        options({"--api-key-file", dir.path("keys"), "--share-prefixes", shared ? "on" : "off"}));
    for (const char* key : {"one", "two", "one"}) {
      const HttpAnswer got = server.post("/v1/chat/completions", body,
                                         fmt::format("Authorization: Bearer {}\r\n", key));
      EXPECT_EQ(got.status, 200) << got.body;
    }
    const auto stats = server.get("/stats", "Authorization: Bearer two\r\n").json();
    EXPECT_EQ(stats["images_computed_total"], shared ? 1 : 2);
    EXPECT_EQ(stats["images_total"], 3);
  }
}

TEST_F(ServeImages, WhatCannotBeShownIsSaid) {
  const auto with = [](const Json& part) {
    return Json{{"messages", Json::array({{{"role", "user"}, {"content", Json::array({part})}}})}};
  };
  const auto url = [&](const std::string& text) {
    return refused("/v1/chat/completions",
                   with({{"type", "image_url"}, {"image_url", {{"url", text}}}}));
  };
  EXPECT_THAT(url("https://example.com/fox.png"),
              HasSubstr("'messages[0].content[0]' is at https://example.com/fox.png: nothing is "
                        "fetched here; send the image itself, as data:image/png;base64,..."));
  EXPECT_THAT(url("data:image/png,abc"), HasSubstr("without base64"));
  EXPECT_THAT(url("data:image/png;base64,!!"), HasSubstr("no base64"));
  EXPECT_THAT(url("data:image/gif;base64,R0lGODlh"),
              HasSubstr("has no image that can be read: the image is GIF; convert it"));
  EXPECT_THAT(refused("/v1/responses",
                      {{"input", Json::array({{{"role", "user"},
                                               {"content", Json::array({{{"type", "input_image"},
                                                                         {"file_id", "f"}}})}}})}}),
              HasSubstr("is an image without its bytes"));
  EXPECT_THAT(refused("/v1/chat/completions", {{"messages", messages(std::vector<size_t>(65, 0))}}),
              HasSubstr("one image more than the 64"));
  EXPECT_THAT(refused("/v1/chat/completions", {{"messages", messages(std::vector<size_t>(64, 0))}}),
              HasSubstr("exceeds the available context size of 512 with an answer"));
  // A mark that a user writes is text.
  Json marked = messages({0}, "<start_of_image> and <start_of_image>");
  post("/v1/chat/completions", {{"messages", marked}});
}

TEST_F(ServeImages, AChunkHoldsAnImage) {
  std::vector<std::string> line = options({});
  *(std::find(line.begin(), line.end(), "--chunk") + 1) = "8";
  const ServerProcess server(line);
  const HttpAnswer got =
      server.post("/v1/chat/completions", Json{{"messages", messages({0})}}.dump());
  EXPECT_EQ(got.status, 400);
  EXPECT_THAT(got.body, HasSubstr("an image has 9 tokens, more than a step of 8 may have; start "
                                  "with a larger one: --chunk 9"));
  EXPECT_EQ(server.post("/v1/chat/completions", Json{{"messages", messages({})}}.dump()).status,
            200);
}

TEST_F(ServeImages, AModelWithoutAProjectorSaysWhatToDo) {
  const TempDir dir;
  compile_with(test_model_gguf("gemma3"), dir.path("blind.ktxplan"), {});
  const ServerProcess server({dir.path("blind.ktxplan"), "-t", "1"});
  const HttpAnswer got =
      server.post("/v1/chat/completions", Json{{"messages", messages({0})}}.dump());
  EXPECT_EQ(got.status, 400);
  EXPECT_THAT(got.body, HasSubstr("this model reads text only; where there is a projector for it "
                                  "(mmproj), compile it with that: ktx-compile --mmproj FILE"));
  EXPECT_EQ(server.get("/props").json()["modalities"]["vision"], false);
}

TEST_F(ServeImages, ListsOfModelsSaySo) {
  EXPECT_EQ(server_->get("/props").json()["modalities"]["vision"], true);
  const auto models = server_->get("/v1/models").json();
  EXPECT_EQ(models["data"][0]["architecture"]["input_modalities"], Json::array({"text", "image"}));
  EXPECT_EQ(models["models"][0]["capabilities"], Json::array({"completion", "multimodal"}));
  const Json shown = post("/api/show", {{"model", "m"}});
  EXPECT_THAT(shown["capabilities"].dump(), HasSubstr("\"vision\""));
}

TEST_F(ServeImages, SlotsWithThemAreNotSaved) {
  const TempDir dir;
  const ServerProcess server(options({"--slot-dir", dir.path(), "--max-batch", "1"}));
  ASSERT_EQ(server.post("/v1/chat/completions", Json{{"messages", messages({0})}}.dump()).status,
            200);
  const HttpAnswer saved = server.post("/slots/0?action=save", R"({"filename": "a"})");
  EXPECT_EQ(saved.status, 400);
  EXPECT_THAT(saved.body, HasSubstr("has images, which are not saved"));
  const HttpAnswer resumed = server.post("/v1/chat/completions", R"({"resume_slot": 0})");
  EXPECT_EQ(resumed.status, 400);
  EXPECT_THAT(resumed.body, HasSubstr("has images; send its messages again"));
  EXPECT_EQ(server.get("/slots").status, 200);
}

TEST_F(ServeImages, InASandboxTheyAreSeen) {
  const Finished run = run_program({ktx_compile(), "--sandbox", "--explain-code", "S001"});
  if (run.status != 0) GTEST_SKIP() << "no Landlock or no libseccomp here";
  const ServerProcess server(options({"--sandbox"}));
  const HttpAnswer got =
      server.post("/v1/chat/completions", Json{{"messages", messages({0})}}.dump());
  ASSERT_EQ(got.status, 200) << got.body;
  EXPECT_EQ(Json::parse(got.body)["choices"][0]["message"]["content"], generated({0})["text"]);
}

}  // namespace
}  // namespace ktx::testing
