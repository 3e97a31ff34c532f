#include <fmt/format.h>

#include <algorithm>

#include "lib/ir/module_graph.h"
#include "lib/passes/pass.h"
#include "lib/program/verify_launches.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::passes {

#define KTX_PASS(function, name, sentence, needs, gives) Status function(CompileState&);
#include "lib/passes/passes.def"
#undef KTX_PASS

namespace {

constexpr Pass kPasses[] = {
#define KTX_PASS(function, name, sentence, needs, gives) \
  {name, sentence, Fact::needs, Fact::gives, function},
#include "lib/passes/passes.def"
#undef KTX_PASS
};

Status check_pass_name(const std::string& name, bool all_allowed) {
  if (all_allowed && (name.empty() || name == "all")) return {};
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return {};
    names.emplace_back(pass.name);
  }
  return Error{fmt::format("no pass '{}'{}; passes are {}", printable(name),
                           did_you_mean(name, names), join(names, ", "))};
}

// Parts, groups and launches, as far as there are any.
Status verify_work(const program::Program& program) {
  if (program.parts.empty()) return {};
  KTX_TRY(program::verify_parts(program));
  KTX_TRY(program::verify_groups(program));
  return program.launches.empty() ? Status() : program::verify_launches(program);
}

// The verifier of the level the state has reached; its findings name the pass.
Status verify_state(const CompileState& state, std::string_view pass) {
  DiagSink found;
  // A step graph that was read from text has no modules.
  const bool steps_alone = state.fact >= Fact::Lowered && state.modules.modules.empty();
  if (!steps_alone) ir::verify(state.modules, found);
  if (state.fact >= Fact::Lowered) {
    program::verify(state.program, found, state.fact >= Fact::Transferred);
  }
  if (found.errors() == 0 && state.fact >= Fact::Cut) {
    const Status launches = verify_work(state.program);
    if (!launches) found.error({}, "", launches.error().message);
  }
  if (found.errors() == 0) return {};
  return Error{fmt::format("{}: {} ({} findings)",
                           pass.empty() ? "the graph is broken"
                                        : fmt::format("internal error: pass '{}' left a broken "
                                                      "graph",
                                                      pass),
                           found.all().front().message, found.errors())};
}

// The passes that the options ask for, in their order.
std::vector<const Pass*> passes_of(const PassOptions& options) {
  std::vector<const Pass*> passes;
  if (options.only) {
    for (const std::string& name : *options.only) passes.push_back(find_pass(name));
  } else {
    for (const Pass& pass : kPasses) passes.push_back(&pass);
  }
  return passes;
}

// "match-rules", "match-rules or check-rules": the passes that give a fact.
std::string givers(Fact fact) {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) {
    if (pass.gives == fact && pass.needs != fact) names.emplace_back(pass.name);
  }
  return names.empty() ? "no pass" : join(names, " or ");
}

}  // namespace

Status check_pass_names(const PassOptions& options) {
  if (!options.stop_after.empty()) KTX_TRY(check_pass_name(options.stop_after, false));
  for (const std::string& name : options.print_after) KTX_TRY(check_pass_name(name, true));
  for (const std::string& name : options.only.value_or(std::vector<std::string>())) {
    KTX_TRY(check_pass_name(name, false));
  }
  return {};
}

std::span<const Pass> all_passes() {
  return kPasses;
}

const Pass* find_pass(std::string_view name) {
  const auto* const it = std::ranges::find(kPasses, name, &Pass::name);
  return it == std::end(kPasses) ? nullptr : it;
}

std::string_view name(Fact fact) {
  constexpr std::string_view kNames[] = {
#define KTX_FACT(id, name) name,
#include "lib/passes/facts.def"
#undef KTX_FACT
  };
  return kNames[static_cast<size_t>(fact)];
}

std::string print_state(const CompileState& state) {
  return state.fact >= Fact::Lowered ? program::print(state.program) : ir::print(state.modules);
}

Status run_passes(CompileState& state, const PassOptions& options) {
  KTX_TRY(check_pass_names(options));
  // A graph that came as text may be broken by its author, one that was built by us only.
  if (options.verify_each) KTX_TRY(verify_state(state, options.only ? "" : "build-graph"));
  for (const Pass* next : passes_of(options)) {
    const Pass& pass = *next;
    // The user's mistakes are looked for up to the placement, all of them, and
    // stop the walk before anything is built on them.
    if (state.diags->errors() > 0 && pass.gives >= Fact::Lowered) break;
    if (state.fact != pass.needs) {
      return Error{
          fmt::format("pass '{}' needs a graph that is {}, and this one is {}; {} makes it "
                      "so",
                      pass.name, name(pass.needs), name(state.fact), givers(pass.needs))};
    }
    const Timer timer;
    KTX_TRY(pass.run(state));
    state.fact = pass.gives;
    if (options.timing) options.timing(pass.name, timer.seconds());
    if (options.verify_each) KTX_TRY(verify_state(state, pass.name));
    const bool wanted =
        std::any_of(options.print_after.begin(), options.print_after.end(),
                    [&](const std::string& name) { return name == "all" || name == pass.name; });
    if (wanted && options.print) options.print(pass.name, print_state(state));
    if (pass.name == options.stop_after) break;
  }
  if (state.diags->errors() > 0) return Error{fmt::format("{} errors", state.diags->errors())};
  return {};
}

}  // namespace ktx::passes
