// Draft tokens over whole models: answers are those without, in the programs, in a full server, and
// on GPUs in host memory beside the CPU; and what cannot be drafted says so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>

#include "lib/input/gguf.h"
#include "lib/runtime/draft/plan_drafter.h"
#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/draft_head_gguf.h"
#include "tests/support/host_gpu.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/support/test_models.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using runtime::Engine;
using runtime::EngineOptions;

void compile(const std::string& gguf, const std::string& plan,
             const std::vector<std::string>& more = {}) {
  std::vector<std::string> line = {ktx_compile(), "-q", gguf, "-o", plan};
  line.insert(line.end(), more.begin(), more.end());
  const Finished run = run_program(line);
  ASSERT_EQ(run.status, 0) << run.err;
}

class Drafts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    compile(model_gguf("qwen3moe"), plan("qwen3moe"));
    compile(model_gguf("llama"), plan("llama"));
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string plan(const std::string& model) { return dir_->path(model + ".ktxplan"); }

  static json generate(const std::vector<std::string>& more) {
    std::vector<std::string> line = {ktx_run(),    "generate", plan("qwen3moe"),
                                     "--chat",     "--prompt", "Tell me a story about a fox.",
                                     "-n",         "60",       "--json",
                                     "--logprobs", "2",        "-t",
                                     "2"};
    line.insert(line.end(), more.begin(), more.end());
    const Finished run = run_program(line);
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out, nullptr, false);
  }

  static TempDir* dir_;
};
TempDir* Drafts::dir_ = nullptr;

// The model itself, and another one with another tokenizer.
TEST_F(Drafts, GenerateGivesTheAnswerWithoutThem) {
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{"--temp", "0"},
        {"--temp", "1.1", "--seed", "5"},
        {"--temp", "0.7", "--seed", "9", "--repetition-penalty", "1.2"}}) {
    json plain = generate(sampling);
    EXPECT_FALSE(plain["timings"].contains("draft_tokens"));
    plain.erase("timings");
    for (const std::string model : {"qwen3moe", "llama"}) {
      for (const char* adapt : {"on", "off"}) {
        std::vector<std::string> options = sampling;
        options.insert(options.end(),
                       {"--draft", plan(model), "--draft-max", "5", "--draft-adapt", adapt});
        json drafted = generate(options);
        const json timings = drafted["timings"];
        drafted.erase("timings");
        EXPECT_EQ(drafted, plain) << model << " adapt " << adapt;
        if (std::string(adapt) == "on") continue;
        EXPECT_GT(timings["draft_tokens"], 0);
        if (model == "qwen3moe") {
          EXPECT_GT(timings["accepted_tokens"], timings["draft_tokens"].get<int>() * 3 / 4);
        }
      }
    }
    std::vector<std::string> lookup = sampling;
    lookup.insert(lookup.end(), {"--lookup", "6"});
    json looked_up = generate(lookup);
    looked_up.erase("timings");
    EXPECT_EQ(looked_up, plain);
  }
}

