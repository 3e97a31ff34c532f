// All passes over all families: the real dimensions of ../shared/configs and the
// bundled test models, from their configs alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lib/arch/build_graph.h"
#include "lib/passes/pass.h"
#include "tests/support/diag_text.h"
#include "tests/support/paths.h"

namespace ktx::passes {
namespace {

namespace fs = std::filesystem;
using ktx::testing::text_of;

std::vector<fs::path> configs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(source_dir()) / "tests/models")) {
    if (fs::exists(entry.path() / "config.json")) paths.push_back(entry.path() / "config.json");
  }
  const fs::path shared = fs::path(shared_dir()) / "configs";
  if (fs::exists(shared)) {
    for (const auto& entry : fs::directory_iterator(shared)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class EveryConfig : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    Result<input::HfConfig> config = input::HfConfig::read(GetParam());
    ASSERT_TRUE(config) << config.error().message;
    Result<ir::ModuleGraph> graph = arch::build_graph(*config, diags_);
    ASSERT_TRUE(graph) << graph.error().message;
    state_.modules = graph.take();
    state_.diags = &diags_;
  }
  void run() {
    const Status status = run_passes(state_, {});
    ASSERT_TRUE(status) << status.error().message << "\n" << text_of(diags_);
  }

  DiagSink diags_;
  CompileState state_;
};

TEST_P(EveryConfig, LowersToASoundStepGraphThatPrintsAndParses) {
  run();
  const std::string text = program::print(state_.program);
  Result<program::Program> parsed = program::parse(text, "printed");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(program::print(*parsed), text);
  // Each layer keeps keys and values, or has a delta net.
  const auto nets =
      std::ranges::count(state_.modules.modules, ir::Role::DeltaNet, &ir::Module::role);
  EXPECT_EQ(state_.program.kv_slots.size() + static_cast<size_t>(nets),
            static_cast<size_t>(state_.modules.facts.layers));
  EXPECT_EQ(state_.program.values[state_.program.steps.back().outputs[0].value].width,
            state_.modules.facts.vocab);
}

// A buffer holds one living value at a time: between the first and last step that
// name a value, no step may write another value of its buffer.
TEST_P(EveryConfig, ValuesThatLiveAtOnceShareNoBuffer) {
  run();
  const program::Program& graph = state_.program;
  std::vector<int> last(graph.values.size(), -1);
  for (int i = 0; i < static_cast<int>(graph.steps.size()); ++i) {
    for (const auto* views : {&graph.steps[i].inputs, &graph.steps[i].outputs}) {
      for (const program::View& view : *views) {
        if (view.value != program::kAbsent) last[view.value] = i;
      }
    }
  }
  std::vector<program::ValueId> owner(graph.buffers.size(), program::kAbsent);
  for (int i = 0; i < static_cast<int>(graph.steps.size()); ++i) {
    for (const program::View& view : graph.steps[i].inputs) {
      if (view.value == program::kAbsent) continue;
      ASSERT_EQ(owner[graph.values[view.value].buffer], view.value) << "step " << i;
    }
    for (const program::View& view : graph.steps[i].outputs) {
      const int32_t buffer = graph.values[view.value].buffer;
      const program::ValueId before = owner[buffer];
      ASSERT_TRUE(before == program::kAbsent || before == view.value || last[before] < i)
          << "step " << i << " overwrites '" << graph.values[before].name << "'";
      owner[buffer] = view.value;
    }
  }
  // All layers run in the same few buffers.
  EXPECT_LT(graph.buffers.size(), 40u);
}

TEST_P(EveryConfig, Int8InputsHoldWhatTheirProductReads) {
  run();
  // Walk the steps: an int8 value is current while its source was not written since.
  std::map<program::ValueId, program::ValueId> source_of;
  for (const program::Step& step : state_.program.steps) {
    if (step.op == StepOp::Quantize) {
      source_of[step.outputs[0].value] = step.inputs[0].value;
      continue;
    }
    if (step.inputs.size() > 1 && step.inputs[1].value != program::kAbsent &&
        state_.program.values[step.inputs[1].value].type == ValueType::Q8) {
      ASSERT_TRUE(source_of.count(step.inputs[1].value));
      EXPECT_EQ(source_of[step.inputs[1].value], step.inputs[0].value) << step.module;
    }
    for (const program::View& view : step.outputs) {
      std::erase_if(source_of, [&](const auto& item) { return item.second == view.value; });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Configs, EveryConfig, ::testing::ValuesIn(configs()),
                         [](const auto& info) {
                           const fs::path path = info.param;
                           std::string name = path.filename() == "config.json"
                                                  ? path.parent_path().filename().string()
                                                  : path.stem().string();
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace ktx::passes
