// Checks that the replacements of rules fit the module, the model's config, the device, the
// weights, and the other rules.
//
// ktx computes every module with its own kernels, so much that breaks KTransformers is harmless
// here and reported as a note; with --dialect=ktransformers it is an error.
#include <fmt/format.h>

#include "lib/passes/lint/ktransformers_checks.h"
#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"

namespace ktx::passes {
namespace {

using rules::DeviceSpec;
using rules::Vendor;

// Hardware of other vendors: refused with a reason.
bool refused(RuleCheck& c) {
  Vendor vendor = Vendor::None;
  std::string what;
  SourceLoc loc = loc_of(c.rule);
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  if (info && info->vendor != Vendor::None) {
    vendor = info->vendor;
    what = fmt::format("class '{}'", info->short_name());
  } else if (c.rule.replace.op_info && c.rule.replace.op_info->vendor != Vendor::None) {
    vendor = c.rule.replace.op_info->vendor;
    what = fmt::format("op '{}'", c.rule.replace.op_info->name);
    loc = c.rule.replace.op->loc;
  } else if (c.rule.replace.place && c.rule.replace.place->kind == DeviceSpec::Kind::Foreign) {
    vendor = c.rule.replace.place->vendor;
    what = fmt::format("device '{}'", c.rule.replace.device->text);
    loc = c.rule.replace.device->loc;
  }
  if (vendor == Vendor::None || c.for_ktransformers()) return false;
  c.diags()
      .error(loc, "D001",
             fmt::format("{} is for {}; ktx compiles for CPUs and NVIDIA GPUs", what,
                         rules::name(vendor)))
      .help("take the CUDA version of this rule file")
      .in_group("vendor of " + c.file());
  return true;
}

}  // namespace

Status check_ops(CompileState& state) {
  using namespace rule_checks;
  constexpr void (*kChecks[])(RuleCheck&) = {
      check_device, check_fit,     check_expert_sets, check_slots,  check_deferred, check_config,
      check_rope,   check_routing, check_backend,     check_layout, check_weights,  check_kwargs,
      note_op};
  const bool for_ktransformers = state.check.dialect == rules::Dialect::KTransformers;
  if (for_ktransformers) check_form_of_files(state);
  std::set<std::string> said;
  for (size_t i = 0; i < state.rules.rules.size(); ++i) {
    RuleCheck c{state, state.rules.rules[i], modules_of(state, static_cast<int>(i)), said};
    if (for_ktransformers) check_own_words(state, c.rule);
    if (refused(c)) continue;
    for (const auto check : kChecks) check(c);
  }
  check_run_modes(state);
  return {};
}

}  // namespace ktx::passes
