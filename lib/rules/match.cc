#include "lib/rules/match.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include "lib/rules/pattern_budget.h"
#include "lib/rules/pattern_index.h"

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

std::vector<std::string_view> patterns_of(const std::vector<Rule>& rules) {
  std::vector<std::string_view> patterns;
  for (const Rule& rule : rules) {
    const bool any = rule.match.name_regex.has_value();
    patterns.push_back(any ? std::string_view(rule.match.name->text) : "");
  }
  return patterns;
}

// "model.layers.17.mlp" and "model.layers.42.mlp" have one shape.
std::string shape_of(std::string_view path) {
  std::string shape(path);
  for (char& c : shape) {
    if (c >= '0' && c <= '9') c = '0';
  }
  return shape;
}

// Rules match modules through an index of their patterns, so that thousands of rules on a
// hundred thousand modules cost little more than those that match. Every pattern is tried on
// one path of each shape first: what takes long there is tried everywhere, so that patterns
// without end are found as if there were no index.
class Matcher {
 public:
  Matcher(const RuleSet& rules, const ir::ModuleGraph& graph)
      : rules_(rules.rules),
        graph_(graph),
        budget_(rules.rules.size()),
        index_(patterns_of(rules.rules)) {
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
    survey();
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
  using Numbers = std::span<const uint32_t>;

  // All paths once, for the index; patterns on one path of each shape.
  void survey() {
    std::unordered_set<std::string> shapes;
    const auto meet_path = [&](const Subject& subject, const auto& class_fits_rule) {
      index_.count(subject.path);
      if (!shapes.insert(shape_of(subject.path)).second) return;
      for (size_t i = 0; i < rules_.size(); ++i) {
        if (rules_[i].match.name_regex && class_fits_rule(i)) (void)place_fits(i, subject);
      }
    };
    for (const ir::Module& module : graph_.modules) {
      const Subject subject = {module.path, module.class_name, module.role, module.layer};
      meet_path(subject, [&](size_t i) { return class_fits(rules_[i].match, module); });
      if (module.role != ir::Role::Experts) continue;
      ir::for_each_expert_module(graph_, module, [&](const ir::ExpertModule& part) {
        const std::vector<bool>& fits = part_class_fits_[number_of(part)];
        meet_path({part.path, part.part->class_name, part.part->role, module.layer},
                  [&](size_t i) { return fits[i]; });
        return true;
      });
    }
    index_.choose([this](uint32_t rule) { return budget_.steps(rule) > 0; });
  }

  size_t number_of(const ir::ExpertModule& part) const {
    return static_cast<size_t>(part.part - graph_.expert_parts.data());
  }

  // Those of `always` and those that the index names for this path, in order, until
  // `visit` returns false.
  template <class Visit>
  void each_candidate(std::string_view path, Numbers always, const Visit& visit) {
    const std::optional<Numbers> found = index_.candidates(path);
    if (!found) {
      for (size_t i = 0; i < rules_.size(); ++i) {
        if (!visit(i)) return;
      }
      return;
    }
    size_t a = 0;
    size_t f = 0;
    while (a < always.size() || f < found->size()) {
      const bool from_always = f == found->size() || (a < always.size() && always[a] < (*found)[f]);
      if (!visit(from_always ? always[a++] : (*found)[f++])) return;
    }
  }

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
  int meet(const Subject& subject, Numbers always, const ClassFits& class_fits_rule,
           bool count_losers) {
    int winner = kNoRule;
    each_candidate(subject.path, always, [&](size_t i) {
      if (!class_fits_rule(i) || !place_fits(i, subject)) return true;
      RuleOutcome& outcome = result_.outcomes[i];
      if (winner < 0) {
        winner = static_cast<int>(i);
        if (outcome.won++ == 0) outcome.first_won = subject.path;
      } else {
        ++outcome.takers[winner];
        if (outcome.lost++ == 0) outcome.first_lost = subject.path;
      }
      return count_losers;
    });
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
        subject, index_.always(), [&](size_t i) { return class_fits(rules_[i].match, module); },
        true);
    if (winner < 0) ++result_.without_rule;
    if (parts > 0 && !blocks(winner)) decide_experts(id, module, parts);
  }

  bool blocks(int rule) const { return rule >= 0 && !rules_[static_cast<size_t>(rule)].recursive; }

  // The rules for this part of the layer's experts among those that are tried everywhere.
  std::vector<uint32_t> always_for(size_t part, int32_t layer) const {
    std::vector<uint32_t> rules;
    for (const uint32_t i : index_.always()) {
      if (part_class_fits_[part][i] && layers_fit(rules_[i].match, layer)) rules.push_back(i);
    }
    return rules;
  }

