// Requests that are meant to cost much, sent again and again by several clients, and an honest one
// beside them: /health and a chat take no second of the server's work meanwhile. What the machine
// itself takes longer today, because others use it, is measured before and granted. No request
// takes much processor time, whatever else the machine does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/support/cpu_time.h"
#include "tests/support/http_client.h"
#include "tests/support/paths.h"

namespace ktx::testing {
namespace {

using nlohmann::json;

std::string chat_with(const json& fields) {
  json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
  body.update(fields);
  return body.dump();
}

json schema_field(const json& schema) {
  return {{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}};
}

// An object of so many properties that may be absent; `salt` makes it another schema each time.
json optional_properties(int count, int salt) {
  json properties = json::object();
  for (int i = 0; i < count; ++i) {
    properties["property_" + std::to_string(salt) + "_" + std::to_string(i)] = {{"type", "string"}};
  }
  return {{"type", "object"}, {"properties", properties}};
}

std::string nested(const std::string& open, const std::string& close, int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

json tools(int count, int salt) {
  json list = json::array();
  json parameters = optional_properties(12, salt);
  parameters["properties"]["number"] = {{"type", "number"}};
  for (int i = 0; i < count; ++i) {
    list.push_back({{"type", "function"},
                    {"function", {{"name", "f" + std::to_string(i)}, {"parameters", parameters}}}});
  }
  return list;
}

// A megabyte of variables whose names differ at their ends.
json variables(int salt) {
  json out = json::object();
  for (int i = 0; i < 5000; ++i) {
    out["v" + std::string(190, 'v') + std::to_string(10000 * (salt % 10) + i)] = "a";
  }
  return out;
}

std::string letters(size_t size, uint32_t seed) {
  std::string text(size, ' ');
  for (char& c : text) {
    seed = seed * 1664525 + 1013904223;
    c = static_cast<char>('a' + (seed >> 24) % 26);
  }
  return text;
}

struct Attack {
  const char* name;
  const char* path;
  // The body; another one each time.
  std::function<std::string(int salt)> body;
  const char* headers = "";
};

const std::vector<Attack> kAttacks = {
    {"a schema of 149 KB of optional properties", "/v1/chat/completions",
     [](int salt) { return chat_with(schema_field(optional_properties(3000, salt))); }},
    {"400 numbers that may all be absent", "/v1/chat/completions",
     [](int salt) {
       json schema = optional_properties(400, salt);
       for (json& property : schema["properties"]) property = {{"type", "number"}};
       return chat_with(schema_field(schema));
     }},
    {"200 tools", "/v1/chat/completions",
     [](int salt) {
       return chat_with({{"tools", tools(200, salt)}, {"tool_choice", "required"}});
     }},
    {"200,000 messages", "/v1/chat/completions",
     [](int) {
       json messages = json::array();
       for (int i = 0; i < 200000; ++i) {
         messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "Hi"}});
       }
       return json{{"messages", messages}, {"max_tokens", 2}}.dump();
     }},
    {"200,000 tool calls", "/v1/chat/completions",
     [](int) {
       const json call = {{"function", {{"name", "f"}, {"arguments", {{"a", 1}}}}}};
       json messages = {{{"role", "user"}, {"content", "Hi"}}};
       messages.push_back({{"role", "assistant"}, {"tool_calls", std::vector<json>(200000, call)}});
       return json{{"messages", messages}, {"max_tokens", 2}}.dump();
     }},
    {"a megabyte of variables of the template", "/v1/chat/completions",
     [](int salt) {
       return chat_with({{"chat_template_kwargs", variables(salt)}});
     }},
    {"4 MB of letters to be tokenized", "/tokenize",
     [](int salt) {
       return json{{"content", letters(4'000'000, salt)}, {"with_pieces", salt % 2 == 0}}.dump();
     }},
    {"a grammar that reads one text in very many ways", "/v1/chat/completions",
     [](int salt) {
       return chat_with(
           {{"grammar", "root ::= x #" + std::to_string(salt) + "\nx ::= . | . x | . x ."}});
     }},
    {"counts in counts", "/v1/chat/completions",
     [](int salt) {
       return chat_with(
           {{"grammar", "root ::= (([a-z]{1,99}){1,99} \"" + std::to_string(salt) + "\"){1,99}"}});
     }},
    {"a pattern with a large automaton", "/v1/chat/completions",
     [](int salt) {
       return chat_with(
           schema_field({{"type", "string"},
                         {"pattern", "^(a|b)*a(a|b){" + std::to_string(12 + salt % 8) + "}$"},
                         {"not", {{"pattern", "^(b|a)*b(a|b){11}$"}}}}));
     }},
    {"references that double sixty times", "/v1/chat/completions",
     [](int salt) {
       json definitions = {{"d0", {{"const", salt}}}};
       for (int i = 1; i < 60; ++i) {
         const json before = {{"$ref", "#/$defs/d" + std::to_string(i - 1)}};
         definitions["d" + std::to_string(i)] = {
             {"type", "array"}, {"prefixItems", {before, before}}, {"minItems", 2}};
       }
       return chat_with(schema_field({{"$defs", definitions}, {"$ref", "#/$defs/d59"}}));
     }},
    {"two million brackets", "/v1/chat/completions",
     [](int) { return "{\"messages\":" + nested("[", "]", 1000000) + "}"; }},
    {"a prompt of many spaces", "/v1/completions",
     [](int) {
       return json{{"prompt", std::string(500000, ' ')}, {"max_tokens", 1}}.dump();
     }},
    {"as many choices, stops and biases as there may be", "/v1/completions",
     [](int salt) {
       json bias = json::object();
       for (int i = 0; i < 1000; ++i) bias[std::to_string(i)] = i % 7;
       return json{{"prompt", "Once " + std::to_string(salt)},
                   {"max_tokens", 30},
                   {"n", 16},
                   {"logprobs", 5},
                   {"stop", {"aaaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaac"}},
                   {"logit_bias", bias}}
           .dump();
     }},
};

