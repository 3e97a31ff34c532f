// Images of one client harm no other and do not exhaust the server: whose turn it is, what waits,
// what is refused before it costs anything, what is left behind.
//
//   KTX_IMAGE_REQUESTS=1000 KTX_MUTATED_IMAGES=10000 test_e2e --gtest_filter=ServeImageLoad.*
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "lib/server/http/base64.h"
#include "tests/support/http_client.h"
#include "tests/support/plain_png.h"
#include "tests/support/process_state.h"
#include "tests/support/seeing_model.h"

namespace ktx::testing {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kAnna = "Authorization: Bearer sk-anna\r\n";
constexpr const char* kBert = "Authorization: Bearer sk-bert\r\n";
constexpr uint32_t kLarge = 8000;  // pixels of a side: half a second to decode and to resize

int count_of(const char* variable, int usual) {
  const char* const wanted = std::getenv(variable);
  return wanted != nullptr ? std::atoi(wanted) : usual;
}

// OpenAI's request with these files.
std::string chat_of(const std::vector<std::string>& files, int tokens = 1) {
  Json parts = Json::array();
  for (const std::string& file : files) {
    parts.push_back({{"type", "image_url"},
                     {"image_url", {{"url", "data:image/png;base64," + server::to_base64(file)}}}});
  }
  parts.push_back({{"type", "text"}, {"text", "What?"}});
  return Json{{"messages", Json::array({{{"role", "user"}, {"content", parts}}})},
              {"max_tokens", tokens},
              {"temperature", 0}}
      .dump();
}

class ServeImageLoad : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    plan_ = compile_seeing(*dir_);
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::vector<std::string> options(const std::vector<std::string>& more = {}) {
    std::vector<std::string> line = {plan_,
                                     "-t",
                                     "2",
                                     "--ctx",
                                     "512",
                                     "--chunk",
                                     "16",
                                     "--max-batch",
                                     "4",
                                     "--chat-template-file",
                                     seeing_template(*dir_)};
    line.insert(line.end(), more.begin(), more.end());
    return line;
  }
  // Two keys; figures are Anna's to see.
  static std::vector<std::string> with_keys(const std::string& limits = "") {
    dir_->write("keys", "sk-anna name=anna figures=all\nsk-bert name=bert " + limits + "\n");
    return options({"--api-key-file", dir_->path("keys")});
  }
  // Another image each time.
  static std::string image(uint32_t side) { return plain_png(side, ++color_); }
  static double figure(const ServerProcess& server, const std::string& name) {
    return server.get("/stats", kAnna).json().value(name, -1.0);
  }
  // Nothing waits, runs or was left over but what was there at the beginning.
  struct Held {
    int64_t descriptors = 0, threads = 0;
    size_t children = 0;
  };
  static Held held_by(const ServerProcess& server) {
    return {descriptors_of(server.pid()), threads_of(server.pid()),
            descendants_of(server.pid()).size()};
  }
  static void await_quiet(const ServerProcess& server, const Held& before) {
    await([&] {
      const Json stats = server.get("/stats", kAnna).json();
      return stats["images_waiting"] == 0 && stats["image_row_bytes"] == 0 &&
             stats["requests_running"] == 0 && stats["requests_waiting"] == 0;
    });
    // A request may have a thread until the next one begins, and /stats has a connection.
    await([&] {
      const Held now = held_by(server);
      return now.descriptors <= before.descriptors + 2 && now.threads <= before.threads + 1 &&
             now.children <= before.children;
    });
  }

  static TempDir* dir_;
  static std::string plan_;
  static uint32_t color_;
};
TempDir* ServeImageLoad::dir_ = nullptr;
std::string ServeImageLoad::plan_;
uint32_t ServeImageLoad::color_ = 0;

