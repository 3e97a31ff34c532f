// Builds the automaton from fragments: removes what cannot end, makes each unit deterministic
// by the subset construction, and refuses left recursion.
#include "lib/text/grammar/grammar_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>

#include "lib/text/grammar/ambiguous_loops.h"
#include "lib/text/grammar/byte_runs.h"
#include "lib/text/grammar/follow_bytes.h"
#include "lib/text/grammar/grammar_fragments.h"
#include "lib/text/grammar/plain_room.h"

namespace ktx::text::grammar {
namespace {

// Which fragment states can reach the end of their unit, calls included.
class Live {
 public:
  explicit Live(const Fragments& fragments) : live_(fragments.states.size(), false) {
    std::vector<std::vector<uint32_t>> into(fragments.states.size());
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> callers(fragments.units.size());
    std::vector<std::vector<UnitEdge>> calls_into(fragments.states.size());
    std::unordered_map<uint32_t, uint32_t> unit_at_start;
    for (uint32_t s = 0; s < fragments.states.size(); ++s) {
      for (const uint32_t target : fragments.states[s].empty) into[target].push_back(s);
      for (const ByteEdge& edge : fragments.states[s].bytes) into[edge.target].push_back(s);
      for (const UnitEdge& edge : fragments.states[s].units) {
        callers[edge.unit].push_back({s, edge.target});
        calls_into[edge.target].push_back({edge.unit, s});
      }
    }
    productive_.assign(fragments.units.size(), false);
    for (uint32_t u = 0; u < fragments.units.size(); ++u) {
      unit_at_start[fragments.units[u].start] = u;
      mark(fragments.units[u].end);
    }
    while (!todo_.empty()) {
      const uint32_t state = todo_.back();
      todo_.pop_back();
      for (const uint32_t from : into[state]) mark(from);
      for (const UnitEdge& call : calls_into[state]) {
        if (productive_[call.unit]) mark(call.target);
      }
      const auto start = unit_at_start.find(state);
      if (start == unit_at_start.end() || productive_[start->second]) continue;
      productive_[start->second] = true;
      for (const auto& [from, target] : callers[start->second]) {
        if (live_[target]) mark(from);
      }
    }
  }

  bool state(uint32_t s) const { return live_[s]; }
  bool unit(uint32_t u) const { return productive_[u]; }

 private:
  void mark(uint32_t state) {
    if (live_[state]) return;
    live_[state] = true;
    todo_.push_back(state);
  }

  std::vector<bool> live_;
  std::vector<bool> productive_;
  std::vector<uint32_t> todo_;
};

// What the attempts to build an automaton have cost together.
struct BuildWork {
  size_t spent = 0;
  bool full = false;  // there were too many states
};

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Fragments& fragments, BuildWork& work)
      : fragments_(fragments),
        live_(fragments),
        mark_(fragments.states.size(), 0),
        is_end_(fragments.states.size()),
        work_(work.spent),
        full_(work.full) {
    for (const Unit& unit : fragments.units) is_end_[unit.end] = true;
  }

  Result<Automaton> build() {
    if (!live_.unit(0)) return Error{"the grammar matches no text at all"};
    classify_bytes();
    // Starts first: a call needs the start of a unit that may not be built yet.
    for (uint32_t u = 0; u < fragments_.units.size(); ++u) {
      const uint32_t start = fragments_.units[u].start;
      start_of_unit_.push_back(live_.unit(u) ? subset({&start, 1}) : kDead);
      if (live_.unit(u)) unit_of_state_[start_of_unit_[u]] = u;
    }
    for (uint32_t s = 0; s < out_.states.size(); ++s) {
      KTX_TRY(expand(s));
    }
    for (const UnitLoop& loop : fragments_.loops) {
      out_.loops.push_back({start_of_unit_[loop.next], loop.min, loop.max});
    }
    for (const uint32_t unit : unit_of_state_) {
      const int32_t again = fragments_.units[unit].again;
      out_.again.push_back(again < 0 ? kDead : start_of_unit_[static_cast<size_t>(again)]);
    }
    out_.start = start_of_unit_[0];
    KTX_TRY(refuse_left_recursion());
    return std::move(out_);
  }

