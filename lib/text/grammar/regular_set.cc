#include "lib/text/grammar/regular_set.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lib/text/grammar/grammar_rules.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

constexpr uint32_t kNowhere = UINT32_MAX;
constexpr size_t kMaxSetStates = 40'000;
constexpr size_t kMaxPartStates = 400'000;

Error too_many_states() {
  return Error{"too many states are needed to check this; use shorter lengths or simpler patterns"};
}

// Drops states from which no text can end.
RegularSet trimmed(RegularSet set) {
  std::vector<std::vector<uint32_t>> into(set.states.size());
  std::vector<uint32_t> todo;
  std::vector<uint32_t> number(set.states.size(), kNowhere);
  for (uint32_t s = 0; s < set.states.size(); ++s) {
    for (const RegularSet::Edge& edge : set.states[s].edges) into[edge.target].push_back(s);
    if (set.states[s].accepts) todo.push_back(s), number[s] = 0;
  }
  while (!todo.empty()) {
    const uint32_t s = todo.back();
    todo.pop_back();
    for (const uint32_t from : into[s]) {
      if (number[from] == kNowhere) number[from] = 0, todo.push_back(from);
    }
  }
  RegularSet out;
  if (set.states.empty() || number[0] == kNowhere) return out;
  uint32_t count = 0;
  for (uint32_t& n : number) {
    if (n != kNowhere) n = count++;
  }
  for (uint32_t s = 0; s < set.states.size(); ++s) {
    if (number[s] == kNowhere) continue;
    RegularSet::State& state = out.states.emplace_back();
    state.accepts = set.states[s].accepts;
    for (const RegularSet::Edge& edge : set.states[s].edges) {
      const uint32_t target = number[edge.target];
      if (target == kNowhere) continue;
      const bool joins = !state.edges.empty() && state.edges.back().target == target &&
                         state.edges.back().last + 1 == edge.first;
      if (joins) {
        state.edges.back().last = edge.last;
      } else {
        state.edges.push_back({edge.first, edge.last, target});
      }
    }
  }
  return out;
}

// An automaton with empty edges, from an expression.
class Parts {
 public:
  struct State {
    std::vector<uint32_t> empty;
    std::vector<RegularSet::Edge> edges;
  };
  explicit Parts(const GrammarRules& rules) : rules_(rules) {}

  Result<std::vector<State>> build(int expr) {
    state();
    state();
    KTX_TRY(add(expr, 0, 1));
    if (states_.size() >= kMaxPartStates) return too_many_states();
    return std::move(states_);
  }

 private:
  uint32_t state() {
    if (states_.size() < kMaxPartStates) states_.emplace_back();
    return static_cast<uint32_t>(states_.size()) - 1;
  }
  Status add(int index, uint32_t from, uint32_t to) {
    if (states_.size() >= kMaxPartStates) return too_many_states();
    const Expr& expr = rules_.exprs[static_cast<size_t>(index)];
    switch (expr.kind) {
      case ExprKind::Text:
        return add_text(expr.text, from, to);
      case ExprKind::Class:
        for (const CodeRange& range : expr.ranges) {
          states_[from].edges.push_back({range.first, range.last, to});
        }
        return {};
      case ExprKind::Sequence:
        for (const int part : expr.parts) {
          const uint32_t next = state();
          KTX_TRY(add(part, from, next));
          from = next;
        }
        states_[from].empty.push_back(to);
        return {};
      case ExprKind::Alternatives:
        for (const int part : expr.parts) KTX_TRY(add(part, from, to));
        return {};
      case ExprKind::Repeat:
        return add_repeat(expr, from, to);
      case ExprKind::Set:
        return add_set(rules_.sets[static_cast<size_t>(expr.set)], from, to);
      case ExprKind::Token:
      case ExprKind::List:
      case ExprKind::Joined:
      case ExprKind::Rule:
        break;
    }
    return Error{"this part has no plain set of texts"};
  }
  Status add_text(std::string_view text, uint32_t from, uint32_t to) {
    while (!text.empty()) {
      const Utf8Char c = decode_utf8(text);
      if (!c.valid) return Error{"not UTF-8"};
      const uint32_t next = state();
      states_[from].edges.push_back({c.code, c.code, next});
      from = next;
      text.remove_prefix(c.length);
    }
    states_[from].empty.push_back(to);
    return {};
  }
  Status add_repeat(const Expr& expr, uint32_t from, uint32_t to) {
    for (int i = 0; i < expr.min; ++i) {
      const uint32_t next = state();
      KTX_TRY(add(expr.parts[0], from, next));
      from = next;
    }
    for (int i = expr.min; expr.max != kNoLimit && i < expr.max; ++i) {
      states_[from].empty.push_back(to);
      const uint32_t next = state();
      KTX_TRY(add(expr.parts[0], from, next));
      from = next;
    }
    if (expr.max == kNoLimit) {
      const uint32_t loop = state();
      states_[from].empty.push_back(loop);
      KTX_TRY(add(expr.parts[0], loop, loop));
      from = loop;
    }
    states_[from].empty.push_back(to);
    return {};
  }
  Status add_set(const RegularSet& set, uint32_t from, uint32_t to) {
    const auto begin = static_cast<uint32_t>(states_.size());
    for (size_t s = 0; s < set.states.size(); ++s) state();
    if (states_.size() >= kMaxPartStates) return too_many_states();
    for (size_t s = 0; s < set.states.size(); ++s) {
      State& state = states_[begin + s];
      if (set.states[s].accepts) state.empty.push_back(to);
      for (RegularSet::Edge edge : set.states[s].edges) {
        edge.target += begin;
        state.edges.push_back(edge);
      }
    }
    if (!set.is_empty()) states_[from].empty.push_back(begin);
    return {};
  }

