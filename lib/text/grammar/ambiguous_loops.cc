#include "lib/text/grammar/ambiguous_loops.h"

#include <cstdint>
#include <span>
#include <unordered_map>

#include "lib/text/grammar/grammar_matcher.h"

namespace ktx::text::grammar {
namespace {

class AmbiguousLoops {
 public:
  AmbiguousLoops(const Automaton& automaton, size_t& work)
      : a_(automaton), matcher_(automaton), work_(work) {}

  std::vector<size_t> find() {
    constexpr size_t kMostAtOnce = 16;  // loops that may begin at one place
    std::vector<bool> found(a_.loops.size(), false);
    for (uint32_t s = 0; s < a_.states.size() && !a_.loops.empty(); ++s) {
      for (const Call& call : calls_of(s)) {
        if (call.loop < 0 || found[call.loop]) continue;
        const uint32_t next = a_.loops[call.loop].next;
        if (next == kDead) continue;
        // (Its own bytes: another item, and with it another count, could begin beside this one.)
        found[call.loop] = calls_of(s).size() > kMostAtOnce ||
                           (bytes(s) & first(call.start)).any() ||
                           (first(next) & first(call.target)).any() || runs_on(call.start, next);
      }
    }
    std::vector<size_t> out;
    for (size_t l = 0; l < found.size(); ++l) {
      if (found[l]) out.push_back(l);
    }
    return out;
  }

 private:
  std::span<const Call> calls_of(uint32_t state) const {
    return std::span(a_.calls).subspan(a_.states[state].first_call, a_.states[state].call_count);
  }
  ByteSet bytes(uint32_t state) const {
    ByteSet out;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (a_.next(state, static_cast<uint8_t>(byte)) != kDead) out.set(byte);
    }
    return out;
  }
  // What may come first from a state on, behind its rule too where that may end.
  const ByteSet& first(uint32_t state) {
    const auto [known, added] = first_.try_emplace(state);
    if (!added) return known->second;
    std::vector<Config> configs;
    matcher_.begin_work();
    const size_t frames = matcher_.frame_count();
    if (matcher_.enter({state, 0}, configs, 0)) known->second |= a_.follow(state);
    for (const Config& config : configs) known->second |= bytes(config.state);
    matcher_.drop_frames(frames);
    work_ += 256 * configs.size();
    return known->second;
  }
  // Where an item may end it may also go on, in the way in which the next one begins. `start`: of
  // the item, `next`: of another one.
  bool runs_on(uint32_t start, uint32_t next) {
    const auto [known, added] = runs_on_.try_emplace(next, false);
    if (!added) return known->second;
    const ByteSet begins = first(next);
    std::vector<bool> seen(a_.states.size(), false);
    std::vector<uint32_t> todo = {start, next};
    while (!todo.empty() && !known->second) {
      const uint32_t s = todo.back();
      todo.pop_back();
      if (seen[s]) continue;
      seen[s] = true;
      work_ += 1 + a_.class_count / 8;
      if (work_ > kMaxCompileWork) return known->second = true;
      ByteSet more = a_.states[s].final ? bytes(s) : ByteSet();
      for (const Call& call : calls_of(s)) {
        if (a_.states[s].final) more |= first(call.start);
        if (a_.states[call.target].final) todo.push_back(call.start);  // the item may end with it
        todo.push_back(call.target);
      }
      known->second = (more & begins).any();
      for (uint32_t c = 0; c < a_.class_count; ++c) {
        const uint32_t to = a_.edges[size_t{s} * a_.class_count + c];
        if (to != kDead) todo.push_back(to);
      }
    }
    return known->second;
  }

  const Automaton& a_;
  Matcher matcher_;
  size_t& work_;
  std::unordered_map<uint32_t, ByteSet> first_;
  std::unordered_map<uint32_t, bool> runs_on_;  // by `next`
};

}  // namespace

std::vector<size_t> ambiguous_loops(const Automaton& automaton, size_t& work) {
  return AmbiguousLoops(automaton, work).find();
}

}  // namespace ktx::text::grammar