TEST_F(Drafts, TheStartSaysWhatTheDraftPlanTakes) {
  const Finished run = run_program({ktx_run(), "generate", plan("qwen3moe"), "--prompt", "A fox",
                                    "-n", "4", "--draft", plan("llama"), "--stats"});
  EXPECT_EQ(run.status, 0);
  EXPECT_NE(run.err.find("llama.ktxplan drafts: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("of cache"), std::string::npos) << run.err;
}

TEST_F(Drafts, MistakesSayWhatToDo) {
  const auto error = [&](const std::vector<std::string>& more, int status) {
    std::vector<std::string> line = {ktx_run(), "generate", plan("qwen3moe"), "--prompt", "A fox"};
    line.insert(line.end(), more.begin(), more.end());
    const Finished run = run_program(line);
    EXPECT_EQ(run.status, status) << run.err;
    return run.err;
  };
  EXPECT_NE(error({"--draft", dir_->path("none.ktxplan")}, 1).find("none.ktxplan"),
            std::string::npos);
  EXPECT_NE(
      error({"--draft", plan("llama"), "--lookup", "3"}, 2).find("one of --draft and --lookup"),
      std::string::npos);
  EXPECT_NE(error({"--draft", plan("llama"), "--draft-max", "16"}, 2).find("15"),
            std::string::npos);
  const std::string several =
      run_program({ktx_run(), "serve", plan("qwen3moe"), plan("llama"), "--draft", plan("llama")})
          .err;
  EXPECT_NE(several.find("--draft is for one plan"), std::string::npos) << several;
}

TEST_F(Drafts, BenchMeasuresThemAtAnyAcceptance) {
  for (const char* share : {"0", "0.8", "1"}) {
    const Finished run = run_program({ktx_run(),
                                      "bench",
                                      plan("qwen3moe"),
                                      "-p",
                                      "0",
                                      "-n",
                                      "40",
                                      "-b",
                                      "1,3",
                                      "-r",
                                      "1",
                                      "-t",
                                      "2",
                                      "-o",
                                      "json",
                                      "--draft",
                                      plan("llama"),
                                      "--draft-accept",
                                      share,
                                      "--draft-adapt",
                                      "off",
                                      "--draft-max",
                                      "3"});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.err.find("answers differ"), std::string::npos) << run.err;
    const json rows = json::parse(run.out);
    ASSERT_EQ(rows.size(), 4u);
    for (const size_t row : {1u, 3u}) {
      const json& drafts = rows[row]["guesses"];
      ASSERT_TRUE(drafts.is_object()) << rows[row];
      const double right = drafts["accepted"].get<double>() / drafts["drafted"].get<double>();
      const double wanted = std::stod(share);
      if (wanted == 0 || wanted == 1) {
        EXPECT_EQ(right, wanted);
      }
      EXPECT_GT(drafts["predicted_tokens_per_second"], 0);
    }
    EXPECT_FALSE(rows[0].contains("guesses"));
  }
}

// Requests of every kind from 64 clients at once, against a server without draft tokens.
class DraftLoad : public Drafts {
 protected:
  static std::vector<json> requests() {
    std::vector<json> all;
    for (int i = 0; i < 64; ++i) {
      json body = {
          {"messages",
           {{{"role", "user"},
             {"content", fmt::format("Tell me {} of {}.", i % 3 ? "a story" : "a fact", i)}}}},
          {"max_tokens", 24 + i % 5},
          {"seed", i}};
      body["temperature"] = i % 2 == 0 ? 0.0 : 0.9;
      if (i % 4 == 1) {
        body["logprobs"] = true;
        body["top_logprobs"] = 3;
      }
      if (i % 8 == 2) body["response_format"] = {{"type", "json_object"}};
      if (i % 8 == 4) body["stop"] = {"e", "the"};
      if (i % 8 == 6) body["presence_penalty"] = 0.7;
      if (i == 63) body["speculative.n_max"] = 0;
      all.push_back(std::move(body));
    }
    return all;
  }
  struct Got {
    json choice;  // message, finish reason, log-probabilities
    json timings;
  };
  static std::vector<Got> ask(const ServerProcess& server) {
    std::vector<std::future<Got>> answers;
    for (const json& body : requests()) {
      answers.push_back(std::async(std::launch::async, [&server, body] {
        const HttpAnswer reply = server.post("/v1/chat/completions", body.dump());
        EXPECT_EQ(reply.status, 200) << reply.body;
        const json parsed = reply.json();
        if (reply.status != 200) return Got{};
        return Got{parsed["choices"], parsed["timings"]};
      }));
    }
    std::vector<Got> got;
    for (auto& answer : answers) got.push_back(answer.get());
    return got;
  }
  static json comparable(json choices) {
    for (json& choice : choices) choice.erase("id_slot");
    return choices;
  }
  // Answers of the plan with each of these command lines, and without them.
  static void expect_same(const std::string& plan,
                          const std::vector<std::vector<std::string>>& drafts) {
    const std::vector<std::string> common = {plan, "--ctx", "512", "-t", "2", "--max-batch", "8"};
    std::vector<Got> plain;
    {
      const ServerProcess server(common);
      plain = ask(server);
    }
    for (const std::vector<std::string>& more : drafts) {
      std::vector<std::string> line = common;
      line.insert(line.end(), more.begin(), more.end());
      const ServerProcess server(line);
      const std::vector<Got> got = ask(server);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(comparable(got[i].choice), comparable(plain[i].choice))
            << more[1] << ", request " << i;
      }
      EXPECT_FALSE(got[63].timings.contains("draft_n")) << "the request wants no draft tokens";
      const json stats = server.get("/stats").json();
      EXPECT_LE(stats["accepted_tokens_total"], stats["drafted_tokens_total"]);
      if (more.size() < 4) continue;  // an adaptive one may have found that they do not pay
      EXPECT_GT(stats["drafted_tokens_total"], 0);
      EXPECT_NE(server.get("/metrics").body.find("ktx_draft_seconds_total"), std::string::npos);
      EXPECT_TRUE(got[0].timings.contains("draft_n")) << got[0].timings;
    }
  }
};

TEST_F(DraftLoad, SixtyFourClientsGetTheAnswersWithoutThem) {
  expect_same(plan("qwen3moe"),
              {{"--draft", plan("qwen3moe"), "--draft-adapt", "off", "--draft-max", "4"},
               {"--draft", plan("llama"), "--draft-adapt", "off", "--draft-max", "3"},
               {"--draft", plan("qwen3moe")},
               {"--lookup", "5", "--draft-adapt", "off"}});
}