  const GrammarRules& rules_;
  std::vector<State> states_;
};

// Pairs of states of two sets, the second kNowhere where its texts cannot go on.
Result<RegularSet> product(const RegularSet& a, const RegularSet& b, bool in_b, RegularWork& work) {
  RegularSet out;
  if (a.is_empty() || (in_b && b.is_empty())) return out;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  const auto id_of = [&](uint32_t s, uint32_t t) {
    const auto [found, added] = ids.try_emplace({s, t}, static_cast<uint32_t>(pairs.size()));
    if (added) pairs.push_back({s, t});
    return found->second;
  };
  id_of(0, b.is_empty() ? kNowhere : 0);
  const std::vector<RegularSet::Edge> none;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [s, t] = pairs[i];
    const std::vector<RegularSet::Edge>& mine = a.states[s].edges;
    const std::vector<RegularSet::Edge>& theirs = t == kNowhere ? none : b.states[t].edges;
    if (!work.spend(1 + mine.size() + theirs.size()) || pairs.size() > kMaxSetStates) {
      return too_many_states();
    }
    RegularSet::State state;
    const bool accepted = t != kNowhere && b.states[t].accepts;
    state.accepts = a.states[s].accepts && accepted == in_b;
    size_t other = 0;
    for (const RegularSet::Edge& edge : mine) {
      for (uint32_t at = edge.first; at <= edge.last;) {
        while (other < theirs.size() && theirs[other].last < at) ++other;
        const bool inside = other < theirs.size() && theirs[other].first <= at;
        uint32_t end = edge.last;
        if (inside) {
          end = std::min(end, theirs[other].last);
        } else if (other < theirs.size()) {
          end = std::min(end, theirs[other].first - 1);
        }
        const uint32_t next = inside ? theirs[other].target : kNowhere;
        if (inside || !in_b) state.edges.push_back({at, end, id_of(edge.target, next)});
        at = end + 1;
      }
    }
    out.states.push_back(std::move(state));
  }
  return trimmed(std::move(out));
}

}  // namespace

bool RegularWork::spend(uint64_t cost) {
  const bool enough = cost <= left;
  left = enough ? left - cost : 0;
  return enough;
}

bool RegularSet::contains(std::string_view text) const {
  if (is_empty()) return false;
  uint32_t at = 0;
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    const std::vector<Edge>& edges = states[at].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(), [&](const Edge& e) {
      return e.first <= c.code && c.code <= e.last;
    });
    if (!c.valid || edge == edges.end()) return false;
    at = edge->target;
    text.remove_prefix(c.length);
  }
  return states[at].accepts;
}

Result<RegularSet> regular_set(const GrammarRules& rules, int expr, RegularWork& work) {
  const std::vector<Parts::State> parts = KTX_TRY(Parts(rules).build(expr));
  if (!work.spend(parts.size())) return too_many_states();
  RegularSet out;
  std::map<std::vector<uint32_t>, uint32_t> ids;
  std::vector<const std::vector<uint32_t>*> sets;
  std::vector<uint32_t> mark(parts.size(), 0);
  uint32_t round = 0;
  bool full = false;
  // What can be reached without a character.
  const auto id_of = [&](std::vector<uint32_t> todo) {
    std::vector<uint32_t> set;
    ++round;
    while (!todo.empty()) {
      const uint32_t s = todo.back();
      todo.pop_back();
      if (mark[s] == round) continue;
      mark[s] = round;
      set.push_back(s);
      full |= !work.spend(1 + parts[s].empty.size());
      todo.insert(todo.end(), parts[s].empty.begin(), parts[s].empty.end());
    }
    std::erase_if(set, [&](uint32_t s) { return s != 1 && parts[s].edges.empty(); });
    std::sort(set.begin(), set.end());
    const auto [found, added] = ids.try_emplace(std::move(set), static_cast<uint32_t>(sets.size()));
    if (added) sets.push_back(&found->first);
    return found->second;
  };
  id_of({0});
  for (size_t i = 0; i < sets.size(); ++i) {
    RegularSet::State state;
    state.accepts = std::binary_search(sets[i]->begin(), sets[i]->end(), 1u);
    // Where edges begin and end.
    std::vector<uint32_t> cuts;
    std::vector<RegularSet::Edge> edges;
    for (const uint32_t s : *sets[i]) {
      edges.insert(edges.end(), parts[s].edges.begin(), parts[s].edges.end());
    }
    for (const RegularSet::Edge& edge : edges) cuts.insert(cuts.end(), {edge.first, edge.last + 1});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (full || sets.size() > kMaxSetStates || !work.spend(1 + cuts.size() * edges.size() / 8)) {
      return too_many_states();
    }
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<uint32_t> targets;
      for (const RegularSet::Edge& edge : edges) {
        if (edge.first <= cuts[c] && cuts[c] <= edge.last) targets.push_back(edge.target);
      }
      if (targets.empty()) continue;
      state.edges.push_back({cuts[c], cuts[c + 1] - 1, id_of(std::move(targets))});
    }
    out.states.push_back(std::move(state));
  }
  return trimmed(std::move(out));
}

Result<RegularSet> common(const RegularSet& a, const RegularSet& b, RegularWork& work) {
  return product(a, b, true, work);
}
Result<RegularSet> without(const RegularSet& a, const RegularSet& b, RegularWork& work) {
  return product(a, b, false, work);
}

}  // namespace ktx::text::grammar
