#include "tools/ktx-compile/graph_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "lib/passes/pass.h"
#include "lib/support/env.h"
#include "lib/support/mapped_file.h"
#include "tools/ktx-compile/compile_inputs.h"
#include "tools/ktx-compile/list_launches.h"

namespace ktx::tools {
namespace {

// The text from its header on, which comments may precede.
std::string_view from_header(std::string_view text) {
  while (text.starts_with('#') || text.starts_with('\n')) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  return text;
}

// The fact that a step graph has reached, when no pass follows.
passes::Fact fact_of(const program::Program& graph) {
  if (!graph.launches.empty()) return passes::Fact::Launched;
  if (!graph.groups.empty()) return passes::Fact::Fused;
  return graph.parts.empty() ? passes::Fact::Lowered : passes::Fact::Cut;
}

// Fills state.modules or state.program, and how far the graph is.
Status read_graph(const Options& options, passes::CompileState& state) {
  const std::string text = KTX_TRY(read_text_file(options.model));
  const passes::Pass* first =
      options.passes.empty() ? nullptr : passes::find_pass(options.passes.front());
  if (!options.rules.empty() && (!first || first->name != "match-rules")) {
    return Error{fmt::format("{}: rules take effect in match-rules; begin --passes with it",
                             options.rules.front())};
  }
  const bool steps = from_header(text).starts_with("step-ir ");
  if (first && steps != (first->needs >= passes::Fact::Lowered)) {
    return Error{fmt::format("{}: a {} graph, but pass '{}' works on {} graphs", options.model,
                             steps ? "step" : "module", first->name, steps ? "module" : "step")};
  }
  if (steps) {
    state.program = KTX_TRY(program::parse(text, options.model));
    state.fact = first ? first->needs : fact_of(state.program);
  } else {
    state.modules = KTX_TRY(ir::parse(text, options.model));
    // Numbers of rules mean those of the files that the text was made with.
    for (ir::Module& module : state.modules.modules) module.decision.rule = -1;
    state.fact = first ? first->needs : passes::Fact::Built;
  }
  return {};
}

Status run(const Options& options, passes::CompileState& state) {
  KTX_TRY(read_graph(options, state));
  read_rule_files(options.rules, state);
  read_target_file(options, state);
  if (!state.check.target_given) state.target = {};
  // Nothing of this machine: the same text gives the same text everywhere.
  state.check.only = true;
  state.bf16_inputs = options.bf16_inputs;
  state.prefer = options.prefer;
  set_run_shape(options, state);
  read_expert_profiles(options, state);
  if (state.diags->errors() > 0) return {};
  passes::PassOptions pass_options;
  pass_options.only = options.passes;
  return passes::run_passes(state, pass_options);
}

}  // namespace

int run_graph_text(const Options& options) {
  DiagSink sink;
  sink.set_policy(policy_of(options));
  passes::CompileState state;
  state.diags = &sink;
  const Status done = run(options, state);
  const bool color = isatty(STDERR_FILENO) && !env("NO_COLOR");
  fmt::print(stderr, "{}", render_diagnostics(sink, 0, color, !options.quiet));
  if (!done && sink.errors() == 0) {
    fmt::print(stderr, "ktx-compile: error: {}\n", done.error().message);
  }
  if (!done || sink.errors() > 0) return 1;
  const bool modules = options.emit == "module-ir";
  if (options.emit == "launches" && state.fact < passes::Fact::Launched) {
    fmt::print(stderr, "ktx-compile: error: {}: no launches yet; add choose-launches to --passes\n",
               options.model);
    return 1;
  }
  if (options.emit == "step-ir" && state.fact < passes::Fact::Lowered) {
    fmt::print(stderr,
               "ktx-compile: error: {}: no step graph yet; add lower-to-steps to --passes\n",
               options.model);
    return 1;
  }
  if (modules && state.modules.modules.empty()) {
    fmt::print(stderr, "ktx-compile: error: {}: a step graph has no module graph to print\n",
               options.model);
    return 1;
  }
  if (options.emit == "launches") {
    fmt::print("{}", list_launches(state.program, state.target));
    return 0;
  }
  fmt::print("{}", modules ? ir::print(state.modules) : passes::print_state(state));
  return 0;
}

}  // namespace ktx::tools
