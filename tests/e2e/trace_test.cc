// Traces of passes (lib/runtime/engine/forward_trace.h), of a plan for the CPU and of ones with
// GPUs, which are in host memory here (tests/support/host_gpu.h), and `bench --trace`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/plan/plan_program.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/engine/forward_trace.h"
#include "lib/runtime/engine/plan_runner.h"
#include "tests/support/host_gpu.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/ktx-run/trace_file.h"

namespace ktx::testing {
namespace {

using runtime::ForwardTrace;
using runtime::TraceLane;
using runtime::TraceSpan;
using ::testing::HasSubstr;

// A plan of qwen3moe with its experts on the CPU, on a GPU in host memory.
class Traced {
 public:
  explicit Traced(const std::string& prefer) {
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"),
                                      source_dir() + "/rules/moe-experts-on-cpu.yaml",
                                      "--target=" + source_dir() + "/targets/h200.yaml",
                                      "--prefer=" + prefer, "-o", dir_.path("m.ktxplan")});
    EXPECT_EQ(run.status, 0) << run.err;
    runtime::EngineOptions options;
    options.threads = 2;
    options.open_gpu = HostGpu::opener({}, &log_);
    auto opened = runtime::Engine::open(dir_.path("m.ktxplan"), options);
    EXPECT_TRUE(opened) << opened.error().message;
    if (opened) engine = opened.take();
  }

  // A pass of a prompt, then passes of a token; the last logits.
  std::vector<float> run(int64_t prompt, int tokens) {
    runtime::Sequence sequence = engine->new_sequence();
    std::vector<int32_t> ids(static_cast<size_t>(prompt));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(20 + i % 50);
    for (int i = 0; i <= tokens; ++i) {
      const std::span<const int32_t> fed =
          i == 0 ? std::span<const int32_t>(ids) : std::span<const int32_t>(ids).first(1);
      const runtime::BatchItem item{&sequence, fed, runtime::Want::Last};
      EXPECT_TRUE(engine->forward({&item, 1}));
    }
    const std::span<const float> logits = engine->logits(0);
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<runtime::Engine> engine;

 private:
  TempDir dir_;
  HostGpuLog log_;
};

const TraceLane* find(const ForwardTrace& trace, const std::string& device,
                      const std::string& name) {
  for (const TraceLane& lane : trace.lanes()) {
    if (lane.device == device && lane.name == name) return &lane;
  }
  return nullptr;
}

std::vector<TraceSpan> spans(const ForwardTrace& trace, const std::string& device,
                             const std::string& name) {
  const TraceLane* lane = find(trace, device, name);
  EXPECT_TRUE(lane) << device << " " << name;
  return lane ? lane->spans : std::vector<TraceSpan>();
}

int count(const std::vector<TraceSpan>& spans, const std::string& what) {
  return static_cast<int>(std::ranges::count_if(
      spans, [&](const TraceSpan& span) { return span.what && span.what == what; }));
}

// Spans of a lane follow one another, within the passes.
void expect_in_order(const ForwardTrace& trace) {
  constexpr double kNear = 1e-4;  // the two clocks
  const std::vector<TraceSpan> passes = spans(trace, "cpu", "passes");
  for (const TraceLane& lane : trace.lanes()) {
    double last = 0;
    for (const TraceSpan& span : lane.spans) {
      EXPECT_LE(span.begin, span.end) << lane.name;
      EXPECT_GE(span.begin, last) << lane.name;
      last = span.end;
      EXPECT_TRUE(std::ranges::any_of(passes,
                                      [&](const TraceSpan& pass) {
                                        return pass.begin <= span.begin + kNear &&
                                               span.end <= pass.end + kNear;
                                      }))
          << lane.device << " " << lane.name;
    }
  }
}

TEST(Traces, ShowPartsStepsGraphsAndWaits) {
  Traced model("stream-experts=no");
  ASSERT_TRUE(model.engine);
  const std::vector<float> plain = model.run(9, 3);
  ForwardTrace trace;
  model.engine->runner().set_trace(&trace);
  EXPECT_EQ(model.run(9, 3), plain) << "a trace changes nothing";
  model.engine->runner().set_trace(nullptr);
  expect_in_order(trace);

  const std::vector<TraceSpan> passes = spans(trace, "cpu", "passes");
  ASSERT_EQ(passes.size(), 4u);
  EXPECT_EQ(passes[0].tokens, 9);
  EXPECT_EQ(passes[3].tokens, 1);
  const plan::PlanView& plan = model.engine->plan();
  std::set<uint32_t> gpu_steps, cpu_steps;
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const bool transfer = plan.steps[i].op == static_cast<uint32_t>(StepOp::Transfer);
    if (!transfer) (plan.string(plan.steps[i].device) == "cpu" ? cpu_steps : gpu_steps).insert(i);
  }
  const auto& parts = plan.program->parts;
  const auto of_cpu = std::ranges::count(parts, program::Part::Kind::Cpu, &program::Part::kind);
  const std::vector<TraceSpan> host = spans(trace, "cpu", "host");
  EXPECT_GT(of_cpu, plan.facts.layers - 1);
  EXPECT_EQ(count(host, "compute"), 4 * of_cpu);
  EXPECT_GT(count(host, "wait"), 4);

