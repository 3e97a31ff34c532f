#include "lib/text/grammar/follow_bytes.h"

#include <cstdint>
#include <span>

namespace ktx::text::grammar {
namespace {

// Calls looked at. What takes more gets "any byte", which is right, too, and only slower.
constexpr size_t kMaxWork = 2'000'000;
constexpr uint32_t kNone = UINT32_MAX;

// What can come first from a state on within its rule, and what behind its rule.
class FollowFinder {
 public:
  explicit FollowFinder(const Automaton& automaton)
      : a_(automaton),
        first_(a_.states.size()),
        nullable_(a_.states.size(), false),
        rule_(a_.states.size(), kNone),
        users_(a_.states.size()) {
    for (uint32_t s = 0; s < a_.states.size(); ++s) {
      nullable_[s] = a_.states[s].final;
      for (uint32_t byte = 0; byte < 256 && a_.states[s].has_bytes; ++byte) {
        if (a_.next(s, static_cast<uint8_t>(byte)) != kDead) first_[s].set(byte);
      }
      for (const Call& call : calls_of(s)) {
        users_[call.start].push_back(s);
        if (call.target != call.start) users_[call.target].push_back(s);
      }
    }
  }

  // False: it takes too long.
  bool find(Automaton& out) {
    if (!find_first()) return false;
    find_rules();
    if (!find_follow()) return false;
    out.rule_of_state = std::move(rule_);
    out.follow_of_rule = std::move(follow_);
    return true;
  }

 private:
  std::span<const Call> calls_of(uint32_t state) const {
    return std::span(a_.calls).subspan(a_.states[state].first_call, a_.states[state].call_count);
  }

  bool find_first() {
    std::vector<uint32_t> todo;
    for (uint32_t s = 0; s < a_.states.size(); ++s) {
      if (a_.states[s].call_count > 0) todo.push_back(s);
    }
    while (!todo.empty()) {
      const uint32_t s = todo.back();
      todo.pop_back();
      ByteSet first = first_[s];
      bool nullable = nullable_[s];
      work_ += calls_of(s).size();
      if (work_ > kMaxWork) return false;
      for (const Call& call : calls_of(s)) {
        first |= first_[call.start];
        if (!nullable_[call.start]) continue;
        first |= first_[call.target];
        nullable = nullable || nullable_[call.target];
      }
      if (first == first_[s] && nullable == nullable_[s]) continue;
      first_[s] = first;
      nullable_[s] = nullable;
      todo.insert(todo.end(), users_[s].begin(), users_[s].end());
    }
    return true;
  }

  // A rule is what can be reached from its start without leaving it. Set 0 is for states
  // that two rules share: any byte.
  void find_rules() {
    follow_.assign(1, ByteSet().set());
    const auto add = [&](uint32_t start) {
      if (rule_[start] != kNone) return;
      const auto rule = static_cast<uint32_t>(follow_.size());
      follow_.emplace_back();
      std::vector<uint32_t> todo = {start};
      while (!todo.empty()) {
        const uint32_t s = todo.back();
        todo.pop_back();
        if (rule_[s] == rule || rule_[s] == 0) continue;
        rule_[s] = rule_[s] == kNone ? rule : 0;
        const auto go = [&](uint32_t next) {
          if (rule_[next] != rule && rule_[next] != 0) todo.push_back(next);
        };
        for (const Call& call : calls_of(s)) go(call.target);
        for (uint32_t c = 0; c < a_.class_count; ++c) {
          const uint32_t next = a_.edges[size_t{s} * a_.class_count + c];
          if (next != kDead) go(next);
        }
      }
    };
    add(a_.start);
    for (const Call& call : a_.calls) add(call.start);
    for (const Loop& loop : a_.loops) {
      if (loop.next != kDead) add(loop.next);
    }
    for (uint32_t& rule : rule_) rule = rule == kNone ? 0 : rule;
  }

  bool find_follow() {
    // What comes behind a call that ends its caller is what comes behind the caller.
    std::vector<std::vector<uint32_t>> passed_on(follow_.size());
    std::vector<uint32_t> todo;
    for (uint32_t s = 0; s < a_.states.size(); ++s) {
      for (const Call& call : calls_of(s)) {
        const uint32_t again = call.loop < 0 ? kDead : a_.loops[call.loop].next;
        for (const uint32_t start : {call.start, again}) {
          if (start == kDead) continue;
          const uint32_t callee = rule_[start];
          follow_[callee] |= first_[call.target];
          if (again != kDead) follow_[callee] |= first_[again];
          if (nullable_[call.target] && callee != rule_[s]) passed_on[rule_[s]].push_back(callee);
        }
      }
    }
    for (uint32_t rule = 0; rule < follow_.size(); ++rule) todo.push_back(rule);
    while (!todo.empty()) {
      const uint32_t rule = todo.back();
      todo.pop_back();
      work_ += passed_on[rule].size();
      if (work_ > kMaxWork) return false;
      for (const uint32_t callee : passed_on[rule]) {
        const ByteSet before = follow_[callee];
        follow_[callee] |= follow_[rule];
        if (follow_[callee] != before) todo.push_back(callee);
      }
    }
    return true;
  }

  const Automaton& a_;
  std::vector<ByteSet> first_;
  std::vector<bool> nullable_;
  std::vector<uint32_t> rule_;
  std::vector<std::vector<uint32_t>> users_;  // states with a call that begins or ends there
  std::vector<ByteSet> follow_;               // by rule
  size_t work_ = 0;
};

}  // namespace

void find_follow_bytes(Automaton& automaton) {
  if (!automaton.calls.empty() && FollowFinder(automaton).find(automaton)) return;
  automaton.rule_of_state.assign(automaton.states.size(), 0);
  automaton.follow_of_rule.assign(1, ByteSet().set());
}

}  // namespace ktx::text::grammar
