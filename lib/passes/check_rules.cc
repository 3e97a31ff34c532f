// Do the rules fit the model, and does each of them decide something?
//
// First the whole file: one that was written for another model gets one error that
// says so, before all others. Then each rule that wins nothing:
//
//   dead         no module satisfies it          R001, R002 when its class is foreign
//   unreachable  only modules below a match with `recursive: false`      R003
//   shadowed     only modules that other rules take                      R003
//
// Severities: in a file of KTransformers, whose defects are many and known, an error
// when the class belongs to another model or to none, else a warning; in a file of
// our own an error unless the rule is `optional`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/passes/pass.h"
#include "lib/passes/rule_report.h"
#include "lib/rules/families.h"
#include "lib/rules/pattern_budget.h"
#include "lib/rules/pattern_index.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

using rules::Rule;
using rules::RuleOutcome;
using rules::Verdict;

class RuleChecker {
 public:
  explicit RuleChecker(CompileState& state)
      : state_(state),
        diags_(*state.diags),
        family_(state.modules.facts.family),
        budget_(state.rules.rules.size()) {
    for (const ir::Module& module : state.modules.modules) {
      known_classes_.insert(module.class_name);
      known_classes_.insert(module.aliases.begin(), module.aliases.end());
      known_classes_.insert(module.bases.begin(), module.bases.end());
    }
    for (const ir::ExpertPart& part : state.modules.expert_parts) {
      known_classes_.insert(part.class_name);
      known_classes_.insert(part.aliases.begin(), part.aliases.end());
      known_classes_.insert(part.bases.begin(), part.bases.end());
    }
  }

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
    report_partly_shadowed();
    report_linears_without_rule();
  }

 private:
  // Which family most of the file's class names belong to.
  void check_file(int file) {
    std::map<std::string_view, int> votes;
    std::map<std::string_view, const Rule*> first;
    for (const Rule& rule : state_.rules.rules) {
      if (rule.file != file || !rule.match.class_name || rule.optional) continue;
      const std::string& class_name = rule.match.class_name->text;
      const auto families = rules::families_of(class_name);
      const bool named = std::find(families.begin(), families.end(), family_) != families.end();
      for (std::string_view family : families) {
        ++votes[family];
        first.emplace(family, &rule);
      }
      // A class of one family may live in the tree of another.
      if (!named && !families.empty() && known_classes_.contains(class_name)) ++votes[family_];
    }
    const auto best =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == votes.end() || votes[family_] == best->second) return;
    const Rule& example = *first[best->first];
    const int errors = diags_.errors();
    diags_
        .error(example.match.class_name->loc, "R002",
               fmt::format("this rule file is written for {}, but the model is {}: '{}' is a class "
                           "of {}",
                           best->first, family_, rules::last_part(example.match.class_name->text),
                           best->first))
        .help(
            "take the rule file of this model, or one that selects by `kind` and fits every "
            "model (rules/moe-experts-on-cpu.yaml)");
    state_.wrong_model = state_.wrong_model || diags_.errors() > errors;
  }

  void report_slow(int index) {
    const Rule& rule = rule_at(index);
    diags_
        .error(rule.match.name->loc, "R012",
               "the pattern backtracks without end on module paths; it is left out of the match")
        .help("avoid repetitions inside of repetitions, such as (.*)* or (a+)+");
  }

  void check_rule(int index) {
    const Rule& rule = rule_at(index);
    const RuleOutcome& outcome = outcome_at(index);
    check_layers(rule, outcome);
    if (outcome.verdict == Verdict::Wins) {
      report_refined(index);
      return;
    }
    if (rule.optional || layers_missing(rule)) return;
    if (outcome.verdict == Verdict::Dead) {
      report_dead(rule, outcome);
    } else if (outcome.verdict == Verdict::Unreachable) {
      report_unreachable(rule, outcome);
    } else {
      report_shadowed(index);
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

  enum class Origin { Ours, Foreign, Nobodys };

  // Whose class a rule asks for.
  Origin origin_of(const Rule& rule) const {
    if (!rule.match.class_name) return Origin::Ours;
    const std::string& name = rule.match.class_name->text;
    if (rules::is_torch_class(name) || known_classes_.contains(name)) return Origin::Ours;
    const auto families = rules::families_of(name);
    if (families.empty()) return Origin::Nobodys;
    const bool ours = std::find(families.begin(), families.end(), family_) != families.end();
    return ours ? Origin::Ours : Origin::Foreign;
  }

  Severity severity_of(const Rule& rule) const {
    if (origin_of(rule) != Origin::Ours) return Severity::Error;
    return state_.rules.file_of(rule).names_ktransformers ? Severity::Warning : Severity::Error;
  }

  Diagnostic& report(const Rule& rule, std::string code, std::string message) {
    Diagnostic& diag = diags_.report(severity_of(rule), rule.loc, std::move(code),
                                     fmt::format("{} [rule {}]", message, rule.number));
    return diag.in_group(fmt::format("verdict of {}", state_.rules.file_of(rule).path));
  }

  void report_dead(const Rule& rule, const RuleOutcome& outcome) {
    const Origin origin = origin_of(rule);
    if (origin == Origin::Ours) return report_dead_of_ours(rule, outcome);
    const std::string& name = rule.match.class_name->text;
    std::string reason;
    if (origin == Origin::Foreign) {
      const auto families = rules::families_of(name);
      reason = fmt::format("class '{}' belongs to {}, not to {}", printable(name),
                           fmt::join(families, " and "), family_);
    } else if (rules::find_operator(name) || rules::find_op(rules::last_part(name))) {
      reason = fmt::format(
          "'{}' is an operator, and rules match the classes that a model has "
          "before any is replaced",
          printable(name));
    } else {
      reason = fmt::format("no model has a class '{}'", printable(name));
    }
    Diagnostic& diag = report(rule, "R002", "dead rule: " + reason);
    suggest_class(rule, outcome, diag);
  }

  void suggest_class(const Rule& rule, const RuleOutcome& outcome, Diagnostic& diag) {
    const rules::Located& name = *rule.match.class_name;
    std::string meant = outcome.class_found;
    if (meant.empty()) {
      const std::vector<std::string> names(known_classes_.begin(), known_classes_.end());
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

  void report_dead_of_ours(const Rule& rule, const RuleOutcome& outcome) {
    Diagnostic& diag = report(rule, "R001", "dead rule: no module of the model satisfies it");
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
                fmt::format("{} has no module of kind {}; it has {}", family_,
                            printable(rule.match.kind_text->text), join(kinds_of_model(), ", ")));
    } else if (!rule.match.name) {
      if (rule.match.class_name) {
        diag.note(rule.match.class_name->loc,
                  fmt::format("{} has no module of class '{}' with this config", family_,
                              printable(rule.match.class_name->text)));
      }
    } else if (const int layer = layer_that_would_match(rule); layer >= 0) {
      diag.note(rule.match.name->loc,
                fmt::format("it would match layer {}, but the model has {} (0 to {})", layer,
                            state_.modules.facts.layers, state_.modules.facts.layers - 1));
    } else if (const std::string path = nearest_path(rule.match.name->text); !path.empty()) {
      diag.note(rule.match.name->loc, fmt::format("the nearest modules are {}", path));
    }
    if (!state_.rules.file_of(rule).names_ktransformers) {
      diag.help("write `optional: true` if that is meant");
    }
  }

  bool has_parts(const std::string& path) const {
    const std::string below = path + ".";
    return std::any_of(state_.modules.modules.begin(), state_.modules.modules.end(),
                       [&](const ir::Module& module) { return module.path.starts_with(below); });
  }

  bool kind_is_absent(const Rule& rule) const {
    const auto fits = [&](ir::Role role) {
      return rule.match.kind ? ir::kind_of(role) == *rule.match.kind : role == *rule.match.role;
    };
    const auto& modules = state_.modules.modules;
    const auto& parts = state_.modules.expert_parts;
    return std::none_of(modules.begin(), modules.end(),
                        [&](const ir::Module& module) { return fits(module.role); }) &&
           std::none_of(parts.begin(), parts.end(),
                        [&](const ir::ExpertPart& part) { return fits(part.role); });
  }

  std::vector<std::string> kinds_of_model() const {
    std::set<ir::Kind> kinds;
    for (const ir::Module& module : state_.modules.modules) kinds.insert(ir::kind_of(module.role));
    std::vector<std::string> names;
    for (const ir::Kind kind : kinds) names.emplace_back(ir::name(kind));
    return names;
  }

  // What the modules of the last layer would be called in layers that do not exist.
  struct FurtherPath {
    const ir::Module* module = nullptr;
    int layer = 0;
    std::string path;
  };

  // Made when the first dead rule asks: which of them each rule may match.
  void list_further_paths() {
    constexpr int kMaxLayers = 256;
    const int32_t layers = state_.modules.facts.layers;
    const std::string last = fmt::format("model.layers.{}", layers - 1);
    std::vector<std::string_view> patterns;
    for (const Rule& rule : state_.rules.rules) {
      patterns.push_back(rule.match.name_regex ? std::string_view(rule.match.name->text) : "");
    }
    rules::PatternIndex index(patterns);
    for (const ir::Module& module : state_.modules.modules) {
      if (module.layer != layers - 1 || !module.path.starts_with(last)) continue;
      for (int layer = layers; layer < kMaxLayers; ++layer) {
        further_paths_.push_back(
            {&module, layer,
             fmt::format("model.layers.{}{}", layer, module.path.substr(last.size()))});
        index.count(further_paths_.back().path);
      }
    }
    index.choose([](uint32_t) { return false; });
    further_of_rule_.resize(patterns.size());
    may_match_all_.resize(patterns.size());
    for (const uint32_t rule : index.always()) may_match_all_[rule] = true;
    for (size_t i = 0; i < further_paths_.size(); ++i) {
      const auto rules = index.candidates(further_paths_[i].path);
      if (!rules) {
        may_match_all_.assign(patterns.size(), true);
        return;
      }
      for (const uint32_t rule : *rules) further_of_rule_[rule].push_back(i);
    }
  }

  // A layer number past the last whose modules the pattern would match, or -1.
  int layer_that_would_match(const Rule& rule) {
    if (!rule.match.name_regex) return -1;
    if (further_of_rule_.empty()) list_further_paths();
    const auto index = static_cast<size_t>(&rule - state_.rules.rules.data());
    const auto fits = [&](const FurtherPath& further) {
      if (rule.match.class_name && !ir::has_class(*further.module, rule.match.class_name->text)) {
        return false;
      }
      return budget_.test(index, *rule.match.name_regex, further.path) == Regex::Outcome::Match;
    };
    if (may_match_all_[index]) {
      for (const FurtherPath& further : further_paths_) {
        if (fits(further)) return further.layer;
      }
      return -1;
    }
    for (const size_t i : further_of_rule_[index]) {
      if (fits(further_paths_[i])) return further_paths_[i].layer;
    }
    return -1;
  }

  // The module path that looks most like the pattern, layer numbers blotted out.
  std::string nearest_path(const std::string& pattern) {
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
      for (const ir::Module& module : state_.modules.modules) {
        if (!module.path.empty()) paths.insert(without_layers(module.path));
      }
      kinds_of_path_.assign(paths.begin(), paths.end());
    }
    return nearest_name(plain, kinds_of_path_);
  }

  void report_unreachable(const Rule& rule, const RuleOutcome& outcome) {
    Diagnostic& diag = report(
        rule, "R003",
        fmt::format("unreachable rule: only modules below a `recursive: false` satisfy it, {} "
                    "for one",
                    outcome.first_unreachable));
    if (outcome.blocker >= 0) {
      const Rule& blocker = rule_at(outcome.blocker);
      diag.note(blocker.loc, fmt::format("rule {} takes the modules above them", blocker.number));
      diag.help(fmt::format("remove the rule, or `recursive: false` of rule {}", blocker.number));
    }
  }

  void report_shadowed(int index) {
    const Rule& rule = rule_at(index);
    const RuleOutcome& outcome = outcome_at(index);
    const bool by_other_file =
        std::any_of(outcome.takers.begin(), outcome.takers.end(),
                    [&](const auto& taker) { return rule_at(taker.first).file != rule.file; });
    if (by_other_file) return report_overruled(index);
    Diagnostic& diag = report(rule, "R003",
                              fmt::format("shadowed rule: rules before it take all of its modules "
                                          "({})",
                                          outcome.lost));
    list_takers(outcome, diag);
    diag.help("the first rule that matches wins: put special rules before general ones");
  }

  void list_takers(const RuleOutcome& outcome, Diagnostic& diag) {
    int shown = 0;
    for (const auto& [taker, count] : outcome.takers) {
      if (++shown > 3) {
        diag.note({}, fmt::format("and {} more rules", outcome.takers.size() - 3));
        break;
      }
      diag.note(rule_at(taker).loc,
                fmt::format("rule {} takes {}", rule_at(taker).number, count_of(count, "module")));
    }
  }

  std::string decision_of(const Rule& rule) const {
    std::vector<std::string> words;
    if (rule.replace.place) words.push_back(rules::to_string(*rule.replace.place));
    if (rule.replace.op) words.push_back(rule.replace.op->text);
    if (rule.replace.layout) words.push_back(rule.replace.layout->text);
    return words.empty() ? "the compiler's choice" : join(words, ", ");
  }

  // All modules of a rule are decided by a later file. Saying the same twice is no
  // conflict.
  void report_overruled(int index) {
    const Rule& rule = rule_at(index);
    const RuleOutcome& outcome = outcome_at(index);
    for (const auto& [taker_index, count] : outcome.takers) {
      const Rule& taker = rule_at(taker_index);
      if (taker.file == rule.file || decision_of(taker) == decision_of(rule)) continue;
      diags_
          .warning(rule.loc, "R015",
                   fmt::format("two files disagree: {} here, {} in {}; the later file wins for all "
                               "{} of this rule",
                               decision_of(rule), decision_of(taker),
                               state_.rules.file_of(taker).path, count_of(outcome.lost, "module")))
          .note(taker.loc, "the rule that wins")
          .help("remove one of the two rules, or give the later one a narrower `match`");
      return;
    }
  }

  // Some modules of a rule are decided by a later file: that is what refining is.
  void report_refined(int index) {
    const Rule& rule = rule_at(index);
    for (const auto& [taker_index, count] : outcome_at(index).takers) {
      const Rule& taker = rule_at(taker_index);
      if (taker.file == rule.file || decision_of(taker) == decision_of(rule)) continue;
      diags_
          .note(taker.loc, "R015",
                fmt::format("refines {}: {} go from {} to {}", state_.rules.label(rule),
                            count_of(count, "module"), decision_of(rule), decision_of(taker)))
          .in_group("refined");
    }
  }

  void report_partly_shadowed() {
    std::vector<std::string> examples;
    const Rule* first = nullptr;
    int count = 0;
    for (size_t i = 0; i < state_.rules.rules.size(); ++i) {
      const RuleOutcome& outcome = state_.matched.outcomes[i];
      if (outcome.won == 0 || outcome.lost == 0) continue;
      const Rule& rule = state_.rules.rules[i];
      // What goes to a later file is told as refined.
      const bool in_file =
          std::any_of(outcome.takers.begin(), outcome.takers.end(),
                      [&](const auto& taker) { return rule_at(taker.first).file == rule.file; });
      if (!in_file) continue;
      if (!first) first = &rule;
      if (++count <= 3) {
        examples.push_back(fmt::format("rule {} (line {}) keeps {} of {}", rule.number,
                                       rule.loc.line, outcome.won, outcome.won + outcome.lost));
      }
    }
    if (count == 0) return;
    const std::string rest = count > 3 ? fmt::format(" and {} more", count - 3) : "";
    diags_.note(first->loc, "R004",
                fmt::format("{} {} modules to rules before {}: {}{}", count_of(count, "rule"),
                            count == 1 ? "loses" : "lose", count == 1 ? "it" : "them",
                            join(examples, ", "), rest));
  }

  // In files of KTransformers a Linear without a rule stays dense.
  void report_linears_without_rule() {
    const bool ktransformers =
        std::any_of(state_.rules.files.begin(), state_.rules.files.end(),
                    [](const rules::RuleFile& file) { return file.names_ktransformers; });
    if (!ktransformers) return;
    struct Group {
      int64_t count = 0;
      uint64_t bytes = 0;
    };
    std::map<std::string, Group> groups;
    uint64_t bytes = 0;
    int64_t count = 0;
    const auto& modules = state_.modules.modules;
    for (size_t id = 0; id < modules.size(); ++id) {
      const ir::Module& module = modules[id];
      if (state_.matched.rule_of_module[id] != rules::kNoRule || !is_torch_linear(module)) continue;
      // KTransformers needs it dense; every file leaves it out on purpose.
      if (module.role == ir::Role::KvBProj) continue;
      Group& group = groups[without_layers(module.path)];
      ++group.count;
      ++count;
      for (const ir::Param& param : module.params) {
        const auto row = row_bytes(param.dtype, param.cols);
        const auto size = static_cast<uint64_t>(row.value_or(0) * param.rows * param.matrices);
        group.bytes += size;
        bytes += size;
      }
    }
    if (count == 0) return;
    std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
    const bool dense = state_.check.dialect == rules::Dialect::KTransformers;
    // As a note, where most of them are is enough.
    const size_t shown = std::min<size_t>(sorted.size(), dense ? 3 : 1);
    std::string examples;
    for (size_t i = 0; i < shown; ++i) {
      examples += fmt::format("{}{} ({}, {})", i ? ", " : "", sorted[i].first,
                              sorted[i].second.count, human_bytes(sorted[i].second.bytes));
    }
    if (sorted.size() > shown) {
      examples += fmt::format(" and {}",
                              count_of(static_cast<int64_t>(sorted.size() - shown), "more kind"));
    }
    diags_
        .report(severity_in(state_, Severity::Note, Severity::Warning),
                {state_.rules.files.front().path}, "R005",
                fmt::format("{} ({}) {} no rule and {}: {}", count_of(count, "linear layer"),
                            human_bytes(bytes), count == 1 ? "has" : "have",
                            dense ? count == 1 ? "stays dense in 16 bits" : "stay dense in 16 bits"
                            : count == 1 ? "is placed by the compiler"
                                         : "are placed by the compiler",
                            examples))
        .help("--list-unruled names them");
  }

  const Rule& rule_at(int index) const { return state_.rules.rules[static_cast<size_t>(index)]; }
  const RuleOutcome& outcome_at(int index) const {
    return state_.matched.outcomes[static_cast<size_t>(index)];
  }

  CompileState& state_;
  DiagSink& diags_;
  std::string family_;
  rules::PatternBudget budget_;
  std::set<std::string, std::less<>> known_classes_;
  std::vector<std::string> kinds_of_path_;  // "model.layers.*.mlp"
  std::vector<FurtherPath> further_paths_;
  std::vector<std::vector<size_t>> further_of_rule_;  // those that a rule may match
  std::vector<bool> may_match_all_;                   // by rule, in place of that list
};

}  // namespace

Status check_rules(CompileState& state) {
  RuleChecker(state).run();
  return {};
}

}  // namespace ktx::passes