  // The prompt's launches by step, all of them; tokens by graph.
  const std::vector<TraceSpan> queue = spans(trace, "cuda:0", "queue");
  uint32_t launched = 0;
  for (const TraceSpan& span : queue) {
    if (span.end <= passes[0].end && !span.what && gpu_steps.contains(span.step)) {
      launched += span.steps;
    }
  }
  EXPECT_EQ(launched, gpu_steps.size());
  EXPECT_GT(count(queue, "graph"), 0);
  EXPECT_EQ(count(queue, "graph") % 3, 0) << "of three tokens";
  EXPECT_TRUE(spans(trace, "cuda:0", "copies").empty());

  // Each step of the CPU was worked at in every pass.
  for (const TraceSpan& pass : passes) {
    std::set<uint32_t> seen;
    for (const char* thread : {"thread 0", "thread 1"}) {
      for (const TraceSpan& span : spans(trace, "cpu", thread)) {
        if (span.begin >= pass.begin && span.end <= pass.end) seen.insert(span.step);
      }
    }
    EXPECT_EQ(seen, cpu_steps);
  }

  size_t before = 0, after = 0;
  for (const TraceLane& lane : trace.lanes()) before += lane.spans.size();
  model.run(9, 3);
  for (const TraceLane& lane : trace.lanes()) after += lane.spans.size();
  EXPECT_EQ(before, after) << "it is off";
}

TEST(Traces, ShowTheCopiesOfStreamedExperts) {
  Traced model("stream-experts=4");
  ASSERT_TRUE(model.engine);
  ForwardTrace trace;
  model.engine->runner().set_trace(&trace);
  model.run(9, 1);
  model.engine->runner().set_trace(nullptr);
  expect_in_order(trace);
  const std::vector<TraceSpan> copies = spans(trace, "cuda:0", "copies");
  const auto layers = static_cast<size_t>(model.engine->plan().facts.layers);
  EXPECT_EQ(copies.size(), layers) << "of the prompt alone";
  for (const TraceSpan& copy : copies) EXPECT_GT(copy.bytes, 0u);
  EXPECT_EQ(count(spans(trace, "cuda:0", "queue"), "experts to tiles"), static_cast<int>(layers));
  EXPECT_THAT(tools::trace_shares(trace, 0), HasSubstr("copies of experts"));
}

// What a reader of the format needs.
void expect_events(const nlohmann::json& file) {
  ASSERT_TRUE(file.contains("traceEvents"));
  std::set<std::pair<int, int>> named, used;
  for (const nlohmann::json& event : file["traceEvents"]) {
    ASSERT_TRUE(event["name"].is_string());
    const std::string kind = event["ph"];
    const int pid = event["pid"];
    if (kind == "M" && event["name"] == "thread_name") named.emplace(pid, event["tid"].get<int>());
    if (kind != "X") continue;
    used.emplace(pid, event["tid"].get<int>());
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
  }
  for (const auto& lane : used) EXPECT_TRUE(named.contains(lane));
}

