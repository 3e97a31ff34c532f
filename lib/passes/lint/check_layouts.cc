// Checks that the weights a rule names can have the requested layout on their device.
// (`defaults` apply it only where possible.)
#include <fmt/format.h>

#include "lib/formats/layout.h"
#include "lib/passes/asked_layout.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/pass.h"

namespace ktx::passes {
namespace {

std::string obstacle_of(const ir::Module& module, Layout layout) {
  if (layout == Layout::Rows && module.role == ir::Role::Embedding) return "";
  std::string first;
  for (const ir::Param& param : module.params) {
    if (param.rows * param.matrices <= 1) continue;  // biases and norms stay as they are
    first = layout_obstacle(layout, module.decision.device, param.dtype, param.rows, param.cols,
                            param.matrices);
    if (!first.empty()) return first;
  }
  return first;
}

// The best layout is taken instead, as for modules without a rule.
void drop_where_not_had(CompileState& state, int rule, Layout layout) {
  for (ir::Module& module : state.modules.modules) {
    if (module.decision.rule != rule || obstacle_of(module, layout).empty()) continue;
    module.decision.layout.clear();
  }
}

void check_rule(CompileState& state, int index) {
  const rules::Rule& rule = state.rules.rules[static_cast<size_t>(index)];
  if (!rule.replace.layout) return;
  const std::optional<Layout> layout = layout_from_name(rule.replace.layout->text);
  if (!layout) return;  // a format to re-quantise to
  if (rule.replace.layout_of_defaults) return drop_where_not_had(state, index, *layout);
  std::string path, why;
  int64_t count = 0;
  for (const ir::Module* module : modules_of(state, index)) {
    const std::string obstacle = obstacle_of(*module, *layout);
    if (obstacle.empty()) continue;
    if (count++ == 0) path = module->path, why = obstacle;
  }
  if (count == 0) return;
  state.diags
      ->error(rule.replace.layout->loc, "Q006",
              fmt::format("layout {} cannot be had for {}: {}", rule.replace.layout->text,
                          and_more(path, count), why))
      .help("leave these modules out of the match, or the layout: then the best one is taken");
}

}  // namespace

Status check_layouts(CompileState& state) {
  for (size_t i = 0; i < state.rules.rules.size(); ++i) check_rule(state, static_cast<int>(i));
  return {};
}

}  // namespace ktx::passes
