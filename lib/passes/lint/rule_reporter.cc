#include "lib/passes/lint/rule_reporter.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/rules/families.h"

namespace ktx::passes {

RuleReporter::RuleReporter(CompileState& state) : state_(state) {
  const auto add = [&](const auto& classes) {
    known_classes_.insert(classes.class_name);
    known_classes_.insert(classes.aliases.begin(), classes.aliases.end());
    known_classes_.insert(classes.bases.begin(), classes.bases.end());
  };
  for (const ir::Module& module : state.modules.modules) add(module);
  for (const ir::ExpertPart& part : state.modules.expert_parts) add(part);
}

Origin RuleReporter::origin_of(const rules::Rule& rule) const {
  if (!rule.match.class_name) return Origin::Ours;
  const std::string& name = rule.match.class_name->text;
  if (rules::is_torch_class(name) || known_classes_.contains(name)) return Origin::Ours;
  const auto families = rules::families_of(name);
  if (families.empty()) return Origin::Nobodys;
  const bool ours = std::find(families.begin(), families.end(), family()) != families.end();
  return ours ? Origin::Ours : Origin::Foreign;
}

bool RuleReporter::is_passed_over(const rules::Rule& rule) const {
  const Origin origin = origin_of(rule);
  if (origin == Origin::Ours) return true;
  if (state_.wrong_model) return false;
  const std::string& name = rule.match.class_name->text;
  return origin == Origin::Foreign || rules::find_operator(name) ||
         rules::find_op(rules::last_part(name));
}

Diagnostic& RuleReporter::report(const rules::Rule& rule, std::string code,
                                 std::string message) const {
  const rules::RuleFile& file = state_.rules.file_of(rule);
  const bool lenient = file.names_ktransformers && is_passed_over(rule);
  return state_.diags
      ->report(lenient ? Severity::Warning : Severity::Error, rule.loc, std::move(code),
               fmt::format("{} [rule {}]", message, rule.number))
      .in_group(fmt::format("verdict of {}", file.path));
}

}  // namespace ktx::passes
