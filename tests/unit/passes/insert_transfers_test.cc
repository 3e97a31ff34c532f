// Placement on GPUs and the transfers that follow from it, over the test models' and
// twelve real configs' module graphs. No GPU needed: the target says there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "lib/arch/build_graph.h"
#include "lib/passes/pass.h"
#include "lib/rules/rule.h"
#include "tests/support/paths.h"

namespace ktx::passes {
namespace {

namespace fs = std::filesystem;

target::GpuTarget gpu_of(uint64_t bytes) {
  return {.name = "test", .compute_major = 9, .compute_minor = 0, .memory_bytes = bytes};
}

class Compiled {
 public:
  Compiled(const fs::path& config_path, const std::vector<std::string>& rules,
           std::vector<target::GpuTarget> gpus) {
    config_ = input::HfConfig::read(config_path).take();
    state.modules = arch::build_graph(config_, diags_).take();
    state.config = &config_;
    state.diags = &diags_;
    state.target.gpus = std::move(gpus);
    state.target.cpu.memory_bytes = uint64_t{1} << 42;
    state.check.target_given = true;
    for (const std::string& rule : rules) {
      EXPECT_TRUE(rules::add_rules(state.rules, source_dir() + "/rules/" + rule, diags_));
    }
    const Status status = run_passes(state, {});
    EXPECT_TRUE(status) << status.error().message;
  }
  const std::vector<program::Step>& steps() const { return state.program.steps; }

  CompileState state;

 private:
  input::HfConfig config_;
  DiagSink diags_;
};

const uint64_t kPlenty = uint64_t{1} << 42;

fs::path model(const char* name) {
  return fs::path(source_dir()) / "tests/models" / name / "config.json";
}

std::map<std::string, int> count_transfers(const Compiled& compiled) {
  const std::vector<std::string> on = program::value_devices(compiled.state.program);
  std::map<std::string, int> counts;
  for (const program::Step& step : compiled.steps()) {
    if (step.op == StepOp::Transfer) ++counts[on[step.inputs[0].value] + " to " + step.device];
  }
  return counts;
}

TEST(InsertTransfers, LeavesAPlanOfOneDeviceAlone) {
  const Compiled compiled(model("qwen3moe"), {"cpu-only.yaml"}, {gpu_of(kPlenty)});
  EXPECT_TRUE(count_transfers(compiled).empty());
}

TEST(InsertTransfers, APlanOfOneGpuSendsTheLogitsOnly) {
  const Compiled compiled(model("qwen3moe"), {"all-gpu.yaml"}, {gpu_of(kPlenty)});
  EXPECT_EQ(count_transfers(compiled), (std::map<std::string, int>{{"cuda:0 to cpu", 1}}));
  EXPECT_EQ(compiled.steps().back().op, StepOp::Transfer);
  EXPECT_EQ(compiled.steps().back().device, "cpu");
}

TEST(InsertTransfers, ExpertsOnTheCpuAreSentThreeValuesAndSendOneBack) {
  const Compiled compiled(model("qwen3moe"), {"moe-experts-on-cpu.yaml"}, {gpu_of(kPlenty)});
  const int layers = compiled.state.modules.facts.layers;
  // Each layer: input, expert numbers, expert weights; then the logits. The embedding
  // is on the CPU too.
  EXPECT_EQ(count_transfers(compiled),
            (std::map<std::string, int>{{"cuda:0 to cpu", 3 * layers + 1},
                                        {"cpu to cuda:0", layers + 1}}));
}

// Between the transfers that submit the experts' inputs and the first CPU step stand the
// steps of the shared experts: the GPU computes them meanwhile.
TEST(InsertTransfers, SharedExpertsAreQueuedBeforeTheCpuBegins) {
  const Compiled compiled(model("qwen2moe"), {"moe-experts-on-cpu.yaml"}, {gpu_of(kPlenty)});
  const auto& steps = compiled.steps();
  int between = 0, layers = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].op != StepOp::GroupExperts) continue;
    ++layers;
    size_t at = i;
    while (at > 0 && steps[at - 1].device != "cpu") --at, ++between;
    EXPECT_EQ(steps[at - 1].op, StepOp::Transfer) << "step " << at - 1;
  }
  EXPECT_EQ(layers, compiled.state.modules.facts.layers);
  EXPECT_EQ(between, 6 * layers);  // gate, up, glu, down, score, scale
}

TEST(InsertTransfers, CpuStepsOfALayerStandTogether) {
  const Compiled compiled(model("qwen3moe"), {"moe-experts-on-cpu.yaml"}, {gpu_of(kPlenty)});
  int runs = 0;
  bool before = false;
  for (const program::Step& step : compiled.steps()) {
    const bool cpu = step.device == "cpu" && step.op != StepOp::Transfer;
    runs += cpu && !before;
    before = cpu;
  }
  EXPECT_EQ(runs, compiled.state.modules.facts.layers + 1);  // and the embedding
}

TEST(InsertTransfers, LayersOnTwoGpusHandTheStreamOverOnce) {
  const Compiled compiled(model("llama"), {"spread-gpus.yaml"}, {gpu_of(kPlenty), gpu_of(kPlenty)});
  EXPECT_EQ(count_transfers(compiled),
            (std::map<std::string, int>{{"cuda:0 to cuda:1", 1}, {"cuda:1 to cpu", 1}}));
}

TEST(InsertTransfers, BuffersAreOfOneDevice) {
  const Compiled compiled(model("deepseek2"), {"moe-experts-on-cpu.yaml"}, {gpu_of(kPlenty)});
  const std::vector<std::string> on = program::value_devices(compiled.state.program);
  std::map<int32_t, std::set<std::string>> users;
  for (size_t i = 0; i < on.size(); ++i) {
    const int32_t buffer = compiled.state.program.values[i].buffer;
    if (buffer >= 0) users[buffer].insert(on[i]);
  }
  for (const auto& [buffer, devices] : users) EXPECT_EQ(devices.size(), 1u) << buffer;
}

// --- places without rules ----------------------------------------------------

std::map<std::string, int> count_places(const Compiled& compiled, ir::Role role) {
  std::map<std::string, int> counts;
  for (const ir::Module& module : compiled.state.modules.modules) {
    if (module.role == role) ++counts[module.decision.device];
  }
  return counts;
}

TEST(PlaceDevices, WithoutAGpuEverythingIsOnTheCpu) {
  const Compiled compiled(model("qwen3moe"), {}, {});
  for (const ir::Module& module : compiled.state.modules.modules) {
    EXPECT_EQ(module.decision.device, "cpu") << module.path;
  }
}

TEST(PlaceDevices, WhatFitsAGpuGoesThereWhole) {
  const Compiled compiled(model("qwen3moe"), {}, {gpu_of(kPlenty)});
  for (const ir::Module& module : compiled.state.modules.modules) {
    if (module.params.empty()) continue;
    EXPECT_EQ(module.decision.device, "cuda:0") << module.path;
  }
}

TEST(PlaceDevices, WhereItDoesNotFitRoutedExpertsStayOnTheCpu) {
  const fs::path config = fs::path(source_dir()) / "tests/configs/Qwen3-30B-A3B.json";
  const Compiled compiled(config, {}, {gpu_of(uint64_t{6} << 30)});
  const auto experts = count_places(compiled, ir::Role::Experts);
  EXPECT_GT(experts.at("cpu"), 24);
  EXPECT_EQ(count_places(compiled, ir::Role::Attention),
            (std::map<std::string, int>{{"cuda:0", 48}}));
}

}  // namespace
}  // namespace ktx::passes
