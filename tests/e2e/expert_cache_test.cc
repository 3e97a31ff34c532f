// Plans whose experts are partly on disk (lib/runtime/experts/expert_cache.h): answers are those of
// the same plan with all experts in memory, and faults of the disk are named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/plan/expert_memory.h"
#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/experts/expert_cache.h"
#include "tests/support/http_client.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using runtime::Engine;
using runtime::EngineOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The model compiled for the CPU.
class CpuPlan {
 public:
  explicit CpuPlan(const std::string& model) {
    const Finished run =
        run_program({ktx_compile(), "-q", test_model_gguf(model), "-o", path(), "--ctx=256"});
    EXPECT_EQ(run.status, 0) << run.err;
    memory = plan::expert_memory(*plan::PlanFile::open(path()).take()->program);
  }
  std::string path() const { return dir_.path("model.ktxplan"); }
  // So many percent of the experts' bytes, in whole slots; never less than a layer needs.
  int64_t bytes_of(int percent) const {
    const int64_t slots = std::max(memory.least_slots, memory.experts * percent / 100);
    return slots * static_cast<int64_t>(memory.slot_bytes);
  }

  plan::ExpertMemory memory;

 private:
  TempDir dir_;
};

std::unique_ptr<Engine> open(const CpuPlan& plan, EngineOptions options = {}) {
  options.threads = 2;
  auto engine = Engine::open(plan.path(), options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? engine.take() : nullptr;
}

std::vector<int32_t> prompt_of(const Engine& engine, int tokens, int seed) {
  std::vector<int32_t> ids;
  for (int i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>((seed * 31 + i * i * 7 + i) % (engine.vocab_size() - 10)));
  }
  return ids;
}

