// Checks that the rules fit the model and that each of them decides something.
//
// First the whole file: a file written for another model gets one error that says so, before
// all others. Then each rule that wins nothing:
//
//   dead         no module satisfies it          R001, R002 when its class is foreign
//   unreachable  only modules below a match with `recursive: false`      R003
//   shadowed     only modules that other rules take                      R003
//
// Rules that are `optional` may be any of these. For others rule_reporter.h sets the severity.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "lib/passes/lint/dead_rules.h"
#include "lib/passes/lint/shadowed_rules.h"
#include "lib/passes/lint/unruled_linears.h"
#include "lib/passes/pass.h"
#include "lib/rules/families.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

using rules::Rule;
using rules::RuleOutcome;
using rules::Verdict;

class RuleChecker {
 public:
  explicit RuleChecker(CompileState& state)
      : state_(state), diags_(*state.diags), reporter_(state), dead_rules_(reporter_) {}

  void run() {
    for (size_t file = 0; file < state_.rules.files.size(); ++file) {
      check_file(static_cast<int>(file));
    }
    for (int index : state_.matched.too_slow) report_slow(index);
    // Files as given, rules in the order of their file.
    for (size_t file = 0; file < state_.rules.files.size(); ++file) {
      for (size_t i = 0; i < state_.rules.rules.size(); ++i) {
        if (state_.rules.rules[i].file != static_cast<int>(file)) continue;
        const bool slow = std::count(state_.matched.too_slow.begin(), state_.matched.too_slow.end(),
                                     static_cast<int>(i)) > 0;
        if (!slow) check_rule(static_cast<int>(i));
      }
    }
    report_partly_shadowed(reporter_);
    report_linears_without_rule(state_);
  }

 private:
  // Which family most of the file's class names belong to.
  void check_file(int file) {
    const std::string& ours = reporter_.family();
    std::map<std::string_view, int> votes;
    std::map<std::string_view, const Rule*> first;
    for (const Rule& rule : state_.rules.rules) {
      if (rule.file != file || !rule.match.class_name || rule.optional) continue;
      const std::string& class_name = rule.match.class_name->text;
      const auto families = rules::families_of(class_name);
      const bool named = std::find(families.begin(), families.end(), ours) != families.end();
      for (std::string_view family : families) {
        ++votes[family];
        first.emplace(family, &rule);
      }
      // A class of one family may live in the tree of another.
      if (!named && !families.empty() && reporter_.known_classes().contains(class_name))
        ++votes[ours];
    }
    const auto best =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == votes.end() || votes[ours] == best->second) return;
    const Rule& example = *first[best->first];
    const int errors = diags_.errors();
    diags_
        .error(example.match.class_name->loc, "R002",
               fmt::format("this rule file is written for {}, but the model is {}: '{}' is a class "
                           "of {}",
                           best->first, ours, rules::last_part(example.match.class_name->text),
                           best->first))
        .help(
            "take the rule file of this model, or one that selects by `kind` and fits every "
            "model (rules/moe-experts-on-cpu.yaml)");
    state_.wrong_model = state_.wrong_model || diags_.errors() > errors;
  }

  void report_slow(int index) {
    const Rule& rule = reporter_.rule(index);
    diags_
        .error(rule.match.name->loc, "R012",
               "the pattern backtracks without end on module paths; it is left out of the match")
        .help("avoid repetitions inside of repetitions, such as (.*)* or (a+)+");
  }

  void check_rule(int index) {
    const Rule& rule = reporter_.rule(index);
    const RuleOutcome& outcome = reporter_.outcome(index);
    check_layers(rule, outcome);
    if (outcome.verdict == Verdict::Wins) {
      report_refined(reporter_, index);
      return;
    }
    if (rule.optional || layers_missing(rule)) return;
    if (outcome.verdict == Verdict::Dead) {
      dead_rules_.report(index);
    } else if (outcome.verdict == Verdict::Unreachable) {
      report_unreachable(reporter_, index);
    } else {
      report_shadowed(reporter_, index);
    }
  }

  bool layers_missing(const Rule& rule) const {
    const auto& layers = rule.match.layers;
    return !layers.empty() && std::all_of(layers.begin(), layers.end(), [&](const auto& range) {
      return range.first >= state_.modules.facts.layers;
    });
  }

  void check_layers(const Rule& rule, const RuleOutcome& outcome) {
    const int32_t layers = state_.modules.facts.layers;
    for (const rules::LayerRange& range : rule.match.layers) {
      const bool open = range.last == INT32_MAX;
      if (range.first >= layers) {
        if (rule.optional) continue;
        diags_
            .error(range.loc, "R013",
                   fmt::format("layers from {} on do not exist; the model has {} (0 to {})",
                               range.first, layers, layers - 1))
            .help("write `optional: true` if the file is for larger models as well");
      } else if (!open && range.last >= layers && outcome.won > 0) {
        Diagnostic& diag = diags_.warning(
            range.loc, "R013",
            fmt::format("{}; the model has {} (0 to {})",
                        range.last == layers
                            ? fmt::format("layer {} does not exist", layers)
                            : fmt::format("layers {} to {} do not exist", layers, range.last),
                        layers, layers - 1));
        diag.help(fmt::format("write {}.. for \"up to the last layer\"", range.first));
      }
    }
  }

  CompileState& state_;
  DiagSink& diags_;
  RuleReporter reporter_;
  DeadRules dead_rules_;
};

}  // namespace

Status check_rules(CompileState& state) {
  RuleChecker(state).run();
  return {};
}

}  // namespace ktx::passes