TEST_F(DraftLoad, AHeadWithinThePlanChangesNoneOfThem) {
  const auto gguf = input::GgufFile::open(model_gguf("llama"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  ASSERT_TRUE(write_draft_head(*gguf, dir_->path("head.gguf"), {.every = 5}).ok());
  compile(model_gguf("llama"), plan("with_head"), {"--draft", dir_->path("head.gguf")});
  expect_same(plan("with_head"),
              {{"--draft", "on", "--draft-adapt", "off", "--draft-max", "4"}, {"--draft", "on"}});
}

struct Place {
  const char* model;
  const char* rules;
  bool gpu;
};

// The model and its drafter where rules put them; windows, latent attention and states too.
class DraftPlaces : public ::testing::TestWithParam<Place> {};

TEST_P(DraftPlaces, DraftsChangeNoAnswer) {
  const Place& place = GetParam();
  const std::string gguf = test_model_gguf(place.model);
  if (gguf.empty()) GTEST_SKIP() << "no model " << place.model;
  const TempDir dir;
  compile(gguf, dir.path("m.ktxplan"),
          {source_dir() + "/rules/" + place.rules, "--prefer=stream-experts=no",
           "--target=" + source_dir() + "/targets/h200.yaml"});
  HostGpuLog log;
  const auto open = [&](int64_t batch) {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 512;
    options.max_batch = batch;
    options.sequence_logits = 5;
    options.rollback_tokens = 4;
    if (place.gpu) options.open_gpu = HostGpu::opener({}, &log);
    auto engine = Engine::open(dir.path("m.ktxplan"), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.take();
  };
  const auto sampling = [](uint64_t seed) {
    runtime::SamplingOptions options = varied_greedy();
    options.seed = seed;
    if (seed % 2 == 1) options.temperature = 0.8f;
    if (seed % 4 == 3) options.frequency_penalty = 0;  // a GPU sends the best ones alone
    return options;
  };
  const auto engine = open(3);
  std::vector<std::vector<int32_t>> prompts, alone;
  for (uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(random_text(20 + 40 * static_cast<int64_t>(i), i));
    runtime::Session session(*engine,
                             runtime::Sampler::create(sampling(i), engine->vocab_size()).take());
    session.keep_logits(false);
    ASSERT_TRUE(session.set_prompt(prompts.back()).ok());
    alone.push_back(next_tokens(session, 40));
  }
  auto drafter = runtime::make_plan_drafter(open(3), {}, engine->vocab_size());
  ASSERT_TRUE(drafter.ok()) << drafter.error().message;
  std::shared_ptr<runtime::Drafter> shared = drafter.take();
  {
    runtime::Speculation speculation(*shared, {4, false});
    for (uint64_t i = 0; i < 6; ++i) {
      runtime::Session session(*engine,
                               runtime::Sampler::create(sampling(i), engine->vocab_size()).take());
      session.keep_logits(false);
      session.speculate(&speculation);
      ASSERT_TRUE(session.set_prompt(prompts[i]).ok());
      EXPECT_EQ(next_tokens(session, 40), alone[i]) << "session " << i;
      EXPECT_GT(session.stats().accepted_tokens, 0);
    }
  }
  runtime::SchedulerOptions options;
  options.drafter = shared;
  options.speculation = {4, false};
  runtime::BatchScheduler scheduler(*engine, options);
  std::vector<std::vector<int32_t>> answers(6);
  std::vector<std::future<void>> ends;
  for (size_t i = 0; i < answers.size(); ++i) {
    runtime::GenerationRequest request;
    request.prompt = prompts[i];
    request.max_tokens = 40;
    request.sampling = sampling(i);
    auto end = std::make_shared<std::promise<void>>();
    ends.push_back(end->get_future());
    request.on_token = [&answers, i](const runtime::TokenEvent& event) {
      answers[i].push_back(event.id);
      return true;
    };
    request.on_end = [end](const runtime::RequestEnd& why) {
      EXPECT_EQ(why.reason, runtime::EndReason::Length) << why.error;
      end->set_value();
    };
    ASSERT_NE(scheduler.submit(std::move(request)), 0);
  }
  for (auto& end : ends) end.get();
  EXPECT_EQ(answers, alone);
  scheduler.stop();
}

INSTANTIATE_TEST_SUITE_P(Models, DraftPlaces,
                         ::testing::Values(Place{"llama", "cpu-only.yaml", false},
                                           Place{"deepseek3", "cpu-only.yaml", false},
                                           Place{"gpt_oss", "cpu-only.yaml", false},
                                           Place{"qwen3_next", "cpu-only.yaml", false},
                                           Place{"qwen35moe", "all-gpu.yaml", true},
                                           Place{"llama", "all-gpu.yaml", true},
                                           Place{"qwen3moe", "moe-experts-on-cpu.yaml", true}),
                         [](const ::testing::TestParamInfo<Place>& info) {
                           return fmt::format("{}_{}", info.param.model,
                                              info.param.gpu ? "gpu" : "cpu") +
                                  std::to_string(info.index);
                         });

}  // namespace
}  // namespace ktx::testing