// What three of four keep below. A client that a busy machine wakes late counts the attackers' work
// as its own, but seldom; one that stands behind an attack does so each time.
double three_of_four(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() * 3 / 4];
}

class ServeAttacks : public ::testing::TestWithParam<size_t> {
 protected:
  static void SetUpTestSuite() {
    models_ = new TempDir;
    ASSERT_EQ(
        run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", models_->path("m.ktxplan")})
            .status,
        0);
    server_ =
        new ServerProcess({models_->path("m.ktxplan"), "--max-batch", "32", "--max-queue", "64"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete models_;
  }
  // The server's CPU time between a request and its answer, for all clients together: on an idle
  // machine this is how long a client waits, and a busy machine does not change it.
  static double seconds_of(const std::function<int()>& request) {
    const double begin = cpu_seconds_of(server_->pid());
    EXPECT_EQ(request(), 200);
    return cpu_seconds_of(server_->pid()) - begin;
  }
  static double health() {
    return seconds_of([] { return server_->get("/health").status; });
  }
  static double honest_chat() {
    return seconds_of(
        [] { return server_->post("/v1/chat/completions", chat_with(json::object())).status; });
  }

  static TempDir* models_;
  static ServerProcess* server_;
};
TempDir* ServeAttacks::models_ = nullptr;
ServerProcess* ServeAttacks::server_ = nullptr;

TEST_P(ServeAttacks, LeaveOthersTheirSecond) {
  const Attack& attack = kAttacks[GetParam()];
  double usual = 0;
  for (int i = 0; i < 10; ++i) usual = std::max({usual, health(), honest_chat()});
  std::atomic<bool> over = false;
  std::atomic<int> salt = 0, sent = 0;
  std::vector<std::thread> attackers;
  for (int i = 0; i < 4; ++i) {
    attackers.emplace_back([&] {
      while (!over) {
        const HttpAnswer answer = server_->post(attack.path, attack.body(salt++), attack.headers);
        EXPECT_NE(answer.status, 0) << attack.name;
        EXPECT_NE(answer.status, 500) << attack.name << ": " << answer.body.substr(0, 300);
        ++sent;
      }
    });
  }
  std::vector<double> of_health, of_chat;
  while (sent < 4) std::this_thread::yield();  // all four are at it
  while (sent < 8 || of_chat.size() < 20) {    // and each of them once more meanwhile
    of_health.push_back(health());
    of_chat.push_back(honest_chat());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  over = true;
  for (std::thread& attacker : attackers) attacker.join();
  const double usual_health = three_of_four(of_health), usual_chat = three_of_four(of_chat);
  RecordProperty("health_ms", static_cast<int>(usual_health * 1000));
  RecordProperty("chat_ms", static_cast<int>(usual_chat * 1000));
  std::printf("%s: %d requests beside %zu chats, health %.0f ms, chat %.0f ms (before %.0f)\n",
              attack.name, sent.load(), of_chat.size(), usual_health * 1000, usual_chat * 1000,
              usual * 1000);
  const double most = sanitized() ? 10 : 1;  // of all threads together
  EXPECT_LT(usual_health, std::max(most, 20 * usual)) << attack.name;
  EXPECT_LT(usual_chat, std::max(most, 20 * usual)) << attack.name;
}

// A second or less in a release build, most of them far less; slower machines have room.
TEST_P(ServeAttacks, TakeLittleProcessorTime) {
  const double most = sanitized() ? 60 : 5;
  const Attack& attack = kAttacks[GetParam()];
  const std::string body = attack.body(1000);
  const double begin = cpu_seconds_of(server_->pid());
  const HttpAnswer answer = server_->post(attack.path, body, attack.headers);
  const double took = cpu_seconds_of(server_->pid()) - begin;
  RecordProperty("cpu_ms", static_cast<int>(took * 1000));
  std::printf("%s: %d, %.0f ms\n", attack.name, answer.status, took * 1000);
  EXPECT_NE(answer.status, 0);
  EXPECT_NE(answer.status, 500) << answer.body.substr(0, 300);
  EXPECT_LT(took, most) << attack.name;
}

INSTANTIATE_TEST_SUITE_P(All, ServeAttacks, ::testing::Range(size_t{0}, kAttacks.size()));

}  // namespace
}  // namespace ktx::testing
