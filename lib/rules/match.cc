#include "lib/rules/match.h"

#include <algorithm>

#include "lib/rules/pattern_budget.h"

namespace ktx::rules {
namespace {

// What a module shows to rules; of a stored module or of a part of an expert.
struct Subject {
  std::string_view path;
  std::string_view class_name;
  ir::Role role = ir::Role::Root;
  int32_t layer = -1;
};

bool layers_fit(const Match& match, int32_t layer) {
  if (match.layers.empty()) return true;
  return std::any_of(match.layers.begin(), match.layers.end(), [&](const LayerRange& range) {
    return layer >= range.first && layer <= range.last;
  });
}

bool kind_fits(const Match& match, ir::Role role) {
  if (match.kind) return ir::kind_of(role) == *match.kind;
  return !match.role || *match.role == role;
}

template <class Module>
bool class_fits(const Match& match, const Module& module) {
  return !match.class_name || ir::has_class(module, match.class_name->text);
}

class Matcher {
 public:
  Matcher(const RuleSet& rules, const ir::ModuleGraph& graph)
      : rules_(rules.rules), graph_(graph), budget_(rules.rules.size()) {
    result_.rule_of_module.assign(graph.modules.size(), kNoRule);
    result_.rule_of_experts.assign(graph.modules.size(), kNoRule);
    result_.outcomes.resize(rules_.size());
    for (const ir::ExpertPart& part : graph.expert_parts) {
      std::vector<bool>& fits = part_class_fits_.emplace_back();
      for (const Rule& rule : rules_) {
        fits.push_back(class_fits(rule.match, part) && kind_fits(rule.match, part.role));
      }
    }
  }

  MatchResult run() {
    for (size_t id = 0; id < graph_.modules.size(); ++id) decide(static_cast<ir::ModuleId>(id));
    for (RuleOutcome& outcome : result_.outcomes) {
      outcome.verdict = outcome.won > 0    ? Verdict::Wins
                        : outcome.lost > 0 ? Verdict::Shadowed
                                           : Verdict::Dead;
    }
    explain_losers();
    return std::move(result_);
  }

 private:
  // All but the class.
  bool place_fits(size_t rule, const Subject& subject) {
    const Match& match = rules_[rule].match;
    if (budget_.is_out(rule) || !layers_fit(match, subject.layer) ||
        !kind_fits(match, subject.role)) {
      return false;
    }
    return !match.name_regex || pattern_fits(rule, subject.path);
  }

  bool pattern_fits(size_t rule, std::string_view path) {
    const Regex::Outcome outcome = budget_.test(rule, *rules_[rule].match.name_regex, path);
    if (budget_.is_out(rule)) result_.too_slow.push_back(static_cast<int>(rule));
    return outcome == Regex::Outcome::Match;
  }

  // Counts for all rules that this module satisfies; the winner or kNoRule.
  template <class ClassFits>
  int meet(const Subject& subject, const ClassFits& class_fits_rule, bool count_losers) {
    int winner = kNoRule;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (winner >= 0 && !count_losers) break;
      if (!class_fits_rule(i) || !place_fits(i, subject)) continue;
      RuleOutcome& outcome = result_.outcomes[i];
      if (winner < 0) {
        winner = static_cast<int>(i);
        if (outcome.won++ == 0) outcome.first_won = subject.path;
      } else {
        ++outcome.takers[winner];
        if (outcome.lost++ == 0) outcome.first_lost = subject.path;
      }
    }
    return winner;
  }

  void decide(ir::ModuleId id) {
    const ir::Module& module = graph_.modules[static_cast<size_t>(id)];
    const int64_t parts =
        module.role == ir::Role::Experts ? ir::expert_module_count(graph_, module) : 0;
    result_.modules += 1 + parts;
    int& winner = result_.rule_of_module[static_cast<size_t>(id)];
    if (module.parent >= 0) {
      const int above = result_.rule_of_module[static_cast<size_t>(module.parent)];
      if (above == kNotVisited || blocks(above)) {
        winner = kNotVisited;
        return;
      }
    }
    ++result_.visited;
    const Subject subject = {module.path, module.class_name, module.role, module.layer};
    winner = meet(
        subject, [&](size_t i) { return class_fits(rules_[i].match, module); }, true);
    if (winner < 0) ++result_.without_rule;
    if (parts > 0 && !blocks(winner)) decide_experts(id, module, parts);
  }

  bool blocks(int rule) const { return rule >= 0 && !rules_[static_cast<size_t>(rule)].recursive; }

