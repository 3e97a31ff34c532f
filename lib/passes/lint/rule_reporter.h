// Shared by the reports of check_rules: which model the class of a rule belongs to, and the
// severity of a rule that decides nothing.
//
// Severities: in a file of ktx, an error. In a file of KTransformers, whose defects are many
// and known, a warning, because KTransformers ignores such a rule: also where the class belongs
// to another model or is an operator, which it can import but never meets. A class that no
// model has ends KTransformers' load and is an error; so is each rule of a file for another
// model.
#pragma once

#include <set>
#include <string>

#include "lib/passes/pass.h"

namespace ktx::passes {

// To which model the class in a rule belongs; a rule without a class counts as ktx's own.
enum class Origin { Ours, Foreign, Nobodys };

class RuleReporter {
 public:
  explicit RuleReporter(CompileState& state);

  CompileState& state() const { return state_; }
  DiagSink& diags() const { return *state_.diags; }
  const rules::Rule& rule(int index) const {
    return state_.rules.rules[static_cast<size_t>(index)];
  }
  const rules::RuleOutcome& outcome(int index) const {
    return state_.matched.outcomes[static_cast<size_t>(index)];
  }
  // The model's family, and all classes of its modules, their aliases and bases.
  const std::string& family() const { return state_.modules.facts.family; }
  const std::set<std::string, std::less<>>& known_classes() const { return known_classes_; }

  Origin origin_of(const rules::Rule& rule) const;
  // Whether KTransformers reads on without a word when no module satisfies the rule.
  bool is_passed_over(const rules::Rule& rule) const;
  // A diagnostic at the rule, in the group of its file's verdicts.
  Diagnostic& report(const rules::Rule& rule, std::string code, std::string message) const;

 private:
  CompileState& state_;
  std::set<std::string, std::less<>> known_classes_;
};

}  // namespace ktx::passes
