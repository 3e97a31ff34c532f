// The test model qwen3moe by its config alone, its routed experts on one device and everything
// else on another, placed for a machine.
#pragma once

#include <gtest/gtest.h>

#include "lib/arch/build_graph.h"
#include "lib/passes/pass.h"
#include "lib/passes/placement/stream_experts.h"
#include "lib/rules/rule.h"
#include "tests/support/paths.h"

namespace ktx::testing {

class PlacedModel {
 public:
  PlacedModel(target::Target target, const std::string& device, const std::string& experts) {
    config_ = input::HfConfig::read(source_dir() + "/tests/models/qwen3moe/config.json").take();
    state.modules = arch::build_graph(config_, diags_).take();
    state.config = &config_;
    state.diags = &diags_;
    state.target = std::move(target);
    state.check.target_given = true;
    const std::string rules = "- {match: {kind: experts}, replace: {device: \"" + experts +
                              "\"}, recursive: false}\n" +
                              "- {match: {name: embed_tokens}, replace: {device: cpu}}\n" +
                              "- {match: {name: \".\"}, replace: {device: \"" + device + "\"}}\n";
    rules::add_rules_text(state.rules, rules, "rules.yaml", diags_);
    passes::PassOptions options;
    options.stop_after = "place-devices";
    const Status status = passes::run_passes(state, options);
    EXPECT_TRUE(status) << status.error().message;
    state.prefer = {};  // what place-devices chose by itself
  }
  PlacedModel(const PlacedModel&) = delete;
  PlacedModel& operator=(const PlacedModel&) = delete;

  void choose_stream_tokens() {
    passes::Placement placement = passes::placement_of(state);
    passes::choose_stream_tokens(passes::PricedModel(state), placement);
    state.prefer.stream_tokens = placement.streams.tokens;
    state.prefer.joint_tokens = placement.streams.joint;
  }

  int layers() const { return state.modules.facts.layers; }

  passes::CompileState state;

 private:
  input::HfConfig config_;
  DiagSink diags_;
};

}  // namespace ktx::testing