// Anna has 48 images waiting in three requests; Bert's one does not stand behind them.
TEST_F(ServeImageLoad, ImagesOfAKeyDelayThoseOfAnotherByOne) {
  const ServerProcess server(with_keys());
  std::vector<Connection> hogs;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> files;
    for (int k = 0; k < 16; ++k) files.push_back(image(3000));
    hogs.emplace_back(server.port());
    ASSERT_TRUE(
        hogs.back().send(http_request("POST", "/v1/chat/completions", chat_of(files), kAnna)));
  }
  await([&] { return figure(server, "images_computed_total") >= 2; });
  for (int i = 0; i < 3; ++i) {
    const std::string body = chat_of({image(16)});
    const double before = figure(server, "images_computed_total");
    const HttpAnswer answer = server.post("/v1/chat/completions", body, kBert);
    const double after = figure(server, "images_computed_total");
    EXPECT_EQ(answer.status, 200) << answer.body;
    // Bert's own, the one that was being read, and those between the answers of /stats: some more
    // where other programs keep the cores busy. Without turns it was 31.
    EXPECT_LE(after - before, 15) << i;
    EXPECT_LT(after, 48) << "all were read already: this shows nothing";
  }
  for (Connection& hog : hogs) EXPECT_EQ(hog.answer().status, 200);
  EXPECT_EQ(figure(server, "images_computed_total"), 51);
}

TEST_F(ServeImageLoad, AKeyWithFullQueueIsToldToWaitAndAnotherIsNot) {
  const ServerProcess server(with_keys());
  ASSERT_EQ(server.post("/v1/chat/completions", chat_of({image(16)}), kBert).status, 200);
  const Held before = held_by(server);
  {
    std::vector<Connection> hogs;
    for (int i = 0; i < 80; ++i) {
      hogs.emplace_back(server.port());
      ASSERT_TRUE(hogs.back().send(http_request("POST", "/v1/chat/completions",
                                                chat_of({image(kLarge), image(kLarge)}), kAnna)));
    }
    // All places are held: four at most are at a header or have pixels, and do not wait.
    await([&] { return figure(server, "images_waiting") >= 60; });
    const HttpAnswer refused = server.post("/v1/chat/completions", chat_of({image(16)}), kAnna);
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(refused.json()["error"]["code"], "queue_full");
    EXPECT_EQ(refused.headers.count("retry-after"), 1u);
    EXPECT_THAT(refused.body, HasSubstr("the images of 64 requests are looked at or wait"));
    EXPECT_EQ(server.post("/v1/chat/completions", chat_of({image(16)}), kBert).status, 200);
    EXPECT_LE(threads_of(server.pid()), before.threads + 64 + 4);
  }
  await_quiet(server, before);  // its clients have gone
}

TEST_F(ServeImageLoad, WhatIsTooLongIsRefusedByItsHeaders) {
  const ServerProcess server(with_keys());
  const HttpAnswer refused = server.post(
      "/v1/chat/completions", chat_of(std::vector<std::string>(64, image(kLarge))), kAnna);
  EXPECT_EQ(refused.status, 400);
  const auto error = refused.json()["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded") << error;
  EXPECT_EQ(error["n_ctx"], 512);
  EXPECT_GT(error["n_prompt_tokens"], 64 * kSeenTokens);
  EXPECT_EQ(figure(server, "images_total"), 0) << "none is looked at";

  // Nor to be counted, and the number is that of an answer.
  const std::vector<std::string> files = {image(300), image(20)};
  const HttpAnswer counted =
      server.post("/v1/chat/completions/input_tokens", chat_of(files), kAnna);
  EXPECT_EQ(figure(server, "images_total"), 0);
  const HttpAnswer answer = server.post("/v1/chat/completions", chat_of(files), kAnna);
  EXPECT_EQ(counted.json()["input_tokens"], answer.json()["usage"]["prompt_tokens"]);
  EXPECT_EQ(figure(server, "images_total"), 2);
  // More than an answer could have.
  const HttpAnswer many = server.post("/v1/chat/completions/input_tokens",
                                      chat_of(std::vector<std::string>(64, image(20))), kAnna);
  EXPECT_GT(many.json()["input_tokens"], 64 * kSeenTokens) << many.body;
}