 private:
  // Bytes that lie in the same ranges everywhere are one class.
  void classify_bytes() {
    std::array<bool, 257> cut = {};
    for (const FragmentState& state : fragments_.states) {
      for (const ByteEdge& edge : state.bytes) {
        cut[edge.low] = true;
        cut[edge.high + 1] = true;
      }
    }
    uint32_t at = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (byte > 0 && cut[byte]) ++at;
      out_.byte_class[byte] = static_cast<uint8_t>(at);
    }
    out_.class_count = at + 1;
  }

  // The state for a set of fragment states, made when it is new.
  uint32_t subset(std::span<const uint32_t> seeds) {
    if (seeds.size() == 1) {
      const auto known = of_one_.find(seeds[0]);
      if (known != of_one_.end()) return known->second;
    }
    std::vector<uint32_t> set;
    ++round_;
    todo_.assign(seeds.begin(), seeds.end());
    while (!todo_.empty()) {
      const uint32_t s = todo_.back();
      todo_.pop_back();
      if (mark_[s] == round_ || !live_.state(s)) continue;
      mark_[s] = round_;
      const FragmentState& state = fragments_.states[s];
      if (!state.bytes.empty() || !state.units.empty() || is_end_[s]) set.push_back(s);
      work_ += 1 + state.empty.size();
      todo_.insert(todo_.end(), state.empty.begin(), state.empty.end());
    }
    std::sort(set.begin(), set.end());
    uint32_t id = kDead;
    if (!set.empty()) {
      const auto [found, added] = ids_.try_emplace(set, out_.states.size());
      id = static_cast<uint32_t>(found->second);
      if (added) {
        out_.states.emplace_back();
        sets_.push_back(&found->first);
        unit_of_state_.push_back(unit_);
      }
    }
    if (seeds.size() == 1) of_one_[seeds[0]] = id;
    return id;
  }

  Status expand(uint32_t id) {
    unit_ = unit_of_state_[id];
    if (out_.states.size() > kMaxStates) {
      full_ = true;
      return Error{
          fmt::format("the grammar is too large: it needs more than {} states; use smaller counts, "
                      "or fewer rules or properties",
                      kMaxStates)};
    }
    if (work_ > kMaxCompileWork) {
      return Error{
          "the grammar is too large: too many ways to read a text; use fewer parts that may be "
          "absent, or smaller counts"};
    }
    const std::vector<uint32_t>& set = *sets_[id];
    State state;
    targets_.resize(out_.class_count);
    std::vector<uint32_t> classes;                                        // that lead somewhere
    std::map<std::pair<uint32_t, int32_t>, std::vector<uint32_t>> calls;  // by unit and loop
    for (const uint32_t s : set) {
      const FragmentState& fragment = fragments_.states[s];
      state.final |= is_end_[s];
      for (const ByteEdge& edge : fragment.bytes) {
        if (!live_.state(edge.target)) continue;
        for (uint32_t c = out_.byte_class[edge.low]; c <= out_.byte_class[edge.high]; ++c) {
          if (targets_[c].empty()) classes.push_back(c);
          targets_[c].push_back(edge.target);
          ++work_;
        }
      }
      for (const UnitEdge& edge : fragment.units) {
        if (live_.unit(edge.unit) && live_.state(edge.target)) {
          calls[{edge.unit, edge.loop}].push_back(edge.target);
        }
      }
    }
    out_.edges.resize(out_.edges.size() + out_.class_count, kDead);
    const size_t row = out_.edges.size() - out_.class_count;
    std::sort(classes.begin(), classes.end());
    for (const uint32_t c : classes) {
      // Neighbours often lead to the same place.
      const bool same = c > 0 && targets_[c] == targets_[c - 1];
      out_.edges[row + c] = same ? out_.edges[row + c - 1] : subset(targets_[c]);
      state.has_bytes |= out_.edges[row + c] != kDead;
    }
    for (const uint32_t c : classes) targets_[c].clear();
    state.first_call = static_cast<uint32_t>(out_.calls.size());
    for (const auto& [called, call_targets] : calls) {
      const auto [unit, loop] = called;
      out_.calls.push_back({start_of_unit_[unit], subset(call_targets), loop});
    }
    if (calls.size() > UINT16_MAX)
      return Error{"the grammar is too large: 65536 ways at one place"};
    state.call_count = static_cast<uint16_t>(calls.size());
    out_.states[id] = state;
    return {};
  }

  // A rule that can call itself before it takes a byte would be matched for ever.
  Status refuse_left_recursion() {
    std::unordered_map<uint32_t, size_t> unit_of_start;
    std::vector<uint32_t> starts;
    for (const uint32_t start : start_of_unit_) {
      if (start != kDead && unit_of_start.try_emplace(start, starts.size()).second) {
        starts.push_back(start);
      }
    }
    // Nullable: the end can be reached without a byte.
    std::vector<bool> nullable(starts.size(), false);
    std::vector<std::vector<size_t>> left(starts.size());  // units called before any byte
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t u = 0; u < starts.size(); ++u) {
        left[u].clear();
        ++round_;
        state_mark_.resize(out_.states.size(), 0);
        std::vector<uint32_t> todo = {starts[u]};
        while (!todo.empty()) {
          const uint32_t s = todo.back();
          todo.pop_back();
          if (state_mark_[s] == round_) continue;
          state_mark_[s] = round_;
          ++work_;
          if (out_.states[s].final && !nullable[u]) nullable[u] = changed = true;
          for (uint32_t c = 0; c < out_.states[s].call_count; ++c) {
            const Call& call = out_.calls[out_.states[s].first_call + c];
            const size_t callee = unit_of_start.at(call.start);
            left[u].push_back(callee);
            if (nullable[callee]) todo.push_back(call.target);
          }
        }
        if (work_ > kMaxCompileWork) return Error{"the grammar is too large: too many rules"};
      }
    }
    // A cycle of left calls: repeatedly take away what calls nothing on the left.
    std::vector<size_t> open_calls(starts.size());
    std::vector<std::vector<size_t>> callers(starts.size());
    std::vector<size_t> done;
    for (size_t u = 0; u < starts.size(); ++u) {
      open_calls[u] = left[u].size();
      for (const size_t callee : left[u]) callers[callee].push_back(u);
      if (open_calls[u] == 0) done.push_back(u);
    }
    size_t taken = 0;
    for (; taken < done.size(); ++taken) {
      for (const size_t caller : callers[done[taken]]) {
        if (--open_calls[caller] == 0) done.push_back(caller);
      }
    }
    if (taken == starts.size()) return {};
    return Error{
        "the grammar is left-recursive: a rule can call itself before it takes a character; "
        "write a repetition instead"};
  }

  struct SetHash {
    size_t operator()(const std::vector<uint32_t>& set) const {
      uint64_t hash = 0xCBF29CE484222325u;
      for (const uint32_t s : set) hash = (hash ^ s) * 0x100000001B3u ^ (hash >> 29);
      return hash;
    }
  };

  const Fragments& fragments_;
  Live live_;
  Automaton out_;
  std::vector<uint64_t> mark_;
  std::vector<uint64_t> state_mark_;
  uint64_t round_ = 0;
  std::vector<uint32_t> todo_;
  std::vector<std::vector<uint32_t>> targets_;  // by class of bytes, of one state
  std::unordered_map<std::vector<uint32_t>, size_t, SetHash> ids_;
  std::vector<const std::vector<uint32_t>*> sets_;  // of each state; the map's keys stay put
  std::unordered_map<uint32_t, uint32_t> of_one_;
  std::vector<uint32_t> start_of_unit_;
  std::vector<bool> is_end_;
  std::vector<uint32_t> unit_of_state_;
  uint32_t unit_ = 0;  // whose states are made
  size_t& work_;
  bool& full_;
};

}  // namespace

// Copies where they fit, else loops.
Result<Automaton> build_automaton(const GrammarRules& rules) {
  constexpr int64_t kFewStates = 100;  // of copies, also where there are too many of others
  constexpr int kMostRounds = 4;
  BuildWork work;
  LoopChoice choice;
  for (int round = 0;; ++round) {
    if (round == kMostRounds) choice.most_copied = INT64_MAX;
    work.full = false;
    Result<Fragments> fragments = build_fragments(rules, choice, work.full);
    Result<Automaton> built = fragments ? AutomatonBuilder(*fragments, work).build()
                                        : Result<Automaton>(fragments.error());
    if (!built && work.full && choice.most_copied > kFewStates && round < kMostRounds) {
      choice.most_copied = kFewStates;
      continue;
    }
    if (!built) return built.error();
    Automaton automaton = built.take();
    find_follow_bytes(automaton);
    const std::vector<size_t> ambiguous = ambiguous_loops(automaton, work.spent);
    for (const size_t loop : ambiguous) choice.copied.insert(fragments->loops[loop].expr);
    if (!ambiguous.empty()) continue;
    measure_room(automaton);
    measure_runs(automaton);
    return automaton;
  }
}

}  // namespace ktx::text::grammar