// Bits of the logits of two texts: prompts in chunks, then greedy tokens of both at once.
Result<std::vector<float>> logits_of(Engine& engine, int steps = 12) {
  std::vector<float> all;
  std::vector<runtime::Sequence> sequences;
  std::vector<int32_t> next;
  const auto keep = [&](int64_t row) {
    const auto logits = engine.logits(row);
    all.insert(all.end(), logits.begin(), logits.end());
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  for (int text = 0; text < 2; ++text) {
    sequences.push_back(engine.new_sequence());
    const std::vector<int32_t> ids = prompt_of(engine, 50, text + 1);
    for (size_t at = 0; at < ids.size(); at += 40) {
      const runtime::BatchItem item{
          &sequences.back(), std::span(ids).subspan(at, std::min<size_t>(40, ids.size() - at)),
          runtime::Want::Last};
      KTX_TRY(engine.forward({&item, 1}));
    }
    next.push_back(keep(0));
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<runtime::BatchItem> items;
    for (size_t t = 0; t < 2; ++t) {
      items.push_back({&sequences[t], std::span(next).subspan(t, 1), runtime::Want::Last});
    }
    KTX_TRY(engine.forward(items));
    for (int64_t t = 0; t < 2; ++t) next[static_cast<size_t>(t)] = keep(t);
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

EngineOptions two_texts() {
  EngineOptions options;
  options.max_batch = 2;
  options.ctx = 128;
  return options;
}

class ExpertCacheModel : public ::testing::TestWithParam<const char*> {};

TEST_P(ExpertCacheModel, GivesTheBitsOfTheMappedPlanAtEveryShare) {
  const std::string model = GetParam();
  if (test_model_dir(model).empty()) GTEST_SKIP() << "no test model " << model;
  const CpuPlan plan(model);
  ASSERT_GT(plan.memory.experts, 0);
  EngineOptions options = two_texts();
  const auto mapped = open(plan, options);
  ASSERT_TRUE(mapped);
  const std::vector<float> expected = *logits_of(*mapped);
  EXPECT_EQ(mapped->stats().expert_cache.slots, 0);
  for (const auto kind : {runtime::ReaderKind::Auto, runtime::ReaderKind::Threads}) {
    runtime::ExpertCacheOptions cache;
    cache.reader.kind = kind;
    options.expert_cache = &cache;
    for (const int percent : {100, 75, 50, 25}) {
      options.expert_memory_bytes = plan.bytes_of(percent);
      const auto engine = open(plan, options);
      ASSERT_TRUE(engine);
      const auto logits = logits_of(*engine);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      EXPECT_TRUE(same_bits(*logits, expected)) << percent << " %";
      const runtime::ExpertCacheUse& use = engine->stats().expert_cache;
      EXPECT_EQ(use.slots * static_cast<int64_t>(use.slot_bytes), plan.bytes_of(percent));
      EXPECT_GT(use.read_bytes, 0);
      EXPECT_GT(use.hits, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ExpertCacheModel,
                         ::testing::Values("mixtral", "qwen2moe", "qwen3moe", "deepseek2",
                                           "deepseek3", "glm4_moe", "minimax_m2", "gpt_oss"),
                         [](const auto& info) { return std::string(info.param); });

// A reader with a fault, in a run that works without it.
class ExpertCacheFault : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> start(runtime::ReaderKind kind,
                                std::function<int(const runtime::DirectRead&)> fault) {
    cache_.reader.kind = kind;
    cache_.reader.fault = std::move(fault);
    EngineOptions options = two_texts();
    options.expert_cache = &cache_;
    options.expert_memory_bytes = plan_.bytes_of(0);
    return open(plan_, options);
  }

  const CpuPlan plan_{"qwen3moe"};
  runtime::ExpertCacheOptions cache_;
};

TEST_F(ExpertCacheFault, AnErrorOfTheDiskIsNamedAndTheNextPassTriesAgain) {
  EngineOptions options = two_texts();
  const std::vector<float> expected = *logits_of(*open(plan_, options));
  for (const auto kind : {runtime::ReaderKind::Auto, runtime::ReaderKind::Threads}) {
    for (int first = 0; first < 20; ++first) {
      std::filesystem::remove(plan_.path() + ".experts");  // reads in their order, from nothing
      std::atomic<int> reads = 0;
      std::atomic<bool> broken = true;
      const auto engine = start(kind, [&, first](const runtime::DirectRead&) {
        return broken && reads++ >= first ? EIO : 0;
      });
      ASSERT_TRUE(engine);
      const auto failed = logits_of(*engine);
      ASSERT_FALSE(failed.ok()) << first;
      EXPECT_THAT(failed.error().message,
                  AllOf(HasSubstr(plan_.path() + ": cannot read experts of layer "),
                        HasSubstr("at offset "), HasSubstr("Input/output error")));
      broken = false;
      const auto again = logits_of(*engine);
      ASSERT_TRUE(again.ok()) << again.error().message;
      EXPECT_TRUE(same_bits(*again, expected));
    }
  }
}

TEST_F(ExpertCacheFault, ADiskThatFailsForGoodFailsEveryPass) {
  const auto engine = start(runtime::ReaderKind::Auto, [](const auto&) { return EIO; });
  ASSERT_TRUE(engine);
  for (int i = 0; i < 20; ++i) {
    const auto failed = logits_of(*engine);
    ASSERT_FALSE(failed.ok());
    EXPECT_THAT(failed.error().message, HasSubstr("Input/output error"));
  }
}

// One read fails, and those that began with it never come: the error does not wait for them.
TEST_F(ExpertCacheFault, AnErrorBesideReadsThatHangIsGivenSoon) {
  struct Disk {
    std::atomic<bool> hangs = true;
    std::atomic<int> begun = 0;
  };
  const auto disk = std::make_shared<Disk>();
  cache_.fault_patience = std::chrono::milliseconds(100);
  const auto engine = start(runtime::ReaderKind::Threads, [disk](const auto& read) {
    ++disk->begun;
    if (disk->hangs && read.ticket == 0) return EIO;  // the first, which the pass awaits first
    while (disk->hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  ASSERT_TRUE(engine);
  const auto begin = std::chrono::steady_clock::now();
  const auto failed = logits_of(*engine);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30))
      << "half of patience";
  const int begun = disk->begun;
  disk->hangs = false;
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("Input/output error"));
  EXPECT_LE(begun, 17) << "the others were dropped";
  EXPECT_TRUE(logits_of(*engine).ok());
}

TEST_F(ExpertCacheFault, ADiskThatHangsIsNamedAndItsAnswersAreTakenLater) {
  std::atomic<bool> hangs = true;
  cache_.patience = std::chrono::milliseconds(200);
  const auto engine = start(runtime::ReaderKind::Threads, [&](const auto&) {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  ASSERT_TRUE(engine);
  const auto failed = logits_of(*engine);
  hangs = false;
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, AllOf(HasSubstr("cannot read experts of layer "),
                                            HasSubstr("the disk is slow or hangs")));
  EXPECT_TRUE(logits_of(*engine).ok());
}

// The reads outlive the engine: what they share with the test does, too.
TEST_F(ExpertCacheFault, ADiskThatHangsForGoodDoesNotHoldUpTheEnd) {
  struct Disk {
    std::atomic<bool> hangs = true;
    std::atomic<int> begun = 0, over = 0;
  };
  const auto disk = std::make_shared<Disk>();
  cache_.patience = std::chrono::milliseconds(200);
  cache_.end_patience = std::chrono::milliseconds(200);
  auto engine = start(runtime::ReaderKind::Threads, [disk](const auto&) {
    ++disk->begun;
    while (disk->hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++disk->over;
    return 0;
  });
  ASSERT_TRUE(engine);
  EXPECT_FALSE(logits_of(*engine).ok());
  engine.reset();
  EXPECT_GT(disk->begun, 0);
  EXPECT_EQ(disk->over, 0) << "it has not waited for them";
  EXPECT_FALSE(std::filesystem::exists(plan_.path() + ".experts")) << "on the same disk";
  // They come after all, into slots that are still there; those that had not begun never do.
  disk->hangs = false;
  while (disk->over < disk->begun) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int begun = disk->begun;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(disk->begun, begun);
}

// A warm start on a disk that hangs: the note's thread waits for what it began to read.
TEST_F(ExpertCacheFault, ADiskThatHangsFromTheStartDoesNotHoldUpTheEnd) {
  ASSERT_TRUE(logits_of(*start(runtime::ReaderKind::Threads, {})).ok());
  ASSERT_TRUE(std::filesystem::exists(plan_.path() + ".experts"));
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  const auto begun = std::make_shared<std::atomic<int>>(0);
  cache_.end_patience = std::chrono::milliseconds(50);
  auto engine = start(runtime::ReaderKind::Threads, [hangs, begun](const auto&) {
    ++*begun;
    while (*hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0;
  });
  ASSERT_TRUE(engine);
  while (*begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  engine.reset();
  EXPECT_TRUE(*hangs);
  *hangs = false;
}

TEST_F(ExpertCacheFault, AFileThatIsCutOffIsNamed) {
  const auto engine = start(runtime::ReaderKind::Auto, {});
  ASSERT_TRUE(engine);
  ASSERT_TRUE(logits_of(*engine, 2).ok());
  std::filesystem::resize_file(plan_.path(), std::filesystem::file_size(plan_.path()) / 8);
  const auto failed = logits_of(*engine);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, AllOf(HasSubstr(plan_.path()), HasSubstr("became smaller")));
}

// As a note beside the plan, a profile decides what is read first.
TEST(ExpertNote, IsWrittenAtTheEndAndReadAtTheStart) {
  const CpuPlan plan("qwen3moe");
  EngineOptions options = two_texts();
  options.expert_memory_bytes = plan.bytes_of(50);
  auto engine = open(plan, options);
  const auto expected = logits_of(*engine);
  ASSERT_TRUE(expected.ok());
  const int64_t chosen = engine->stats().tokens * 3 * plan.memory.experts / 8;
  engine.reset();
  const auto profile = plan::read_expert_profile(plan.path() + ".experts");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->architecture, "qwen3moe");
  EXPECT_EQ(std::ssize(profile->layers) * 8, plan.memory.experts);
  EXPECT_GT(static_cast<double>(profile->activations()), 850.0 * static_cast<double>(chosen))
      << "thousandths that halve over 512 tokens, however many layers there are";
  const auto warm = open(plan, options);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto again = logits_of(*warm);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(same_bits(*again, *expected));
}

TEST(ExpertNote, OfAnotherModelOrDamagedCostsNothingButTheWarmStart) {
  const CpuPlan plan("qwen3moe");
  EngineOptions options = two_texts();
  options.expert_memory_bytes = plan.bytes_of(50);
  for (const std::string& note :
       {std::string("no json"), std::string("{}"),
        plan::to_json({"llama", {{0, {1, 2, 3, 4, 5, 6, 7, 8}}}}),
        plan::to_json({"qwen3moe", {{0, {1, 2}}, {77, {1, 2, 3, 4, 5, 6, 7, 8}}}})}) {
    std::ofstream(plan.path() + ".experts") << note;
    const auto engine = open(plan, options);
    ASSERT_TRUE(engine);
    EXPECT_TRUE(logits_of(*engine).ok()) << note;
  }
}

std::vector<std::string> generation(const CpuPlan& plan, int percent, int tokens) {
  return {ktx_run(),
          "generate",
          plan.path(),
          "--prompt-ids=3,40,5,60,7",
          "-n",
          fmt::format("{}", tokens),
          "--temp=0",
          "--json",
          fmt::format("--expert-memory={}", plan.bytes_of(percent))};
}

TEST(ExpertRuns, GiveTheSameIdsAfterEveryKill) {
  const CpuPlan plan("qwen3moe");
  const auto ids_of = [&](int percent) {
    const Finished run = run_program(generation(plan, percent, 40));
    EXPECT_EQ(run.status, 0) << run.err;
    return nlohmann::json::parse(run.out)["ids"];
  };
  const auto expected = ids_of(100);
  for (int kill = 0; kill < 50; ++kill) {
    std::vector<std::string> args = {"/usr/bin/timeout", "-s", "KILL",
                                     fmt::format("0.{:03}", 10 + 7 * kill)};
    const std::vector<std::string> run = generation(plan, 50, 200);
    args.insert(args.end(), run.begin(), run.end());
    run_program(args);
    const std::string note = plan.path() + ".experts";
    if (!std::filesystem::exists(note)) continue;
    EXPECT_TRUE(plan::read_expert_profile(note).ok()) << kill;
  }
  for (const int percent : {75, 50, 25}) EXPECT_EQ(ids_of(percent), expected) << percent;
}

TEST(ExpertRuns, BenchSaysWhatWasThereAndWhatWasRead) {
  const CpuPlan plan("qwen3moe");
  const std::string memory = fmt::format("--expert-memory={}", plan.bytes_of(50));
  const Finished json = run_program({ktx_run(), "bench", plan.path(), "-p", "32", "-n", "8", "-r",
                                     "1", "-t", "1", "-o", "json", memory});
  ASSERT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(json.err, HasSubstr("experts in main memory"));
  const auto row = nlohmann::json::parse(json.out)[1]["expert_cache"];
  EXPECT_GT(row["chosen"].get<int64_t>(), 0);
  EXPECT_EQ(row["tokens"], 8);
  EXPECT_GT(row["guesses"].get<int64_t>(), 0);
  EXPECT_GE(row["guesses"].get<int64_t>(), row["right_guesses"].get<int64_t>());
}

constexpr const char* kRequest = R"({"prompt": [3, 40, 5], "n_predict": 24, "temperature": 0})";

TEST(ExpertServer, CountsInItsMetrics) {
  const CpuPlan plan("qwen3moe");
  const ServerProcess server({plan.path(), fmt::format("--expert-memory={}", plan.bytes_of(50))});
  EXPECT_EQ(server.post("/completion", kRequest).status, 200);
  EXPECT_EQ(server.metric("expert_slots"), static_cast<double>(plan.memory.experts / 2));
  EXPECT_GT(server.metric("expert_chosen_total"), 0);
  EXPECT_GT(server.metric("expert_hits_total"), 0);
  EXPECT_GT(server.metric("expert_read_bytes_total"), 0);
  EXPECT_GT(server.metric("expert_guesses_total"), 0);
}

// io_uring is forbidden once the server has started: threads read from there on.
TEST(ExpertServer, ReadsInASandbox) {
  const CpuPlan plan("qwen3moe");
  const std::string memory = fmt::format("--expert-memory={}", plan.bytes_of(0));
  if (run_program({ktx_compile(), "--sandbox", "--explain-code", "S001"}).status != 0) {
    GTEST_SKIP() << "no Landlock or no libseccomp here";
  }
  const ServerProcess outside({plan.path(), memory});
  const std::string expected = outside.post("/completion", kRequest).json()["content"];
  const ServerProcess inside({plan.path(), memory, "--sandbox"});
  const HttpAnswer answer = inside.post("/completion", kRequest);
  ASSERT_EQ(answer.status, 200) << inside.log();
  EXPECT_EQ(answer.json()["content"], expected);
  EXPECT_GT(inside.metric("expert_read_bytes_total"), 0);
}

TEST(ExpertServer, AnswersEndInOrderWhenTheFileIsCutOff) {
  const CpuPlan plan("qwen3moe");
  ServerProcess server(
      {plan.path(), "--max-batch=4", fmt::format("--expert-memory={}", plan.bytes_of(0))});
  EXPECT_EQ(server.post("/completion", kRequest).status, 200);
  std::vector<int> statuses(8, -1);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < statuses.size(); ++i) {
    clients.emplace_back([&, i] {
      statuses[i] =
          server
              .post("/completion", R"({"prompt": [3, 40, 5], "n_predict": 200, "temperature": 0})")
              .status;
    });
  }
  std::filesystem::resize_file(plan.path(), std::filesystem::file_size(plan.path()) / 8);
  for (std::thread& client : clients) client.join();
  for (const int status : statuses) {
    EXPECT_THAT(status, ::testing::AnyOf(200, 500, 503));
  }
  const HttpAnswer after = server.post("/completion", kRequest);
  EXPECT_EQ(after.status, 503);
  EXPECT_THAT(after.body, HasSubstr("the file was cut off"));
  EXPECT_EQ(server.stop(SIGTERM), 0) << server.log();
}

TEST(ExpertMemory, TooLittleIsRefusedWithWhatALayerNeeds) {
  const CpuPlan plan("qwen3moe");
  EngineOptions options;
  options.expert_memory_bytes = 4096;
  const auto engine = Engine::open(plan.path(), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message,
              AllOf(HasSubstr("--expert-memory: 4.00 KiB for experts is less than one layer's "),
                    HasSubstr("experts take")));
}

TEST(ExpertMemory, IsForPlansWithExpertsOnTheCpu) {
  const CpuPlan plan("llama");
  EngineOptions options;
  options.expert_memory_bytes = 1 << 20;
  const auto engine = Engine::open(plan.path(), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("the plan has no routed experts on the CPU"));
}

}  // namespace
}  // namespace ktx::testing
