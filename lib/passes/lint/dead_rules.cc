#include "lib/passes/lint/dead_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lib/passes/lint/rule_report.h"
#include "lib/rules/families.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"

namespace ktx::passes {

using rules::Rule;
using rules::RuleOutcome;

void DeadRules::report(int index) {
  const Rule& rule = reporter_.rule(index);
  const RuleOutcome& outcome = reporter_.outcome(index);
  const Origin origin = reporter_.origin_of(rule);
  if (origin == Origin::Ours) return report_of_ours(rule, outcome);
  const std::string& name = rule.match.class_name->text;
  std::string reason;
  if (origin == Origin::Foreign) {
    const auto families = rules::families_of(name);
    reason = fmt::format("class '{}' belongs to {}, not to {}", printable(name),
                         fmt::join(families, " and "), reporter_.family());
  } else if (rules::find_operator(name) || rules::find_op(rules::last_part(name))) {
    reason = fmt::format(
        "'{}' is an operator, and rules match the classes that a model has "
        "before any is replaced",
        printable(name));
  } else {
    reason = fmt::format("no model has a class '{}'", printable(name));
  }
  Diagnostic& diag = reporter_.report(rule, "R002", "dead rule: " + reason);
  suggest_class(rule, outcome, diag);
  if (reporter_.state().rules.file_of(rule).names_ktransformers && reporter_.is_passed_over(rule)) {
    diag.note({}, "KTransformers passes over the rule without a word");
  }
}

void DeadRules::suggest_class(const Rule& rule, const RuleOutcome& outcome, Diagnostic& diag) {
  const rules::Located& name = *rule.match.class_name;
  std::string meant = outcome.class_found;
  if (meant.empty()) {
    const std::vector<std::string> names(reporter_.known_classes().begin(),
                                         reporter_.known_classes().end());
    meant = nearest_name(name.text, names);
  }
  if (outcome.without_class > 0) {
    diag.note(name.loc, fmt::format("without its class the rule would match {}; {} is {}",
                                    count_of(outcome.without_class, "module"), outcome.path_found,
                                    outcome.class_found));
  }
  if (outcome.without_class == 0) diag.note(name.loc, "the class is given here");
  if (meant.empty()) return;
  const bool same_name = rules::last_part(meant) == rules::last_part(name.text);
  const bool near = same_name || outcome.without_class == 0;
  if (!near) return;
  diag.help(fmt::format("did you mean '{}'?", meant));
  const bool quoted = name.loc.length == static_cast<int>(name.text.size()) + 2;
  diag.fix(name.loc, quoted ? fmt::format("\"{}\"", meant) : meant);
}

void DeadRules::report_of_ours(const Rule& rule, const RuleOutcome& outcome) {
  Diagnostic& diag =
      reporter_.report(rule, "R001", "dead rule: no module of the model satisfies it");
  if (outcome.without_class > 0) {
    diag.note(rule.match.name->loc, fmt::format("the pattern alone matches {}; {} is {}",
                                                count_of(outcome.without_class, "module"),
                                                outcome.path_found, outcome.class_found));
    if (rule.match.name->text.ends_with('$') && has_parts(outcome.path_found)) {
      diag.help(fmt::format("end the pattern with `\\..*$` if what lies below {} is meant",
                            outcome.path_found));
    }
    return;
  }
  if (rule.match.kind_text && kind_is_absent(rule)) {
    diag.note(rule.match.kind_text->loc,
              fmt::format("{} has no module of kind {}; it has {}", reporter_.family(),
                          printable(rule.match.kind_text->text), join(kinds_of_model(), ", ")));
  } else if (!rule.match.name) {
    if (rule.match.class_name) {
      diag.note(rule.match.class_name->loc,
                fmt::format("{} has no module of class '{}' with this config", reporter_.family(),
                            printable(rule.match.class_name->text)));
    }
  } else if (const int layer = further_layers_.match(rule); layer >= 0) {
    diag.note(rule.match.name->loc,
              fmt::format("it would match layer {}, but the model has {} (0 to {})", layer,
                          reporter_.state().modules.facts.layers,
                          reporter_.state().modules.facts.layers - 1));
  } else if (const std::string path = nearest_path(rule.match.name->text); !path.empty()) {
    diag.note(rule.match.name->loc, fmt::format("the nearest modules are {}", path));
  }
  if (!reporter_.state().rules.file_of(rule).names_ktransformers) {
    diag.help("write `optional: true` if that is meant");
  }
}

bool DeadRules::has_parts(const std::string& path) const {
  const std::string below = path + ".";
  return std::any_of(reporter_.state().modules.modules.begin(),
                     reporter_.state().modules.modules.end(),
                     [&](const ir::Module& module) { return module.path.starts_with(below); });
}

bool DeadRules::kind_is_absent(const Rule& rule) const {
  const auto fits = [&](ir::Role role) {
    return rule.match.kind ? ir::kind_of(role) == *rule.match.kind : role == *rule.match.role;
  };
  const auto& modules = reporter_.state().modules.modules;
  const auto& parts = reporter_.state().modules.expert_parts;
  return std::none_of(modules.begin(), modules.end(),
                      [&](const ir::Module& module) { return fits(module.role); }) &&
         std::none_of(parts.begin(), parts.end(),
                      [&](const ir::ExpertPart& part) { return fits(part.role); });
}

std::vector<std::string> DeadRules::kinds_of_model() const {
  std::set<ir::Kind> kinds;
  for (const ir::Module& module : reporter_.state().modules.modules)
    kinds.insert(ir::kind_of(module.role));
  std::vector<std::string> names;
  for (const ir::Kind kind : kinds) names.emplace_back(ir::name(kind));
  return names;
}

// The module path that looks most like the pattern, layer numbers blotted out.
std::string DeadRules::nearest_path(const std::string& pattern) {
  std::string plain;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = std::string_view(pattern).substr(i);
    if (rest.starts_with("\\.")) {
      plain += '.';
      ++i;
    } else if (rest.starts_with(".*") || rest.starts_with("\\d+")) {
      plain += '*';
      i += rest[0] == '.' ? 1 : 2;
    } else if (rest[0] != '^' && rest[0] != '$') {
      plain += rest[0];
    }
  }
  if (kinds_of_path_.empty()) {
    std::set<std::string> paths;
    for (const ir::Module& module : reporter_.state().modules.modules) {
      if (!module.path.empty()) paths.insert(without_layers(module.path));
    }
    kinds_of_path_.assign(paths.begin(), paths.end());
  }
  const std::string nearest = nearest_name(plain, kinds_of_path_);
  return nearest.empty() ? path_of_last_part(plain) : nearest;
}

// Other versions of a model's code call what lies above a module otherwise
// ("block_sparse_moe.experts", "model.language_model.layers.*.mlp"): the first path with the last
// part of `plain`.
std::string DeadRules::path_of_last_part(std::string_view plain) const {
  const std::string_view part = rules::last_part(plain);
  const auto found = std::find_if(
      kinds_of_path_.begin(), kinds_of_path_.end(),
      [&](const std::string& path) { return !part.empty() && rules::last_part(path) == part; });
  return found == kinds_of_path_.end() ? "" : *found;
}

}  // namespace ktx::passes
