#include "tools/ktx-compile/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/formats/shape_text.h"
#include "lib/ir/expert_numbers.h"
#include "lib/passes/asked_layout.h"
#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/cost/module_bytes.h"
#include "lib/passes/cost/target_devices.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/lower/prefill_device.h"
#include "lib/rules/device_name.h"
#include "lib/support/strings.h"
#include "lib/target/gpu_generation.h"
#include "lib/target/host_device.h"
#include "tools/ktx-compile/list_launches.h"

namespace ktx::tools {
namespace {

using rules::Rule;

// The stored module of a path; of a single expert's part, the stack it lies in.
const ir::Module* find_module(const ir::ModuleGraph& graph, std::string path) {
  if (const ir::Module* module = graph.find(path)) return module;
  while (true) {
    const size_t dot = path.rfind('.');
    if (dot == std::string::npos) return nullptr;
    path.resize(dot);
    const ir::Module* above = graph.find(path);
    if (above && above->role == ir::Role::Experts) return above;
  }
}

std::string near_paths(const ir::ModuleGraph& graph, const std::string& path) {
  std::vector<std::string> paths;
  for (const ir::Module& module : graph.modules) paths.push_back(module.path);
  return did_you_mean(path, paths);
}

std::string what_it_says(const Rule& rule) {
  std::vector<std::string> words;
  if (rule.replace.class_name) {
    words.emplace_back(rules::last_part(rule.replace.class_name->text));
  }
  if (rule.replace.place) words.push_back(rules::to_string(*rule.replace.place));
  if (rule.replace.op) words.push_back(rule.replace.op->text);
  if (rule.replace.deferred) words.push_back(rule.replace.deferred->text + " deferred");
  return words.empty() ? "default" : printable(join(words, ", "), 120);
}

// Why a rule that has something in common with the module does not decide it.
std::string why_lost(const Rule& rule, const ir::Module& module) {
  if (rules::matches(rule, module)) return "matches as well, but the first match wins";
  Rule without_class = rule;
  without_class.match.class_name.reset();
  const bool had_name = rule.match.name_regex.has_value();
  if (rule.match.class_name && had_name && rules::matches(without_class, module)) {
    return fmt::format("its pattern matches, but the class is not '{}'",
                       printable(rule.match.class_name->text));
  }
  return "";
}

// The form that weights take in the plan.
std::string layout_of(const ir::Module& module) {
  const ir::Decision& decision = module.decision;
  if (decision.op == "dense") return "dense, 16 bits";
  const auto fits = [&](Layout layout) {
    return std::all_of(module.params.begin(), module.params.end(), [&](const ir::Param& p) {
      return p.rows * p.matrices <= 1 ||
             passes::layout_obstacle(layout, decision.device, p.dtype, p.rows, p.cols, p.matrices)
                 .empty();
    });
  };
  const auto asked = passes::asked_layout(decision);
  const bool rows = asked == Layout::Rows || module.role == ir::Role::Embedding;
  if (!rows && ir::kind_of(module.role) != ir::Kind::Norm) {
    if (fits(Layout::Marlin)) return "marlin: tiles of the GGUF's own codes";
    if (fits(Layout::Panel16)) return "panel16: 16 rows side by side";
  }
  return "rows, as in the GGUF";
}

// The generation of a GPU of the target; 0: not known, or no GPU.
int generation_of(const passes::CompileState& state, const std::string& device) {
  const target::GpuTarget* const gpu = passes::gpu_of(state.target, target::device_id(device));
  return gpu != nullptr ? target::generation(*gpu) : 0;
}

// The kernels of the module's own steps: on the CPU the families; on a GPU the launches, those of
// the target's card where it is known, each with the sentence of its row.
std::string kernels_of(const passes::CompileState& state, const program::Program& graph,
                       const std::string& path) {
  std::string out;
  for (size_t i = 0; i < graph.steps.size(); ++i) {
    const program::Step& step = graph.steps[i];
    if (step.module != path || step.op == StepOp::Transfer) continue;
    const std::string_view op = info(step.op).name;
    if (target::is_cpu(step.device)) {
      const auto or_none = [](const std::string& name) { return name.empty() ? "-" : name; };
      out += fmt::format("  kernel  {}: {} (exact: {})\n", op, or_none(step.kernels[1]),
                         or_none(step.kernels[0]));
      continue;
    }
    const int sm = generation_of(state, step.device);
    for (const program::Launch& launch : graph.launches) {
      const auto& all = launch.steps;
      if (std::find(all.begin(), all.end(), static_cast<int32_t>(i)) == all.end()) continue;
      if (sm > 0 && (sm < launch.least_sm || sm > launch.most_sm)) continue;
      const auto kernel = kernels::gpu_kernel_from_name(launch.kernel);
      out +=
          fmt::format("  kernel  {}: {}\n          {}\n",
                      launch.op ? fmt::format("{} in {}", op, name(*launch.op)) : std::string(op),
                      launch_line(launch), kernels::info(*kernel).sentence);
    }
  }
  return out;
}

// How a GPU gets the module's experts in long prompts, and what else was tried.
std::string streams_of_module(const passes::CompileState& state, const ir::Module& module) {
  const int64_t least = state.prefer.stream_tokens;
  if (least == 0 || module.role != ir::Role::Experts ||
      passes::experts_on(passes::place_of(module), {}) == 0)
    return "";
  if (!passes::can_be_streamed(state.rules, module)) return "";
  const std::string_view slots = plan::name(state.stream_slots.value_or(plan::StreamSlots::Layer));
  return fmt::format(
             "  streams {} at a time to the GPU of its layer, in passes of {} tokens and more\n",
             slots, least) +
         passes::trials_table(state.stream_trials);
}

}  // namespace

Result<std::string> explain_module(const passes::CompileState& state, const program::Program* steps,
                                   const std::string& path) {
  const ir::Module* module = find_module(state.modules, path);
  if (!module) {
    return Error{fmt::format("--explain {}: no module of this path{}", printable(path),
                             near_paths(state.modules, path))};
  }
  const auto id = static_cast<size_t>(module - state.modules.modules.data());
  std::string out = fmt::format("{}\n  class   {}\n",
                                module->path.empty() ? "(root)" : module->path, module->class_name);
  if (module->path != path) {
    out += fmt::format("  note    {} lies in this stack of experts\n", printable(path));
  }
  const int winner = state.matched.rule_of_module[id];
  if (winner >= 0) {
    const Rule& rule = state.rules.rules[static_cast<size_t>(winner)];
    out += fmt::format("  rule    {} (rule {}): {}\n", state.rules.label(rule), rule.number,
                       what_it_says(rule));
    if (rule.note) out += fmt::format("  note    {}\n", printable(rule.note->text, 400));
  } else if (winner == rules::kNotVisited) {
    const int above = module->decision.rule;
    out += above >= 0
               ? fmt::format("  rule    none is tried below `recursive: false` of {}\n",
                             state.rules.label(state.rules.rules[static_cast<size_t>(above)]))
               : "  rule    none is tried below `recursive: false`\n";
  } else {
    out += "  rule    none: the compiler's own placement\n";
  }
  int shown = 0;
  for (size_t i = 0; i < state.rules.rules.size(); ++i) {
    if (static_cast<int>(i) == winner) continue;
    const Rule& rule = state.rules.rules[i];
    const std::string why = why_lost(rule, *module);
    if (why.empty() || ++shown > 8) continue;
    out += fmt::format("  lost    {} (rule {}): {}\n", state.rules.label(rule), rule.number, why);
  }
  if (shown > 8) out += fmt::format("  lost    and {} more rules\n", shown - 8);
  const std::vector<std::string>& team = module->decision.team;
  out += team.empty() ? fmt::format("  device  {}\n", module->decision.device)
                      : fmt::format("  device  {}, together\n", join(team, ", "));
  for (const ir::ExpertSet& set : module->decision.expert_sets) {
    out += fmt::format("          {} {} on {}, with {:.1f} % of the activations: {}\n", set.count,
                       set.guests ? "slots for its experts" : "of its experts", set.device,
                       100 * set.use, ir::expert_numbers_text(set.experts));
  }
  if (const int32_t deferred =
          passes::deferred_steps(state.modules, *module, passes::place_of(*module))) {
    out += fmt::format("          {} of a token's {} experts are added a layer later (deferred)\n",
                       deferred, std::get<ir::ExpertsInfo>(module->info).top_k);
  }
  out += fmt::format("  op      {}\n", module->decision.op.empty() ? "auto" : module->decision.op);
  for (const ir::Param& param : module->params) {
    out += fmt::format("  param   {}: {} {}\n", param.name, name(param.dtype),
                       shape_text(param.cols, param.rows, param.matrices));
  }
  if (!module->params.empty()) {
    out += fmt::format("  layout  {}\n", layout_of(*module));
    out += fmt::format("  bytes   {} in the GGUF, {} in the plan\n",
                       human_bytes(passes::source_bytes(*module)),
                       human_bytes(passes::placed_bytes(*module)));
  }
  out += streams_of_module(state, *module);
  if (steps) out += kernels_of(state, *steps, module->path);
  return out;
}

}  // namespace ktx::tools
