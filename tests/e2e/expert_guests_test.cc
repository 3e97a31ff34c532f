// Slots on a GPU for experts of the CPU (lib/runtime/experts/expert_guests.h), without a GPU: with
// the Gpu in host memory (tests/support/host_gpu.h). Experts come and go between the passes, also
// where they need not, and the tokens are those of a plan without slots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "lib/plan/expert_memory.h"
#include "lib/plan/expert_profile.h"
#include "lib/plan/plan_format.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "lib/runtime/engine/plan_runner.h"
#include "lib/runtime/experts/expert_cache.h"
#include "lib/runtime/experts/expert_guests.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/runtime/session/session.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/reference_run.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using runtime::ExpertGuestUse;
using ::testing::HasSubstr;

std::string rules_of(const std::string& experts) {
  return "version: 1\nrules:\n  - match: {kind: experts}\n    replace: {device: cpu" + experts +
         "}\n    recursive: false\n  - match: {name: \".\"}\n    replace: {device: cuda:0}\n";
}
const std::string kSlots = rules_of(", experts: {cuda:0: {slots: 3}}");
const std::string kFixedToo = rules_of(", experts: {cuda:0: {resident: 2, slots: 2}}");
const std::string kNoSlots = rules_of("");

// Others come in every pass: the most used one that is no guest, for the least used guest.
constexpr runtime::ExpertGuestOptions kRestless{.least_gain = -1e9};