  // Losers among the many modules of single experts are counted only up to the
  // first of each rule: enough for a verdict.
  void decide_experts(ir::ModuleId id, const ir::Module& module, int64_t parts) {
    result_.visited += parts;
    std::map<int, int64_t> weight_rules;
    ir::for_each_expert_module(graph_, module, [&](const ir::ExpertModule& part) {
      const auto number = static_cast<size_t>(part.part - graph_.expert_parts.data());
      const Subject subject = {part.path, part.part->class_name, part.part->role, module.layer};
      const std::vector<bool>& fits = part_class_fits_[number];
      const bool first = part.expert == 0;
      const int winner = meet(
          subject, [&](size_t i) { return fits[i]; }, first);
      if (winner < 0) ++result_.without_rule;
      if (winner >= 0 && !part.part->param.empty()) ++weight_rules[winner];
      return true;
    });
    int64_t most = 0;
    for (const auto& [rule, count] : weight_rules) {
      if (count <= most) continue;
      most = count;
      result_.rule_of_experts[static_cast<size_t>(id)] = rule;
    }
  }

  // Why rules win nothing: out of reach, or the wrong class.
  void explain_losers() {
    std::vector<size_t> dead;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (result_.outcomes[i].verdict == Verdict::Dead && !budget_.is_out(i)) dead.push_back(i);
    }
    for (size_t i : dead) look_out_of_reach(i);
    for (size_t i : dead) {
      RuleOutcome& outcome = result_.outcomes[i];
      if (!outcome.first_unreachable.empty()) outcome.verdict = Verdict::Unreachable;
      if (outcome.verdict == Verdict::Dead && rules_[i].match.class_name) look_without_class(i);
    }
  }

  void look_out_of_reach(size_t rule) {
    RuleOutcome& outcome = result_.outcomes[rule];
    for (size_t id = 0; id < graph_.modules.size(); ++id) {
      const ir::Module& module = graph_.modules[id];
      const bool reached = result_.rule_of_module[id] != kNotVisited;
      const Subject subject = {module.path, module.class_name, module.role, module.layer};
      if (!reached && class_fits(rules_[rule].match, module) && place_fits(rule, subject)) {
        outcome.first_unreachable = module.path;
        outcome.blocker = blocker_above(module.parent);
        return;
      }
      const bool hides =
          module.role == ir::Role::Experts && (!reached || blocks(result_.rule_of_module[id]));
      if (hides && look_into_experts(rule, module)) {
        outcome.blocker = blocker_above(static_cast<ir::ModuleId>(id));
        return;
      }
    }
  }

  bool look_into_experts(size_t rule, const ir::Module& experts) {
    std::string found;
    const bool any = std::any_of(part_class_fits_.begin(), part_class_fits_.end(),
                                 [&](const std::vector<bool>& fits) { return fits[rule]; });
    if (!any || !layers_fit(rules_[rule].match, experts.layer)) return false;
    ir::for_each_expert_module(graph_, experts, [&](const ir::ExpertModule& part) {
      const auto number = static_cast<size_t>(part.part - graph_.expert_parts.data());
      const Subject subject = {part.path, part.part->class_name, part.part->role, experts.layer};
      if (part_class_fits_[number][rule] && place_fits(rule, subject)) found = part.path;
      return found.empty();
    });
    result_.outcomes[rule].first_unreachable = found;
    return !found.empty();
  }

  int blocker_above(ir::ModuleId id) const {
    for (; id >= 0; id = graph_.modules[static_cast<size_t>(id)].parent) {
      const int rule = result_.rule_of_module[static_cast<size_t>(id)];
      if (blocks(rule)) return rule;
    }
    return kNoRule;
  }

  void look_without_class(size_t rule) {
    RuleOutcome& outcome = result_.outcomes[rule];
    for (const ir::Module& module : graph_.modules) {
      const Subject subject = {module.path, module.class_name, module.role, module.layer};
      // Of rules with a class alone, every module would be one.
      if (!rules_[rule].match.name_regex || !place_fits(rule, subject)) continue;
      if (outcome.without_class++ > 0) continue;
      outcome.class_found = module.class_name;
      outcome.path_found = module.path;
    }
  }

  const std::vector<Rule>& rules_;
  const ir::ModuleGraph& graph_;
  MatchResult result_;
  PatternBudget budget_;
  std::vector<std::vector<bool>> part_class_fits_;  // by part, then rule
};

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"wins", "dead", "unreachable", "shadowed"};
  return kNames[static_cast<size_t>(verdict)];
}

MatchResult match(const RuleSet& rules, const ir::ModuleGraph& graph) {
  return Matcher(rules, graph).run();
}

bool matches(const Rule& rule, const ir::Module& module) {
  if (!class_fits(rule.match, module) || !layers_fit(rule.match, module.layer) ||
      !kind_fits(rule.match, module.role)) {
    return false;
  }
  if (!rule.match.name_regex) return true;
  PatternBudget budget(1);
  return budget.test(0, *rule.match.name_regex, module.path) == Regex::Outcome::Match;
}

}  // namespace ktx::rules
