// `--ctx max` (choose_context.cc): the largest context that fits, on machines of many sizes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/arch/build_graph.h"
#include "lib/passes/cost/estimate.h"
#include "lib/passes/pass.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/rules/rule.h"
#include "lib/rules/target_yaml.h"
#include "tests/support/diag_text.h"
#include "tests/support/paths.h"

namespace ktx::passes {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class Fitted {
 public:
  Fitted(const std::string& config, const target::Target& target, const std::string& rules = "",
         int64_t kv_budget = 0, int64_t ctx = -1) {
    config_ = input::HfConfig::read(source_dir() + "/tests/configs/" + config + ".json").take();
    state.modules = arch::build_graph(config_, diags).take();
    state.config = &config_;
    state.diags = &diags;
    state.target = target;
    state.check.only = state.check.target_given = true;
    state.check.shape.ctx = ctx > 0 ? ctx : 4096;
    state.check.largest_ctx = ctx < 0;
    state.check.shape.step_tokens = chunk_tokens(state.modules, 0);
    state.check.kv_budget_bytes = kv_budget;
    if (!rules.empty()) rules::add_rules_text(state.rules, rules, "rules.yaml", diags);
    PassOptions options;
    options.stop_after = "place-devices";
    status = run_passes(state, options);
  }
  int64_t ctx() const { return state.check.shape.ctx; }
  bool fits() const {
    const auto estimate = memory_of(state);
    return std::ranges::none_of(estimate->devices, [](const auto& use) { return use.too_small(); });
  }
  int layers_on_gpus() const {
    return static_cast<int>(std::ranges::count_if(state.modules.modules, [](const auto& module) {
      return ir::kind_of(module.role) == ir::Kind::Attention && module.decision.device != "cpu";
    }));
  }

  CompileState state;
  DiagSink diags;
  Status status;

 private:
  input::HfConfig config_;
};

target::Target machine(uint64_t gpu_gib, uint64_t cpu_gib) {
  DiagSink diags;
  target::Target target = rules::read_target(source_dir() + "/targets/rtx-4090.yaml", diags).take();
  target.gpus[0].memory_bytes = gpu_gib * kGiB;
  if (gpu_gib == 0) target.gpus.clear();
  target.cpu.memory_bytes = cpu_gib * kGiB;
  return target;
}

class LargestContexts : public ::testing::TestWithParam<const char*> {};

TEST_P(LargestContexts, FitAndNoLargerOneDoes) {
  for (const uint64_t gpu : {0, 8, 24}) {
    for (const uint64_t cpu : {24, 64}) {
      const Fitted fitted(GetParam(), machine(gpu, cpu));
      const int64_t model_ctx = fitted.state.modules.facts.context_length;
      EXPECT_TRUE(fitted.ctx() % 64 == 0 || fitted.ctx() == model_ctx) << fitted.ctx();
      EXPECT_LE(fitted.ctx(), model_ctx);
      if (fitted.fits() && fitted.ctx() < model_ctx) {
        const Fitted more(GetParam(), machine(gpu, cpu), "", 0, fitted.ctx() + 64);
        EXPECT_FALSE(more.fits()) << gpu << " and " << cpu << " GiB";
      }
      if (!fitted.fits()) {
        EXPECT_EQ(fitted.ctx(), 64) << "no context fits";
      }
    }
  }
}

// With experts on disk there is room for longer ones.
TEST_P(LargestContexts, AreNotSmallerWithMoreMemory) {
  const auto grow = [](uint64_t gpu, uint64_t cpu, int64_t& before) {
    const Fitted fitted(GetParam(), machine(gpu, cpu));
    if (!fitted.fits()) return;
    EXPECT_GE(fitted.ctx(), before) << gpu << " and " << cpu << " GiB";
    before = fitted.ctx();
  };
  for (const uint64_t cpu : {16, 64}) {
    int64_t before = 0;
    for (const uint64_t gpu : {4, 6, 8, 12, 16, 24, 48}) grow(gpu, cpu, before);
  }
  for (const uint64_t gpu : {8, 24}) {
    int64_t before = 0;
    for (const uint64_t cpu : {8, 12, 24, 64, 256}) grow(gpu, cpu, before);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LargestContexts,
                         ::testing::Values("Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "gemma-3-27b",
                                           "gpt-oss-20b", "DeepSeek-V2-Lite"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(LargestContext, KeepsWhatRulesSay) {
  const std::string rules = "- {match: {name: \".\"}, replace: {device: cuda:0}}\n";
  const Fitted held("Llama-3.1-8B-Instruct", machine(8, 64), rules);
  EXPECT_EQ(held.layers_on_gpus(), 32);
  EXPECT_TRUE(held.fits());
  const Fitted free("Llama-3.1-8B-Instruct", machine(8, 64));
  EXPECT_LT(held.ctx(), free.ctx());
}

TEST(LargestContext, SaysWhatItCosts) {
  const Fitted fitted("Llama-3.1-8B-Instruct", machine(8, 64));
  const std::string text = render_diagnostics(fitted.diags, 0, false, true);
  EXPECT_THAT(text, HasSubstr("--ctx max: 131072 tokens fit, all that the model was made for"));
  EXPECT_THAT(text, HasSubstr("more layers would be on GPUs"));
  // What the note says is true.
  const size_t at = text.find("with ");
  ASSERT_NE(at, text.npos);
  const int64_t kept = std::stoll(text.substr(at + 5));
  const Fitted shorter("Llama-3.1-8B-Instruct", machine(8, 64), "", 0, kept);
  const Fitted usual("Llama-3.1-8B-Instruct", machine(8, 64), "", 0, 4096);
  EXPECT_EQ(shorter.layers_on_gpus(), usual.layers_on_gpus());
  EXPECT_LT(fitted.layers_on_gpus(), usual.layers_on_gpus());
}

TEST(LargestContext, IsBoundByTheBudgetOfTheCache) {
  const Fitted fitted("Llama-3.1-8B-Instruct", machine(24, 64), "", int64_t{1} << 30);
  EXPECT_EQ(fitted.ctx(), 8192) << "1 GiB at 128 KiB a token";
}

TEST(LargestContext, NeedsAMachine) {
  target::Target unknown;
  const Fitted fitted("Llama-3.1-8B-Instruct", unknown);
  EXPECT_FALSE(fitted.status.ok());
  EXPECT_THAT(render_diagnostics(fitted.diags, 0, false, true),
              HasSubstr("--ctx max: the memory of the machine is not known"));
}

}  // namespace
}  // namespace ktx::passes
