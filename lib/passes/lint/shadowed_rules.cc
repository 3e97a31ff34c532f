#include "lib/passes/lint/shadowed_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/passes/lint/rule_report.h"
#include "lib/support/strings.h"

namespace ktx::passes {

using rules::Rule;
using rules::RuleOutcome;

namespace {

void list_takers(const RuleReporter& reporter, const RuleOutcome& outcome, Diagnostic& diag) {
  int shown = 0;
  for (const auto& [taker, count] : outcome.takers) {
    if (++shown > 3) {
      diag.note({}, fmt::format("and {} more rules", outcome.takers.size() - 3));
      break;
    }
    diag.note(reporter.rule(taker).loc, fmt::format("rule {} takes {}", reporter.rule(taker).number,
                                                    count_of(count, "module")));
  }
}

std::string decision_of(const Rule& rule) {
  std::vector<std::string> words;
  if (rule.replace.place) words.push_back(rules::to_string(*rule.replace.place));
  if (rule.replace.op) words.push_back(rule.replace.op->text);
  if (rule.replace.layout) words.push_back(rule.replace.layout->text);
  if (rule.replace.deferred) words.push_back(rule.replace.deferred->text + " deferred");
  return words.empty() ? "the compiler's choice" : join(words, ", ");
}

// All modules of a rule are decided by a later file. Saying the same twice is no
// conflict.
void report_overruled(const RuleReporter& reporter, int index) {
  const Rule& rule = reporter.rule(index);
  const RuleOutcome& outcome = reporter.outcome(index);
  for (const auto& [taker_index, count] : outcome.takers) {
    const Rule& taker = reporter.rule(taker_index);
    if (taker.file == rule.file || decision_of(taker) == decision_of(rule)) continue;
    reporter.diags()
        .warning(rule.loc, "R015",
                 fmt::format("two files differ: {} here, but {} in {}; the later file wins for all "
                             "{} of this rule",
                             decision_of(rule), decision_of(taker),
                             reporter.state().rules.file_of(taker).path,
                             count_of(outcome.lost, "module")))
        .note(taker.loc, "the rule that wins")
        .help("remove one of the two rules, or give the later one a narrower `match`");
    return;
  }
}

}  // namespace

void report_unreachable(const RuleReporter& reporter, int index) {
  const Rule& rule = reporter.rule(index);
  const RuleOutcome& outcome = reporter.outcome(index);
  Diagnostic& diag = reporter.report(
      rule, "R003",
      fmt::format("unreachable rule: only modules below a `recursive: false` satisfy it, {} "
                  "for one",
                  outcome.first_unreachable));
  if (outcome.blocker >= 0) {
    const Rule& blocker = reporter.rule(outcome.blocker);
    diag.note(blocker.loc, fmt::format("rule {} takes the modules above them", blocker.number));
    diag.help(fmt::format("remove the rule, or `recursive: false` of rule {}", blocker.number));
  }
}

void report_shadowed(const RuleReporter& reporter, int index) {
  const Rule& rule = reporter.rule(index);
  const RuleOutcome& outcome = reporter.outcome(index);
  const bool by_other_file =
      std::any_of(outcome.takers.begin(), outcome.takers.end(),
                  [&](const auto& taker) { return reporter.rule(taker.first).file != rule.file; });
  if (by_other_file) return report_overruled(reporter, index);
  Diagnostic& diag =
      reporter.report(rule, "R003",
                      fmt::format("shadowed rule: rules before it take all of its modules "
                                  "({})",
                                  outcome.lost));
  list_takers(reporter, outcome, diag);
  diag.help("the first rule that matches wins: put special rules before general ones");
}

void report_refined(const RuleReporter& reporter, int index) {
  const Rule& rule = reporter.rule(index);
  for (const auto& [taker_index, count] : reporter.outcome(index).takers) {
    const Rule& taker = reporter.rule(taker_index);
    if (taker.file == rule.file || decision_of(taker) == decision_of(rule)) continue;
    reporter.diags()
        .note(taker.loc, "R015",
              fmt::format("refines {}: {} go from {} to {}", reporter.state().rules.label(rule),
                          count_of(count, "module"), decision_of(rule), decision_of(taker)))
        .in_group("refined");
  }
}

void report_partly_shadowed(const RuleReporter& reporter) {
  std::vector<std::string> examples;
  const Rule* first = nullptr;
  int count = 0;
  for (size_t i = 0; i < reporter.state().rules.rules.size(); ++i) {
    const RuleOutcome& outcome = reporter.state().matched.outcomes[i];
    if (outcome.won == 0 || outcome.lost == 0) continue;
    const Rule& rule = reporter.state().rules.rules[i];
    // A module that goes to a later file is reported as refined.
    const bool in_file = std::any_of(
        outcome.takers.begin(), outcome.takers.end(),
        [&](const auto& taker) { return reporter.rule(taker.first).file == rule.file; });
    if (!in_file) continue;
    if (!first) first = &rule;
    if (++count <= 3) {
      examples.push_back(fmt::format("rule {} (line {}) keeps {} of {}", rule.number, rule.loc.line,
                                     outcome.won, outcome.won + outcome.lost));
    }
  }
  if (count == 0) return;
  const std::string rest = count > 3 ? fmt::format(" and {} more", count - 3) : "";
  reporter.diags().note(first->loc, "R004",
                        fmt::format("{} {} modules to rules before {}: {}{}",
                                    count_of(count, "rule"), count == 1 ? "loses" : "lose",
                                    count == 1 ? "it" : "them", join(examples, ", "), rest));
}

}  // namespace ktx::passes
