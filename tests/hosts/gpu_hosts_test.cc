// GPUs of every host, with HostGpu in their place (tests/support/host_gpu.h): logits are those of
// one machine whose GPUs have the same layers, bit by bit; texts are saved and restored with what
// each host's GPU has of them; and a GPU that a host lacks is named with the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>

#include "lib/plan/device_memory.h"
#include "lib/runtime/engine/forward_watch.h"
#include "lib/runtime/engine/largest_ctx.h"
#include "lib/runtime/session/session_file.h"
#include "tests/hosts/host_plans.h"
#include "tests/hosts/host_talk.h"
#include "tests/support/host_gpu.h"
#include "tests/support/host_threads.h"
#include "tests/support/text_session.h"

namespace ktx::testing {
namespace {

using runtime::BatchItem;
using runtime::Engine;
using runtime::EngineOptions;
using runtime::Forward;
using runtime::Sequence;
using runtime::Want;
using ::testing::HasSubstr;

constexpr const char* kGpu = "{compute_capability: 9.0, memory_gib: 24, bandwidth_gbps: 1000}";

std::string one_machine(int gpus) {
  return fmt::format("name: one\ncpu: {{isa: avx2, cores: 4}}\ngpus:\n  - {}\n",
                     fmt::format("{{count: {}, {}", gpus, kGpu + 1));
}
// Each with so many GPUs.
std::string two_hosts(int of_a, int of_b) {
  const auto gpus = [](int count) {
    return count == 0 ? std::string("[]") : fmt::format("[{{count: {}, {}]", count, kGpu + 1);
  };
  return fmt::format(
      "name: lab\nnetwork: {{gbit: 10, latency_us: 50}}\nhosts:\n"
      "  - {{name: a, cpu: {{isa: avx2, cores: 4}}, gpus: {}}}\n"
      "  - {{name: b, cpu: {{isa: avx2, cores: 4}}, gpus: {}}}\n",
      gpus(of_a), gpus(of_b));
}

std::string layers_on(const std::string& layers, const std::string& device) {
  return fmt::format("  - match: {{layers: {}}}\n    replace: {{device: {}}}\n", layers, device);
}
std::string all_on(const std::string& device) {
  return fmt::format("  - match: {{name: \".\"}}\n    replace: {{device: \"{}\"}}\n", device);
}
// A plan for the machine or the hosts of a target file.
class PlanFor {
 public:
  PlanFor(const std::string& gguf, const std::string& target, const std::string& rules = "")
      : plan_(gguf, 1, rules, {"--target=" + dir_.write("target.yaml", target)}) {}
  const Plan& operator*() const { return plan_; }
  const Plan* operator->() const { return &plan_; }

 private:
  TempDir dir_;
  Plan plan_;
};

class GpuHosts : public ModelOfHosts {
 protected:
  EngineOptions options_for(std::shared_ptr<runtime::HostGroup> hosts, size_t log) {
    EngineOptions options = small(std::move(hosts));
    options.all_logits = true;
    options.precision = runtime::Precision::Exact;
    options.open_gpu = HostGpu::opener({.links = links_}, &logs_[log]);
    return options;
  }
  EngineOptions alone() { return options_for(nullptr, 2); }
  runtime::OpenGpu gpus_of_b() { return HostGpu::opener({.links = links_}, &logs_[1]); }

  void stop_forwards();
  void expect_same(const std::string& target, const std::string& rules, const Bits& expected) {
    const PlanFor plan(gguf_, target, rules);
    EXPECT_EQ(plan->used().size(), 2u);
    HostThreads hosts(plan->path(), 2, gpus_of_b());
    {
      const auto engine = open(plan->path(), options_for(hosts.first(), 0));
      ASSERT_TRUE(engine);
      EXPECT_EQ(talk(*engine), expected);
    }
    hosts.end();
    EXPECT_EQ(hosts.end_of(1), "");
  }

