// Whether an operator has a form for its device, and fits the modules that it would replace.
#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/rules/rule_keys.h"

namespace ktx::passes::rule_checks {
namespace {

using ir::Kind;
using ir::Role;
using rules::DeviceSpec;
using rules::Replaces;
using rules::Rule;

// Whether an operator that replaces this may stand for the module.
bool fits(Replaces replaces, const ir::Module& module) {
  switch (replaces) {
    case Replaces::Any:
      return true;
    case Replaces::Linear:
      return is_torch_linear(module);
    case Replaces::Experts:
      return module.role == Role::Experts;
    case Replaces::Moe:
      return ir::kind_of(module.role) == Kind::Moe;
    case Replaces::Gate:
      return module.role == Role::Router;
    case Replaces::Attention:
      return ir::kind_of(module.role) == Kind::Attention;
    case Replaces::Rotary:
      return ir::kind_of(module.role) == Kind::Rotary;
    case Replaces::Norm:
      return ir::kind_of(module.role) == Kind::Norm;
    case Replaces::Mlp:
      return ir::kind_of(module.role) == Kind::Mlp;
    case Replaces::Model:
      return module.role == Role::Model;
  }
  return true;
}

bool is_open(const Rule& rule) {
  const std::string& pattern = rule.match.name->text;
  return !pattern.ends_with('$') || !pattern.starts_with('^');
}

}  // namespace

void check_device(RuleCheck& c) {
  const rules::OpInfo* op = c.rule.replace.op_info;
  if (!op || !c.rule.replace.place) return;
  const DeviceSpec& place = *c.rule.replace.place;
  using DeviceKind = DeviceSpec::Kind;
  const bool on_gpu = place.kind == DeviceKind::Cuda || place.kind == DeviceKind::Spread;
  const bool ours = !c.rule.replace.kwarg("generate_op");
  if (op->device == rules::OpDevice::Gpu && place.kind == DeviceKind::Cpu) {
    const char* instead = ours                                ? "op: cpu"
                          : op->computes == Replaces::Experts ? "KExpertsCPU"
                                                              : "KLinearCPUInfer";
    c.diags()
        .error(c.rule.replace.op->loc, "D003",
               fmt::format("op {} has no CPU form, but the rule puts it on the CPU", op->name))
        .note(c.rule.replace.device->loc, "the device is given here")
        .help(fmt::format("write {}, or a cuda device", instead));
  } else if (op->device == rules::OpDevice::Cpu && on_gpu) {
    const char* instead = ours                                ? "op: marlin"
                          : op->computes == Replaces::Experts ? "KExpertsMarlin"
                                                              : "KLinearMarlin";
    c.diags()
        .error(c.rule.replace.op->loc, "D003",
               fmt::format("op {} runs on the CPU, but the rule puts it on {}", op->name,
                           rules::to_string(place)))
        .note(c.rule.replace.device->loc, "the device is given here")
        .help(fmt::format("write {}: cpu, or {}", ours ? "device" : "generate_device", instead));
  }
}

// The operator against the modules that it would replace.
void check_fit(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  const rules::OpInfo* op = c.rule.replace.op_info;
  if (info && op && op->computes != Replaces::Any && info->replaces != op->computes) {
    c.diags().error(
        c.rule.replace.op->loc, "O006",
        fmt::format("{} computes {}, but {} replaces {}", op->name, rules::name(op->computes),
                    info->short_name(), rules::name(info->replaces)));
    return;
  }
  const Replaces replaces = info ? info->replaces : op ? op->computes : Replaces::Any;
  std::vector<const ir::Module*> wrong;
  for (const ir::Module* module : c.won) {
    if (!fits(replaces, *module)) wrong.push_back(module);
  }
  if (wrong.empty()) return;
  const auto named = info ? info->short_name() : op->name;
  const bool some = wrong.size() < c.won.size();
  const bool open = c.rule.match.name && is_open(c.rule);
  std::string examples;
  for (size_t i = 0; i < std::min<size_t>(wrong.size(), 3); ++i) {
    examples += fmt::format("{}{} ({})", i ? ", " : "",
                            wrong[i]->path.empty() ? "the root" : wrong[i]->path,
                            rules::last_part(wrong[i]->class_name));
  }
  const std::string rest =
      wrong.size() > 3 ? fmt::format(" and {} more", wrong.size() - 3) : std::string();
  const bool too_much = some || open;
  const SourceLoc at = !too_much ? (info ? c.rule.replace.class_name->loc : c.rule.replace.op->loc)
                       : c.rule.match.name ? c.rule.match.name->loc
                                           : c.rule.loc;
  Diagnostic& diag = c.diags().error(at, too_much ? "R014" : "O006",
                                     fmt::format("{} replaces {}, but the rule also gives it {}{}",
                                                 named, rules::name(replaces), examples, rest));
  if (!some)
    diag.message =
        fmt::format("{} replaces {}, not {}{}", named, rules::name(replaces), examples, rest);
  if (!too_much) {
    diag.note(c.rule.loc, "the rule's modules are given here")
        .help("take an operator for these modules (docs/rules.md), or `class: default`");
  }
  if (open) {
    diag.help(
        "the pattern is searched anywhere in the path: begin it with `^` and end it with "
        "`$` so that it catches whole paths only");
  }
  if (replaces == Replaces::Linear && !c.rule.match.class_name) {
    diag.help("or add `class: torch.nn.Linear` to the match");
  }
}

}  // namespace ktx::passes::rule_checks
