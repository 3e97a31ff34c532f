// Explains why no module satisfies a rule, and suggests what was probably meant.
#pragma once

#include <string>
#include <vector>

#include "lib/passes/lint/further_layers.h"
#include "lib/passes/lint/rule_reporter.h"

namespace ktx::passes {

class DeadRules {
 public:
  explicit DeadRules(const RuleReporter& reporter)
      : reporter_(reporter), further_layers_(reporter.state()) {}

  void report(int index);

 private:
  void report_of_ours(const rules::Rule& rule, const rules::RuleOutcome& outcome);
  void suggest_class(const rules::Rule& rule, const rules::RuleOutcome& outcome, Diagnostic& diag);
  bool has_parts(const std::string& path) const;
  bool kind_is_absent(const rules::Rule& rule) const;
  std::vector<std::string> kinds_of_model() const;
  std::string nearest_path(const std::string& pattern);
  std::string path_of_last_part(std::string_view plain) const;

  const RuleReporter& reporter_;
  FurtherLayers further_layers_;
  std::vector<std::string> kinds_of_path_;  // "model.layers.*.mlp"
};

}  // namespace ktx::passes