  std::array<HostGpuLog, 3> logs_;  // of a, b and one machine
  bool links_ = false;              // between the GPUs of a and b
};

TEST_P(GpuHosts, GiveTheBitsOfOneMachine) {
  const PlanFor alone_plan(gguf_, one_machine(2), layers_on("2..", "cuda:1") + all_on("cuda:0"));
  const auto one = open(alone_plan->path(), alone());
  ASSERT_TRUE(one);
  const Bits expected = talk(*one);
  for (const bool links : {false, true}) {
    SCOPED_TRACE(links);
    links_ = links;
    expect_same(two_hosts(1, 1), layers_on("2..", "b/cuda:0") + all_on("cuda:0"), expected);
    EXPECT_EQ(logs_[0].sent > 0, links);
    EXPECT_EQ(logs_[1].sent > 0, links);
  }
  EXPECT_GT(logs_[1].graph_launches, 0);
  EXPECT_GT(logs_[1].uploaded_bytes, 0u);
}

// The CPU of the second host computes some layers behind its GPU, and its second GPU others.
TEST_P(GpuHosts, GiveThemWithLayersOnCpusToo) {
  const PlanFor alone_plan(gguf_, one_machine(2),
                           layers_on("1", "cuda:1") + layers_on("2", "cuda:0") + all_on("cpu"));
  const auto one = open(alone_plan->path(), alone());
  ASSERT_TRUE(one);
  const Bits expected = talk(*one);
  links_ = true;  // some boundaries are between GPUs, others are not
  expect_same(two_hosts(0, 2),
              layers_on("1", "b/cuda:1") + layers_on("2", "b/cuda:0") + all_on("b/cpu"), expected);
  expect_same(two_hosts(1, 1),
              layers_on("1", "b/cuda:0") + layers_on("2", "a/cuda:0") + all_on("cpu"), expected);
}

TEST_P(GpuHosts, SaveAndRestoreATextOfAllGpus) {
  const PlanFor plan(gguf_, two_hosts(1, 1), layers_on("1..", "b/cuda:0") + all_on("cuda:0"));
  TempDir dir;
  const std::vector<int32_t> prompt = random_text(150, 3);
  const auto go_on = [&](Engine& engine, Sequence& sequence, int32_t id) {
    Bits bits;
    for (int i = 0; i < 4; ++i) {
      if (!compute(engine, {{&sequence, {&id, 1}, Want::Last}}, bits)) break;
      id = best_id(engine, 0);
    }
    return bits;
  };
  Bits expected;
  int32_t next = 0;
  {
    HostThreads hosts(plan->path(), 2, gpus_of_b());
    const auto engine = open(plan->path(), options_for(hosts.first(), 0));
    ASSERT_TRUE(engine);
    Sequence sequence = engine->new_sequence();
    Bits bits;
    const auto all = std::span<const int32_t>(prompt);
    ASSERT_TRUE(compute(*engine, {{&sequence, all.first(80), Want::None}}, bits));
    ASSERT_TRUE(compute(*engine, {{&sequence, all.subspan(80), Want::Last}}, bits));
    next = best_id(*engine, 0);
    runtime::SavedSession session;
    session.tokens = prompt;
    const Status saved = runtime::save_session(dir.path("s"), *engine, session, sequence);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    expected = go_on(*engine, sequence, next);
  }
  HostThreads hosts(plan->path(), 2, gpus_of_b());
  const auto engine = open(plan->path(), options_for(hosts.first(), 0));
  ASSERT_TRUE(engine);
  Sequence sequence = engine->new_sequence();
  const auto loaded = runtime::load_session(dir.path("s"), *engine, sequence);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(sequence.length(), 150);
  EXPECT_EQ(go_on(*engine, sequence, next), expected);
}

TEST_P(GpuHosts, GoOnAfterAPassThatWasStopped) {
  for (const bool links : {false, true}) {
    SCOPED_TRACE(links);
    links_ = links;
    stop_forwards();
  }
}

void GpuHosts::stop_forwards() {
  const PlanFor plan(gguf_, two_hosts(1, 1), layers_on("1..", "b/cuda:0") + all_on("cuda:0"));
  HostThreads hosts(plan->path(), 2, gpus_of_b());
  const auto engine = open(plan->path(), options_for(hosts.first(), 0));
  ASSERT_TRUE(engine);
  const Bits expected = talk(*engine);
  stop_prompts(*engine, 6, 0.15);
  if (HasFatalFailure()) return;
  EXPECT_EQ(talk(*engine), expected);
}

// Texts take turns: each pass begins before the one of another text is finished.
std::vector<Bits> talk_in_turn(Engine& engine, int texts) {
  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Bits> bits(static_cast<size_t>(texts));
  for (int i = 0; i < texts; ++i) {
    sequences.push_back(engine.new_sequence());
    tokens.push_back(random_text(30 + 11 * i, 70 + i));
  }
  std::deque<size_t> in_flight;
  const auto finish = [&] {
    const size_t text = in_flight.front();
    in_flight.pop_front();
    const auto done = engine.finish();
    ASSERT_TRUE(done.ok()) << done.error().message;
    add_bits(engine, bits[text]);
    tokens[text] = {best_id(engine, 0)};
  };
  for (int pass = 0; pass < 6; ++pass) {
    for (size_t text = 0; text < tokens.size(); ++text) {
      while (std::ssize(in_flight) == engine.most_forwards() ||
             std::ranges::find(in_flight, text) != in_flight.end()) {
        finish();
      }
      const BatchItem item{&sequences[text], tokens[text], Want::Last};
      const auto begun = engine.begin({&item, 1});
      EXPECT_TRUE(begun.ok() && *begun == Forward::Done);
      in_flight.push_back(text);
    }
  }
  while (!in_flight.empty()) finish();
  return bits;
}

TEST_P(GpuHosts, PassesInFlightGiveThemToo) {
  const PlanFor alone_plan(gguf_, one_machine(2), layers_on("1..", "cuda:1") + all_on("cuda:0"));
  const auto one = open(alone_plan->path(), alone());
  ASSERT_TRUE(one);
  const auto expected = talk_in_turn(*one, 3);
  ASSERT_FALSE(expected[2].empty());
  const PlanFor plan(gguf_, two_hosts(1, 1), layers_on("1..", "b/cuda:0") + all_on("cuda:0"));
  for (const bool links : {false, true}) {
    SCOPED_TRACE(links);
    links_ = links;
    HostThreads hosts(plan->path(), 2, gpus_of_b());
    const auto engine = open(plan->path(), options_for(hosts.first(), 0));
    ASSERT_TRUE(engine);
    EXPECT_EQ(engine->most_forwards(), 2);
    EXPECT_EQ(talk_in_turn(*engine, 3), expected);
    EXPECT_EQ(logs_[0].sent > 0, links);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuHosts, ::testing::ValuesIn(present_models()),
                         [](const auto& info) { return std::string(info.param); });

std::string llama() {
  return test_model_gguf("llama");
}

TEST(GpuHostPlans, LayersGoToTheGpusOfAllHostsByThemselves) {
  HostGpuLog log;
  const PlanFor plan(llama(), two_hosts(1, 1));
  EXPECT_EQ(plan->used().size(), 2u);
  for (const size_t host : {0, 1}) {
    const auto file = plan::PlanFile::open(plan->path(), {.host = host});
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(plan::plan_gpus(file->view()), std::vector<std::string>{"cuda:0"}) << host;
  }
  const Finished tables = run_program({ktx_run(), "inspect", plan->path()});
  EXPECT_THAT(tables.out, HasSubstr("a/cuda:0"));
  EXPECT_THAT(tables.out, HasSubstr("b/cuda:0"));
  const Finished json = run_program({ktx_run(), "inspect", plan->path(), "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"gpus\""));
}

TEST(GpuHostPlans, AGpuThatAHostLacksIsNamed) {
  HostGpuLog log;
  const PlanFor plan(llama(), two_hosts(1, 1));
  HostThreads hosts(plan->path(), 2, [](int) -> Result<std::unique_ptr<Gpu>> {
    return Error{"the driver shows no GPU"};
  });
  EngineOptions options = small(hosts.first());
  options.open_gpu = HostGpu::opener({}, &log);
  const auto engine = Engine::open(plan->path(), options);
  options.hosts.reset();
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("host b (rank 1): "));
  EXPECT_THAT(engine.error().message, HasSubstr("cuda:0: the driver shows no GPU"));
}

// Links that cannot be made are left out, or are the reason why a run that wants them ends.
TEST(GpuHostPlans, LinksThatAreNotThereAreLeftOut) {
  const PlanFor plan(llama(), two_hosts(1, 1));
  for (const bool refused : {false, true}) {
    for (const auto links : {runtime::GpuLinks::Auto, runtime::GpuLinks::On}) {
      std::array<HostGpuLog, 2> logs;
      const HostGpuOptions of_b{.links = refused, .refuses_links = refused};
      HostThreads hosts(plan->path(), 2, HostGpu::opener(of_b, &logs[1]));
      EngineOptions options = small(hosts.first());
      options.gpu_links = links;
      options.open_gpu = HostGpu::opener({.links = true}, &logs[0]);
      const auto engine = Engine::open(plan->path(), options);
      options.hosts.reset();
      const std::string why = refused ? "host b (rank 1): this link is refused"
                                      : "host b (rank 1) has no NCCL for its GPU";
      ASSERT_EQ(engine.ok(), links == runtime::GpuLinks::Auto);
      if (!engine.ok()) {
        EXPECT_THAT(engine.error().message, HasSubstr(why));
        continue;
      }
      EXPECT_THAT((*engine)->notes(), ::testing::Contains(HasSubstr(why)));
      Sequence sequence = (*engine)->new_sequence();
      const std::vector<int32_t> prompt = random_text(20, 5);
      const BatchItem item{&sequence, prompt, Want::Last};
      EXPECT_EQ((*engine)->forward({&item, 1}).take(), Forward::Done);
      EXPECT_EQ(logs[0].sent, 0);
    }
  }
}

// A host that is lost while the first one waits for its GPU.
TEST(GpuHostPlans, AHostThatIsGoneEndsLinksToo) {
  const PlanFor plan(llama(), two_hosts(1, 1));
  runtime::HostTimes times;
  times.sign_of_life = 0.05;
  times.silence = 1.5;
  std::array<HostGpuLog, 2> logs;
  HostThreads hosts({plan->path()}, 2, times, 0, HostGpu::opener({.links = true}, &logs[1]));
  EngineOptions options = small(hosts.first());
  options.open_gpu = HostGpu::opener({.links = true}, &logs[0]);
  auto engine = open(plan->path(), options);
  options.hosts.reset();
  ASSERT_TRUE(engine);
  std::string error;
  {
    Sequence sequence = engine->new_sequence();
    const std::vector<int32_t> prompt = random_text(20, 5);
    const BatchItem first{&sequence, prompt, Want::Last};
    EXPECT_EQ(engine->forward({&first, 1}).take(), Forward::Done);
    hosts.cut(1);
    for (int i = 0; i < 20 && error.empty(); ++i) {
      const BatchItem item{&sequence, prompt, Want::Last};
      const auto done = engine->forward({&item, 1});
      if (!done) error = done.error().message;
    }
  }
  EXPECT_GT(logs[0].sent, 0);
  EXPECT_THAT(error, HasSubstr("host b (rank 1) has given no sign of life"));
  engine.reset();
  hosts.end();
}

TEST(GpuHostPlans, TheLargestContextFitsTheGpusOfAllHosts) {
  const PlanFor plan(llama(), two_hosts(1, 1));
  HostGpuLog log;
  const auto largest = [&](uint64_t bytes_of_b) {
    HostThreads hosts(plan->path(), 2, HostGpu::opener({.memory_bytes = bytes_of_b}, &log));
    EngineOptions options = small(hosts.first());
    options.ctx.reset();
    options.largest_ctx = true;
    options.max_batch = 64;
    options.open_gpu = HostGpu::opener({.memory_bytes = uint64_t{4} << 30}, &log);
    const auto engine = Engine::open(plan->path(), options);
    options.hosts.reset();
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? (*engine)->ctx() : 0;
  };
  EXPECT_LT(largest(uint64_t{600} << 20), largest(uint64_t{4} << 30));
}

TEST(GpuHostRules, DevicesThatAreNotThereAreMistakes) {
  TempDir dir;
  const std::string target = "--target=" + dir.write("hosts.yaml", two_hosts(0, 2));
  const auto check = [&](const std::string& device) {
    const std::string rules = "version: 1\nrules:\n" + layers_on("0", device);
    return run_program({ktx_compile(), "--check", dir.write("r.yaml", rules), llama(), target});
  };
  EXPECT_EQ(check("b/cuda:1").status, 0);
  const Finished none = check("a/cuda:0");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err + none.out,
              HasSubstr("device a/cuda:0 does not exist: host a has no GPU in the target"));
  const Finished more = check("b/cuda:2");
  EXPECT_EQ(more.status, 1);
  EXPECT_THAT(
      more.err + more.out,
      HasSubstr("device b/cuda:2 does not exist: host b has 2 GPUs (b/cuda:0 to b/cuda:1)"));
}

TEST(GpuHostRules, ReportsShowTheGpusOfHosts) {
  TempDir dir;
  const std::string target = "--target=" + dir.write("hosts.yaml", two_hosts(1, 1));
  const Finished estimate = run_program({ktx_compile(), "--check", "--estimate", llama(), target});
  EXPECT_EQ(estimate.status, 0) << estimate.err;
  EXPECT_THAT(estimate.out, HasSubstr("\nb/cuda:0 "));
  const Finished explained = run_program(
      {ktx_compile(), "--check", "--explain", "model.layers.2.self_attn", llama(), target});
  EXPECT_THAT(explained.out, HasSubstr("b/cuda:0"));
}

}  // namespace
}  // namespace ktx::testing