class Slots {
 public:
  explicit Slots(const std::string& model, const std::string& rules = kSlots,
                 const std::vector<std::string>& arguments = {"--prefer=stream-experts=no"}) {
    std::vector<std::string> command = {ktx_compile(),
                                        "-q",
                                        model_gguf(model),
                                        dir_.write("rules.yaml", rules),
                                        "--target=" + source_dir() + "/targets/h200.yaml",
                                        "-o",
                                        plan()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }

  std::unique_ptr<runtime::Engine> open(runtime::EngineOptions options = {}) {
    options.threads = 2;
    options.precision = options.precision.value_or(runtime::Precision::Exact);
    options.open_gpu = HostGpu::opener({}, &log);
    auto engine = runtime::Engine::open(plan(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine ? engine.take() : nullptr;
  }
  std::unique_ptr<runtime::Engine> open_restless() {
    runtime::EngineOptions options;
    options.expert_guests = &kRestless;
    return open(options);
  }

  HostGpuLog log;

 private:
  TempDir dir_;
};

// Greedy tokens behind a prompt in chunks of `chunk`.
std::vector<int32_t> answer(runtime::Engine& engine, int64_t chunk, int tokens) {
  const std::vector<int32_t> prompt = {3, 40, 5, 60, 7, 80, 9, 10, 11, 4, 77, 23};
  runtime::Sequence sequence = engine.new_sequence();
  std::vector<int32_t> ids;
  const auto compute = [&](std::span<const int32_t> some) {
    const runtime::BatchItem item{&sequence, some, runtime::Want::Last};
    const auto done = engine.forward({&item, 1});
    EXPECT_TRUE(done.ok()) << done.error().message;
  };
  for (size_t at = 0; at < prompt.size(); at += static_cast<size_t>(chunk)) {
    const size_t count = std::min(static_cast<size_t>(chunk), prompt.size() - at);
    compute(std::span(prompt).subspan(at, count));
  }
  while (std::ssize(ids) < tokens) {
    const auto logits = engine.logits(0);
    ids.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    compute(std::span(ids).last(1));
  }
  return ids;
}

struct Case {
  const char* model;
  const char* name;
  const std::string* rules;
  bool streams;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " " << c.name;
}
class GuestModels : public ::testing::TestWithParam<Case> {};

// Whole prompts in chunks, one by one and in batches, with others in the slots in each pass.
TEST_P(GuestModels, GiveTheReferencesTokens) {
  const Case& c = GetParam();
  if (test_model_dir(c.model).empty()) GTEST_SKIP() << "no test model " << c.model;
  Slots slots(c.model, *c.rules,
              {std::string("--prefer=stream-experts=") + (c.streams ? "8" : "no")});
  runtime::EngineOptions options;
  options.max_batch = 4;
  options.expert_guests = &kRestless;
  const auto engine = slots.open(options);
  ASSERT_TRUE(engine);
  const nlohmann::json cases = reference_cases(model_dir(c.model));
  Comparison all;
  for (size_t i = 0; i < cases.size(); i += 2) {
    compare_case(*engine, cases[i], i % 4 == 0 ? 7 : 64, all);
  }
  nlohmann::json others;
  for (size_t i = 1; i < cases.size(); i += 2) others.push_back(cases[i]);
  compare_together(*engine, others, all);
  EXPECT_EQ(all.equal, all.cases);
  EXPECT_LE(all.mean(), 0.002);
  const ExpertGuestUse& use = engine->stats().expert_guests;
  EXPECT_GT(use.moves, 100);
  EXPECT_GT(use.hits, 0);
  EXPECT_LT(use.hits, use.activations);
  EXPECT_EQ(use.failures, 0);
}

// Models with every kind of experts' weights; gpt_oss has biases.
INSTANTIATE_TEST_SUITE_P(All, GuestModels,
                         ::testing::Values(Case{"qwen3moe", "slots", &kSlots, false},
                                           Case{"qwen3moe", "slots_streamed", &kSlots, true},
                                           Case{"qwen3moe", "fixed_too", &kFixedToo, false},
                                           Case{"qwen3moe", "fixed_too_streamed", &kFixedToo, true},
                                           Case{"deepseek3", "slots_streamed", &kSlots, true},
                                           Case{"gpt_oss", "slots", &kSlots, false},
                                           Case{"gpt_oss", "slots_streamed", &kSlots, true},
                                           Case{"glm4_moe", "slots", &kSlots, false}),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + info.param.name;
                         });

TEST(ExpertGuests, ChangeNoTokenWhereverExpertsAre) {
  Slots slots("qwen3moe"), none("qwen3moe", kNoSlots);
  const auto plain = none.open();
  ASSERT_TRUE(plain);
  for (const int64_t chunk : {1, 5, 12}) {
    const std::vector<int32_t> expected = answer(*plain, chunk, 40);
    for (const int64_t late : {0, 1, 7}) {
      slots.log.late_copies = late;
      const auto engine = slots.open_restless();
      ASSERT_TRUE(engine);
      EXPECT_EQ(answer(*engine, chunk, 40), expected) << chunk << ", late by " << late;
      const ExpertGuestUse& use = engine->stats().expert_guests;
      EXPECT_EQ(use.slots, 9);
      // Each of three layers has one more in each pass; behind copies that are late, the next.
      EXPECT_GT(use.moves, 3 * 38 / (late + 1));
      EXPECT_GT(use.bytes, 0);
    }
  }
  EXPECT_EQ(plain->stats().expert_guests.slots, 0);
}

// Tokens of one kind have the same experts, which come once and stay.
TEST(ExpertGuests, FollowUse) {
  Slots slots("qwen3moe");
  const auto engine = slots.open();
  ASSERT_TRUE(engine);
  const std::vector<int32_t> ids = {40};
  const auto pass = [&] {
    runtime::Sequence sequence = engine->new_sequence();
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    ASSERT_TRUE(engine->forward({&item, 1}).ok());
  };
  for (int i = 0; i < 20; ++i) pass();
  const ExpertGuestUse before = engine->stats().expert_guests;
  EXPECT_LE(before.moves, 9);  // at most as many as a token has
  for (int i = 0; i < 10; ++i) pass();
  const ExpertGuestUse after = engine->stats().expert_guests.since(before);
  EXPECT_EQ(after.moves, 0);
  EXPECT_EQ(after.activations, 10 * 3 * 3);
  EXPECT_EQ(after.hits, after.activations);
  EXPECT_EQ(engine->stats().expert_use.cpu + engine->stats().expert_use.gpu, 30 * 9);
}

TEST(ExpertGuests, ACopyThatFailsLeavesThemWhereTheyAre) {
  Slots slots("qwen3moe"), none("qwen3moe", kNoSlots);
  const auto plain = none.open();
  ASSERT_TRUE(plain);
  const std::vector<int32_t> expected = answer(*plain, 5, 30);
  const auto fails = [&](bool HostGpuLog::*what) {
    const auto engine = slots.open_restless();
    ASSERT_TRUE(engine);
    EXPECT_EQ(answer(*engine, 5, 30), expected);
    const int64_t moves = engine->stats().expert_guests.moves;
    EXPECT_GT(moves, 0);
    slots.log.*what = true;
    EXPECT_EQ(answer(*engine, 5, 30), expected);
    slots.log.*what = false;
    EXPECT_EQ(answer(*engine, 5, 30), expected);
    EXPECT_EQ(engine->stats().expert_guests.failures, 1);
    EXPECT_LE(engine->stats().expert_guests.moves, moves + 8);  // those on their way
  };
  fails(&HostGpuLog::refuses_copies);
  fails(&HostGpuLog::refuses_tiles);
}

// A text that goes on from a prefix of another one, with other experts in the slots by then.
TEST(ExpertGuests, SessionsAndSharedPrefixesGoOn) {
  Slots slots("qwen3moe"), none("qwen3moe", kNoSlots);
  const std::vector<int32_t> first = {3, 40, 5, 60, 7, 80, 9, 10, 11, 4, 77, 23, 5, 6, 7, 8, 9, 1};
  std::vector<int32_t> second(first.begin(), first.begin() + 16);
  second.push_back(50);
  std::vector<std::vector<int32_t>> answers[2];
  for (const bool with : {false, true}) {
    const auto engine = with ? slots.open_restless() : none.open();
    ASSERT_TRUE(engine);
    runtime::SamplingOptions greedy;
    greedy.temperature = 0;
    const auto session = [&] {
      return runtime::Session(*engine,
                              runtime::Sampler::create(greedy, engine->vocab_size()).take());
    };
    const auto go_on = [&](runtime::Session& from) {
      std::vector<int32_t>& ids = answers[with].emplace_back();
      for (int i = 0; i < 12; ++i) ids.push_back(from.next()->id);
    };
    runtime::Session one = session();
    for (const auto* prompt :
         std::initializer_list<const std::vector<int32_t>*>{&first, &second, &first}) {
      ASSERT_TRUE(one.set_prompt(*prompt).ok());
      go_on(one);
    }
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// What was used is noted beside the plan, and comes first at the next start.
TEST(ExpertGuests, StartWarm) {
  Slots slots("qwen3moe");
  const std::string note = slots.plan() + ".experts";
  {
    const auto engine = slots.open();
    ASSERT_TRUE(engine);
    answer(*engine, 12, 30);
  }
  const auto profile = plan::read_expert_profile(note);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->layers.size(), 3u);
  const auto moves_of_first_passes = [&] {
    const auto engine = slots.open();
    const std::vector<int32_t> ids = {40};
    for (int i = 0; i < 3; ++i) {
      runtime::Sequence sequence = engine->new_sequence();
      const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
      EXPECT_TRUE(engine->forward({&item, 1}).ok());
    }
    return engine->stats().expert_guests.moves;
  };
  EXPECT_GT(moves_of_first_passes(), 0);
  std::filesystem::remove(note);
  EXPECT_EQ(moves_of_first_passes(), 0);
}

// Three levels: what a slot of the GPU gets comes from a slot of main memory, others are on disk.
TEST(ExpertGuests, ComeFromACacheOfTheDisk) {
  Slots slots("qwen3moe"), none("qwen3moe", kNoSlots);
  const auto plain = none.open();
  ASSERT_TRUE(plain);
  const plan::PlanFile file = plan::PlanFile::open(slots.plan()).take();
  const plan::ExpertMemory memory = plan::expert_memory(*file.view().program);
  EXPECT_EQ(memory.experts, 24);  // guests are there as well
  runtime::EngineOptions options;
  options.expert_guests = &kRestless;
  options.expert_memory_bytes = static_cast<int64_t>(memory.least_bytes());
  const auto engine = slots.open(options);
  ASSERT_TRUE(engine);
  EXPECT_EQ(answer(*engine, 5, 40), answer(*plain, 5, 40));
  EXPECT_GT(engine->stats().expert_guests.moves, 20);
  const runtime::ExpertCacheUse& use = engine->stats().expert_cache;
  EXPECT_GT(use.read_bytes, 0);
  EXPECT_GT(use.guesses, 0) << "by the GPU's router, on the CPU";
  EXPECT_GT(use.right_guesses, 0);
}

// A prompt uses all experts, and a GPU has three of each layer.
TEST(ExpertGuests, OfTheNextLayerAreNotReadAheadInPrompts) {
  Slots slots("qwen3moe");
  const plan::PlanFile file = plan::PlanFile::open(slots.plan()).take();
  const plan::ExpertMemory memory = plan::expert_memory(*file.view().program);
  runtime::EngineOptions options;
  options.expert_memory_bytes = static_cast<int64_t>(memory.least_bytes());
  const auto engine = slots.open(options);
  ASSERT_TRUE(engine);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back(3 + i);
  runtime::Sequence sequence = engine->new_sequence();
  const runtime::BatchItem item{&sequence, prompt, runtime::Want::Last};
  ASSERT_TRUE(engine->forward({&item, 1}).ok());
  const auto expert_bytes = static_cast<int64_t>(memory.bytes) / memory.experts;
  EXPECT_GT(engine->stats().expert_cache.read_bytes, 0);
  EXPECT_LE(engine->stats().expert_cache.read_bytes, 3 * 5 * expert_bytes);
}

// The CPU has one expert of each layer, and most tokens choose none of them.
TEST(ExpertGuests, LayersWithoutChosenExpertsOfTheCpuGuessTheNext) {
  Slots slots("qwen3moe", rules_of(", experts: {cuda:0: {resident: 7}}"));
  const plan::PlanFile file = plan::PlanFile::open(slots.plan()).take();
  runtime::EngineOptions options;
  options.expert_memory_bytes =
      static_cast<int64_t>(plan::expert_memory(*file.view().program).least_bytes());
  const auto engine = slots.open(options);
  ASSERT_TRUE(engine);
  runtime::Sequence sequence = engine->new_sequence();
  int64_t guesses = 0;
  for (int32_t i = 0; i < 200; ++i) {
    const runtime::ExpertCacheUse before = engine->stats().expert_cache;
    const std::vector<int32_t> ids = {3 + i * 7 % 90};
    const runtime::BatchItem item{&sequence, ids, runtime::Want::Last};
    ASSERT_TRUE(engine->forward({&item, 1}).ok());
    const runtime::ExpertCacheUse after = engine->stats().expert_cache;
    if (after.chosen() == before.chosen()) guesses += after.guesses - before.guesses;
  }
  EXPECT_GT(guesses, 0);
}

// Prompts come in long chunks where experts are on disk, unless the GPU has no memory for these. A
// budget of keys and values for less than all contexts changes nothing.
TEST(ExpertGuests, ChunksFitTheGpu) {
  Slots slots("qwen3moe");
  const plan::PlanFile file = plan::PlanFile::open(slots.plan()).take();
  runtime::EngineOptions options;
  options.threads = 2;
  options.ctx = 4096;
  options.max_batch = 2;
  options.expert_memory_bytes = 4 << 20;
  const auto chunk_of = [&](uint64_t mib) -> int64_t {
    options.open_gpu = HostGpu::opener({.memory_bytes = mib << 20}, &slots.log);
    const auto engine = runtime::Engine::open(slots.plan(), options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? (*engine)->chunk_tokens() : 0;
  };
  const auto fits = [&](uint64_t mib) {
    runtime::EngineOptions longest = options;
    longest.chunk_tokens = 4096;
    const HostGpu gpu(0, {.memory_bytes = mib << 20}, &slots.log);
    return runtime::fits_gpus(file.view(), longest, {{"cuda:0", gpu.facts()}});
  };
  constexpr uint64_t kPlenty = 4096;
  if (chunk_of(kPlenty) < 4096) GTEST_SKIP() << "the machine has no memory for long chunks";
  for (const int64_t budget : {0, 1 << 20}) {
    options.kv_budget_bytes = budget;
    uint64_t least = 1;
    while (least < kPlenty && !fits(least)) ++least;
    ASSERT_LT(least, kPlenty);
    EXPECT_EQ(chunk_of(least), 4096);
    EXPECT_LT(chunk_of(least - 1), 4096);
  }
}

TEST(ExpertGuests, StayWhereTheyAreCountedByNumber) {
  Slots slots("qwen3moe");
  runtime::EngineOptions options;
  options.expert_guests = &kRestless;
  options.count_experts = true;
  const auto engine = slots.open(options);
  ASSERT_TRUE(engine);
  answer(*engine, 5, 10);
  EXPECT_EQ(engine->stats().expert_guests.moves, 0);
  EXPECT_EQ(static_cast<int64_t>(engine->runner().expert_profile()->activations()),
            engine->stats().expert_use.total());
}

TEST(ExpertGuests, KeepEveryBitOfTheGgufAndAskForAReaderThatKnowsThem) {
  Slots slots("qwen3moe");
  TempDir dir;
  const Finished run =
      run_program({ktx_run(), "inspect", slots.plan(), "--export-gguf", dir.path("out.gguf")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_file(dir.path("out.gguf")), read_file(model_gguf("qwen3moe")));
  const std::string bytes = read_file(slots.plan());
  plan::Prefix prefix;
  std::memcpy(&prefix, bytes.data(), sizeof(prefix));
  EXPECT_EQ(prefix.min_reader_minor, 9u);
  const Finished inspected = run_program({ktx_run(), "inspect", slots.plan()});
  EXPECT_THAT(inspected.out, HasSubstr("3 on GPUs for experts of each of 3 layers"));
}

// How many fit is a decision of the plan.
TEST(ExpertGuests, AreAsManyAsTheGpuHasRoomFor) {
  TempDir dir;
  const std::string rules = dir.write("rules.yaml", rules_of(", experts: {cuda:0: {slots: auto}}"));
  const auto estimate = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {
        ktx_compile(), "--estimate",
        "--hf-config", source_dir() + "/tests/configs/Qwen3-30B-A3B.json",
        rules,         "--target=" + source_dir() + "/targets/h200.yaml"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.out;
  };
  EXPECT_THAT(estimate({}), HasSubstr("slots: 127 for 128 experts of each of 48 layers"));
  const std::string eight = estimate({"--vram=8G", "--ctx=4096"});
  const size_t at = eight.find("slots: ");
  ASSERT_NE(at, std::string::npos) << eight;
  const int slots = std::stoi(eight.substr(at + 7));
  EXPECT_GT(slots, 20);
  EXPECT_LT(slots, 64);
  EXPECT_EQ(estimate({"--vram=3G", "--ctx=4096"}).find("slots: "), std::string::npos);
}

}  // namespace
}  // namespace ktx::testing
