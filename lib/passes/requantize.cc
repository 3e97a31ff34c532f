// Gives weights the format to which a rule rounds them:
//
//   - match: {kind: experts}
//     replace: {device: cuda:0, layout: int4_g64, lossy: allow}
//
//   gate: Q4_K 768 x 2048   ->   Q4_0 768 x 2048
//
// All later passes see the new format; the rounding itself is done when weights are packed
// (pack_requantized.h). Matrices of linear layers and of experts only: routers, norms and
// embeddings stay as they are, and so does what has the format already.
#include <fmt/format.h>

#include "lib/formats/requantized_form.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/pass.h"

namespace ktx::passes {
namespace {

void requantize_module(const CompileState& state, ir::Module& module) {
  const ir::Decision& decision = module.decision;
  const RequantizedForm* form =
      decision.lossy_allowed ? find_requantized_form(decision.layout) : nullptr;
  if (!form) return;
  const bool taken = ir::kind_of(module.role) == ir::Kind::Linear ||
                     module.role == ir::Role::Experts || module.role == ir::Role::Head;
  if (!taken || module.role == ir::Role::Router) return;
  for (ir::Param& param : module.params) {
    const bool vectors = param.rows * param.matrices <= 1 || param.name.ends_with("bias");
    if (vectors || param.dtype == form->dtype) continue;
    if (param.cols % form->group == 0) {
      param.dtype = form->dtype;
      continue;
    }
    const SourceLoc loc =
        decision.rule < 0
            ? SourceLoc{}
            : state.rules.rules[static_cast<size_t>(decision.rule)].replace.layout->loc;
    state.diags
        ->warning(loc, "Q006",
                  fmt::format("{}: rows of {} are no whole groups of {}; '{}' keeps its format",
                              module.path, param.cols, form->group, param.name))
        .in_group("no whole groups");
  }
}

}  // namespace

Status requantize(CompileState& state) {
  for (ir::Module& module : state.modules.modules) requantize_module(state, module);
  return {};
}

}  // namespace ktx::passes