  // Losers among the many modules of single experts are counted only up to the
  // first of each rule: enough for a verdict.
  void decide_experts(ir::ModuleId id, const ir::Module& module, int64_t parts) {
    result_.visited += parts;
    std::vector<std::vector<uint32_t>> always;
    for (size_t part = 0; part < graph_.expert_parts.size(); ++part) {
      always.push_back(always_for(part, module.layer));
    }
    std::map<int, int64_t> weight_rules;
    ir::for_each_expert_module(graph_, module, [&](const ir::ExpertModule& part) {
      const size_t number = number_of(part);
      const Subject subject = {part.path, part.part->class_name, part.part->role, module.layer};
      const std::vector<bool>& fits = part_class_fits_[number];
      const bool first = part.expert == 0;
      const int winner = meet(
          subject, always[number], [&](size_t i) { return fits[i]; }, first);
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
    dead_.assign(rules_.size(), false);
    for (size_t i = 0; i < rules_.size(); ++i) {
      dead_[i] = result_.outcomes[i].verdict == Verdict::Dead && !budget_.is_out(i);
    }
    look_out_of_reach();
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (dead_[i] && !result_.outcomes[i].first_unreachable.empty()) {
        result_.outcomes[i].verdict = Verdict::Unreachable;
        dead_[i] = false;
      }
      // A rule that has only a class would take every module once the class is left out.
      dead_[i] = dead_[i] && rules_[i].match.class_name && rules_[i].match.name_regex;
    }
    look_without_class();
  }

  // For each dead rule the first module that it would take.
  void look_out_of_reach() {
    for (size_t id = 0; id < graph_.modules.size(); ++id) {
      const ir::Module& module = graph_.modules[id];
      const bool reached = result_.rule_of_module[id] != kNotVisited;
      if (!reached) {
        const Subject subject = {module.path, module.class_name, module.role, module.layer};
        each_candidate(subject.path, index_.always(), [&](size_t i) {
          if (class_fits(rules_[i].match, module)) note_unreachable(i, subject, module.parent);
          return true;
        });
      }
      const bool hides =
          module.role == ir::Role::Experts && (!reached || blocks(result_.rule_of_module[id]));
      if (hides) look_into_experts(static_cast<ir::ModuleId>(id));
    }
  }

  void note_unreachable(size_t rule, const Subject& subject, ir::ModuleId above) {
    RuleOutcome& outcome = result_.outcomes[rule];
    if (!dead_[rule] || !outcome.first_unreachable.empty() || !place_fits(rule, subject)) return;
    outcome.first_unreachable = subject.path;
    outcome.blocker = blocker_above(above);
  }

  void look_into_experts(ir::ModuleId id) {
    const ir::Module& experts = graph_.modules[static_cast<size_t>(id)];
    std::vector<std::vector<uint32_t>> always;
    for (size_t part = 0; part < graph_.expert_parts.size(); ++part) {
      always.push_back(always_for(part, experts.layer));
      std::erase_if(always.back(), [&](uint32_t i) {
        return !dead_[i] || !result_.outcomes[i].first_unreachable.empty();
      });
    }
    ir::for_each_expert_module(graph_, experts, [&](const ir::ExpertModule& part) {
      const size_t number = number_of(part);
      const Subject subject = {part.path, part.part->class_name, part.part->role, experts.layer};
      each_candidate(subject.path, always[number], [&](size_t i) {
        if (part_class_fits_[number][i]) note_unreachable(i, subject, id);
        return true;
      });
      return true;
    });
  }

  int blocker_above(ir::ModuleId id) const {
    for (; id >= 0; id = graph_.modules[static_cast<size_t>(id)].parent) {
      const int rule = result_.rule_of_module[static_cast<size_t>(id)];
      if (blocks(rule)) return rule;
    }
    return kNoRule;
  }

  void look_without_class() {
    for (const ir::Module& module : graph_.modules) {
      const Subject subject = {module.path, module.class_name, module.role, module.layer};
      each_candidate(subject.path, index_.always(), [&](size_t i) {
        if (!dead_[i] || !place_fits(i, subject)) return true;
        RuleOutcome& outcome = result_.outcomes[i];
        if (outcome.without_class++ > 0) return true;
        outcome.class_found = module.class_name;
        outcome.path_found = module.path;
        return true;
      });
    }
  }

  const std::vector<Rule>& rules_;
  const ir::ModuleGraph& graph_;
  MatchResult result_;
  PatternBudget budget_;
  PatternIndex index_;
  std::vector<std::vector<bool>> part_class_fits_;  // by part, then rule
  std::vector<bool> dead_;  // rules that win nothing and whose reason is looked for
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
