// A graph as text is an input: passes give the same result for the output of --emit as for the
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_program.h"
#include "tests/support/test_models.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kToSteps =
    "--passes=match-rules,check-rules,check-ops,requantize,place-devices,check-devices,"
    "check-layouts,check-reach,check-hand-overs,check-memory,lower-to-steps";
constexpr const char* kFromSteps =
    "--passes=insert-transfers,fold-residuals,quantize-activations,choose-kernels,group-steps,"
    "plan-memory";

class GraphText : public ::testing::Test {
 protected:
  Finished compile(std::vector<std::string> args) const {
    args.insert(args.begin(), ktx_compile());
    return run_program(args);
  }
  std::string emit(const std::string& model, const std::string& what, const std::string& stop) {
    const Finished run =
        compile({"-q", model_gguf(model), "--emit=" + what, "--stop-after=" + stop});
    EXPECT_EQ(run.status, 0) << run.err;
    return dir_.write(model + "." + stop + ".ktxir", run.out);
  }
  void refused(const std::vector<std::string>& args, int status, const std::string& message) {
    const Finished run = compile(args);
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(run.out, "");
  }
  TempDir dir_;
};

TEST_F(GraphText, OfEveryModelGivesTheStepsThatTheModelGives) {
  for (const std::string model : present_models()) {
    const std::string modules = emit(model, "module-ir", "match-rules");
    EXPECT_EQ(compile({modules}).out, read_file(modules)) << model;
    const Finished lowered = compile({modules, kToSteps});
    ASSERT_EQ(lowered.status, 0) << lowered.err;
    EXPECT_EQ(lowered.out, read_file(emit(model, "step-ir", "lower-to-steps"))) << model;
    const std::string steps = dir_.write("steps.ktxir", "# lowered\n\n" + lowered.out);
    const Finished planned = compile({steps, kFromSteps});
    EXPECT_EQ(planned.out, read_file(emit(model, "step-ir", "plan-memory"))) << planned.err;
  }
}

TEST_F(GraphText, WhatCannotBeSaysWhatCan) {
  const std::string modules = emit("llama", "module-ir", "match-rules");
  const std::string steps = emit("llama", "step-ir", "lower-to-steps");
  const std::string rules =
      dir_.write("r.yaml", "- match: {kind: mlp}\n  replace: {device: cpu}\n");
  refused({modules, "--passes=plan-memory"}, 1, "a module graph, but pass 'plan-memory' works on");
  refused({steps, "--passes=match-rules"}, 1, "a step graph, but pass 'match-rules' works on");
  refused({steps, "--passes=plan-memory,choose-kernels"}, 1,
          "needs a graph that is quantized, and this one is planned; quantize-activations makes");
  refused({steps, "--passes=plan-memry"}, 2, "did you mean 'plan-memory'?");
  refused({modules, rules}, 1, "rules take effect in match-rules; begin --passes with it");
  refused({modules, rules, "--passes=place-devices"}, 1, "begin --passes with it");
  refused({modules, "--emit=step-ir"}, 1, "no step graph yet; add lower-to-steps to --passes");
  refused({steps, "--emit=module-ir"}, 1, "a step graph has no module graph to print");
  refused({modules, "-o", dir_.path("p.ktxplan")}, 2, "a graph as text, of which only passes");
  refused({model_gguf("llama"), "--passes=plan-memory"}, 2, "--passes takes a graph as text");
}

TEST_F(GraphText, BrokenTextIsAnErrorWithItsPlace) {
  std::string modules = read_file(emit("llama", "module-ir", "match-rules"));
  const std::string path = dir_.path("broken.ktxir");
  const auto with = [&](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    return dir_.write("broken.ktxir", text);
  };
  refused({with(modules, "hidden 256", "hidden 25x")}, 1, path + ":2: found '25x'");
  refused({with(modules, "in 256 out 256", "in 256 out 255")}, 1, "the graph is broken: module");
  const std::string steps = read_file(emit("llama", "step-ir", "lower-to-steps"));
  refused({with(steps, "constant=1,", "constant=")}, 1, "31 constant values, expected");
}

// Numbers of rules mean nothing without the files: they lead no pass astray.
TEST_F(GraphText, NumbersOfRulesAreDropped) {
  std::string text = read_file(emit("llama", "module-ir", "match-rules"));
  const std::string role = "  role q_proj layer 0\n";
  text.insert(text.find(role) + role.size(), "  decision device cpu layout Q8_0 rule 4711 lossy\n");
  const Finished run = compile({dir_.write("ruled.ktxir", text), "--passes=requantize"});
  EXPECT_THAT(run.out + run.err, ::testing::Not(HasSubstr("4711")));
  EXPECT_LT(run.status, 2);
}

}  // namespace
}  // namespace ktx::testing