// 20 tokens: three images of nine, the last of which goes beyond.
TEST_F(ServeImageLoad, ImagesCountForAKeyBeforeTheyAreLookedAt) {
  const ServerProcess server(with_keys("tokens=20"));
  std::vector<std::future<int>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [&server, body = chat_of({image(kLarge)})] {
      return server.post("/v1/chat/completions", body, kBert).status;
    }));
  }
  int taken = 0;
  for (auto& answer : answers) {
    const int status = answer.get();
    EXPECT_THAT(status, AnyOf(200, 429));
    taken += status == 200;
  }
  EXPECT_LE(taken, 3);
  EXPECT_GE(taken, 1);
  EXPECT_EQ(figure(server, "images_total"), taken);
}

// Base64 and files that are damaged in all ways, in each protocol: answers or the client's errors.
TEST_F(ServeImageLoad, DamagedImagesAreErrorsOfTheirRequests) {
  const ServerProcess server(options());
  const auto data = [](const std::string& text) { return "data:image/png;base64," + text; };
  const auto user = [](const Json& parts) {
    return Json::array({{{"role", "user"}, {"content", parts}}});
  };
  const std::vector<std::pair<const char*, std::function<Json(const std::string&)>>> protocols = {
      {"/v1/chat/completions",
       [&](const std::string& text) -> Json {
         return {
             {"messages",
              user(Json::array({{{"type", "image_url"}, {"image_url", {{"url", data(text)}}}}}))}};
       }},
      {"/v1/responses",
       [&](const std::string& text) -> Json {
         return {
             {"input", user(Json::array({{{"type", "input_image"}, {"image_url", data(text)}}}))}};
       }},
      {"/v1/messages",
       [&](const std::string& text) -> Json {
         const Json block = {
             {"type", "image"},
             {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", text}}}};
         return {{"max_tokens", 1}, {"messages", user(Json::array({block}))}};
       }},
      {"/v1/messages",
       [&](const std::string& text) -> Json {
         const Json block = {
             {"type", "image"},
             {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", text}}}};
         const Json result = {
             {"type", "tool_result"}, {"tool_use_id", "t"}, {"content", Json::array({block})}};
         const Json call = {{"type", "tool_use"}, {"id", "t"}, {"name", "f"}, {"input", {}}};
         Json list = user("Look.");
         list.push_back({{"role", "assistant"}, {"content", Json::array({call})}});
         list.push_back({{"role", "user"}, {"content", Json::array({result})}});
         return {{"max_tokens", 1}, {"messages", list}};
       }},
      {"/api/chat",
       [&](const std::string& text) -> Json {
         return {
             {"messages",
              Json::array({{{"role", "user"}, {"content", "?"}, {"images", Json::array({text})}}})},
             {"stream", false}};
       }},
      {"/api/generate",
       [&](const std::string& text) -> Json {
         return {{"prompt", "?"}, {"images", Json::array({text})}, {"stream", false}};
       }},
      {"/completion",
       [&](const std::string& text) -> Json {
         return {{"prompt",
                  {{"prompt_string", "<__media__>"}, {"multimodal_data", Json::array({text})}}},
                 {"n_predict", 1}};
       }},
  };
  const auto status_of = [&](size_t protocol, const std::string& text) {
    Json body = protocols[protocol].second(text);
    for (const char* limit : {"max_tokens", "max_output_tokens", "n_predict"}) {
      if (!body.contains(limit)) body[limit] = 1;
    }
    body["options"] = {{"num_predict", 1}};
    const HttpAnswer answer = server.post(protocols[protocol].first, body.dump());
    EXPECT_THAT(answer.status, AnyOf(200, 400)) << answer.body;
    return answer.status;
  };
  const std::string good = server::to_base64(image(20));
  for (size_t i = 0; i < protocols.size(); ++i) {
    SCOPED_TRACE(protocols[i].first);
    EXPECT_EQ(status_of(i, good), 200);
    for (const std::string& bad :
         {std::string(), std::string("="), std::string("===="), std::string("A"),
          std::string("!!!!"), good.substr(0, good.size() / 2), good.substr(1), good + "\n\n",
          std::string(1 << 20, 'A'), data(good) + data(good), server::to_base64("GIF89a"),
          server::to_base64(std::string(100, '\0')), server::to_base64(plain_png(8200, 1))}) {
      status_of(i, bad);
    }
    EXPECT_EQ(status_of(i, server::to_base64(plain_png(8200, 1))), 400);
  }
  const Held before = held_by(server);
  const int count = count_of("KTX_MUTATED_IMAGES", 200);
  std::mt19937_64 random(44);
  int answered = 0, refused = 0;
  for (int i = 0; i < count; ++i) {
    std::string file = from_base64(kImageSamples[random() % std::size(kImageSamples)].base64);
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    const int status = status_of(random() % protocols.size(), server::to_base64(file));
    answered += status == 200;
    refused += status == 400;
  }
  EXPECT_GT(answered, 0);
  EXPECT_GT(refused, 0);
  for (size_t i = 0; i < protocols.size(); ++i) EXPECT_EQ(status_of(i, good), 200);
  await_quiet(server, before);
}

TEST_F(ServeImageLoad, ClientsThatLeaveLeaveNothingBehind) {
  const ServerProcess server(options());
  ASSERT_EQ(server.post("/v1/chat/completions", chat_of({image(16)})).status, 200);
  const Held before = held_by(server);
  for (int round = 0; round < 3; ++round) {
    for (const int wait : {0, 1, 5, 20, 100, 400, 1000}) {
      Connection whole(server.port()), half(server.port()), streamed(server.port());
      const std::string body = chat_of({image(4000), image(4000), image(4000)}, 100);
      const std::string request = http_request("POST", "/v1/chat/completions", body);
      Json stream = Json::parse(body);
      stream["stream"] = true;
      whole.send(request);
      half.send(request.substr(0, request.size() * 2 / 3));
      streamed.send(http_request("POST", "/v1/chat/completions", stream.dump()));
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    }
  }
  await_quiet(server, before);
  EXPECT_EQ(server.post("/v1/chat/completions", chat_of({image(16)})).status, 200);
}

TEST_F(ServeImageLoad, ItShutsDownAtEachStage) {
  for (const int wait : {0, 5, 50, 300, 1500}) {
    ServerProcess server(options());
    const std::vector<pid_t> helpers = descendants_of(server.pid());
    EXPECT_FALSE(helpers.empty()) << "no decoder";
    std::vector<Connection> clients;
    for (int i = 0; i < 6; ++i) {
      clients.emplace_back(server.port());
      clients.back().send(http_request("POST", "/v1/chat/completions",
                                       chat_of({image(4000), image(4000), image(4000)}, 20)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    EXPECT_EQ(server.stop(SIGTERM), 0) << wait << server.log();
    for (const pid_t helper : helpers) {
      await([&] { return process::file_of(helper, "cmdline").empty(); });
    }
  }
}

TEST_F(ServeImageLoad, MemoryDoesNotGrowWithRequests) {
  const ServerProcess server(options());
  const int count = count_of("KTX_IMAGE_REQUESTS", 200);
  const auto ask = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const std::string file = i % 4 == 0 ? image(1000).substr(0, 700) : image(1000);
      const HttpAnswer answer = server.post("/v1/chat/completions", chat_of({file, image(40)}));
      ASSERT_EQ(answer.status, i % 4 == 0 ? 400 : 200) << answer.body;
    }
  };
  ask(100);
  const Held before = held_by(server);
  const int64_t bytes = rss_bytes_of(server.pid());
  ask(count);
  const int64_t after = rss_bytes_of(server.pid());
  fmt::print("{} requests: {} KiB, then {} KiB\n", count, bytes >> 10, after >> 10);
  // An allocator keeps some for each of its threads; pixels of one image are 3 MB.
  EXPECT_LT(after - bytes, int64_t{64} << 20);
  await_quiet(server, before);
}

}  // namespace
}  // namespace ktx::testing