TEST(Traces, AreFilesForPerfettoWithTheNamesOfModules) {
  Traced model("stream-experts=no");
  ASSERT_TRUE(model.engine);
  ForwardTrace trace;
  model.engine->runner().set_trace(&trace);
  model.run(5, 1);
  model.engine->runner().set_trace(nullptr);
  const std::string text = tools::trace_json(trace, model.engine->plan());
  EXPECT_TRUE(text.starts_with(tools::kTraceMagic));
  const nlohmann::json file = nlohmann::json::parse(text);
  expect_events(file);
  std::set<std::string> modules, names;
  for (const nlohmann::json& event : file["traceEvents"]) {
    names.insert(event["name"]);
    if (event.contains("args") && event["args"].contains("module")) {
      modules.insert(event["args"]["module"]);
    }
  }
  EXPECT_TRUE(modules.contains("model.layers.1.mlp.experts"));
  EXPECT_TRUE(names.contains("pass of 5 tokens"));
  EXPECT_TRUE(names.contains("pass of 1 token"));
  EXPECT_THAT(tools::trace_shares(trace, 0), HasSubstr("both"));
  EXPECT_EQ(tools::trace_shares(trace, trace.now()), "nothing ran");
}

// The lanes that a reader sees: the CPU's threads and its hand-overs, the GPU's queue, the copies.
TEST(Traces, OfAPlanWithAGpuHaveALaneForEach) {
  Traced model("stream-experts=4");
  ASSERT_TRUE(model.engine);
  ForwardTrace trace;
  model.engine->runner().set_trace(&trace);
  model.run(5, 1);
  model.engine->runner().set_trace(nullptr);
  const auto file = nlohmann::json::parse(tools::trace_json(trace, model.engine->plan()));
  std::map<int, std::string> devices;
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<std::string, int> used;
  for (const nlohmann::json& event : file["traceEvents"]) {
    const int pid = event["pid"];
    if (event["name"] == "process_name") devices[pid] = event["args"]["name"];
    if (event["name"] == "thread_name") lanes[{pid, event["tid"]}] = event["args"]["name"];
  }
  for (const nlohmann::json& event : file["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int pid = event["pid"];
    ++used[devices[pid] + " " + lanes[{pid, event["tid"]}]];
  }
  for (const char* lane : {"cpu passes", "cpu host", "cuda:0 queue", "cuda:0 copies"}) {
    EXPECT_GT(used[lane], 0) << lane;
  }
  // On a busy machine one thread may take all items of so small steps.
  EXPECT_GT(used["cpu thread 0"] + used["cpu thread 1"], 0);
  EXPECT_EQ(used["cuda:0 copies"], model.engine->plan().facts.layers);
}

TEST(Traces, AreWrittenByBench) {
  TempDir dir;
  const std::string plan = dir.path("m.ktxplan"), file = dir.path("trace.json");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"),
                         source_dir() + "/rules/cpu-only.yaml", "-o", plan})
                .status,
            0);
  const Finished run = run_program(
      {ktx_run(), "bench", plan, "-p", "8", "-n", "20", "-r", "1", "-t", "2", "--trace", file});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("trace of pp8: cpu "));
  EXPECT_THAT(run.err, HasSubstr("trace of tg20: cpu "));
  const nlohmann::json json = nlohmann::json::parse(read_file(file));
  expect_events(json);
  int passes = 0;
  for (const nlohmann::json& event : json["traceEvents"]) {
    passes += event["name"].get<std::string>().starts_with("pass of ") ? 1 : 0;
  }
  EXPECT_EQ(passes, 9) << "the prompt, and eight tokens of twenty";

  // It replaces a trace, and nothing else.
  EXPECT_EQ(
      run_program({ktx_run(), "bench", plan, "-p", "8", "-n", "0", "-r", "1", "--trace", file})
          .status,
      0);
  const Finished refused =
      run_program({ktx_run(), "bench", plan, "-p", "8", "-n", "0", "-r", "1", "--trace", plan});
  EXPECT_EQ(refused.status, 1);
  const Finished two = run_program({ktx_run(), "bench", plan, "-t", "1,2", "--trace", file});
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.err, HasSubstr("give one with -t"));
}

}  // namespace
}  // namespace ktx::testing
