#include "lib/text/grammar/byte_runs.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace ktx::text::grammar {
namespace {

constexpr size_t kMaxKeptSets = 16;  // of a vocabulary, some megabytes each
constexpr size_t kMaxRunSets = 8;    // of a grammar
constexpr size_t kFewestBytes = 16;  // smaller sets have few tokens: following them is as fast

// The ASCII bytes that lead from a state to one place, most of all places.
struct MainStep {
  uint32_t next = kDead;
  ByteSet bytes;
};

MainStep main_step(const Automaton& a, uint32_t state, const std::vector<ByteSet>& class_bytes) {
  std::vector<std::pair<uint32_t, ByteSet>> targets;
  for (uint32_t c = 0; c < a.class_count; ++c) {
    const uint32_t next = a.edges[size_t{state} * a.class_count + c];
    if (next == kDead || class_bytes[c].none()) continue;
    const auto known = std::find_if(targets.begin(), targets.end(),
                                    [&](const auto& target) { return target.first == next; });
    if (known != targets.end()) {
      known->second |= class_bytes[c];
    } else {
      targets.push_back({next, class_bytes[c]});
    }
  }
  MainStep best;
  for (const auto& [next, bytes] : targets) {
    if (bytes.count() > best.bytes.count()) best = {next, bytes};
  }
  return best.bytes.count() >= kFewestBytes ? best : MainStep{};
}

// With a byte of the set nothing may happen here.
bool takes_none(const Automaton& a, uint32_t state, const ByteSet& set) {
  for (uint32_t byte = 0; byte < 128; ++byte) {
    if (set[byte] && a.next(state, static_cast<uint8_t>(byte)) != kDead) return false;
  }
  return true;
}

// Nothing but an edge of its own can take a byte of the set: the state calls no rule, and
// where its rule may end none of them can follow.
bool alone(const Automaton& a, uint32_t state, const ByteSet& set) {
  const State& at = a.states[state];
  return at.call_count == 0 && (!at.final || (a.follow(state) & set).none());
}

}  // namespace

ByteRuns find_byte_runs(const TokenTrie& trie, size_t texts, const ByteSet& set) {
  std::vector<bool> run(trie.tokens.size());  // by place in trie.tokens
  std::vector<std::vector<int32_t>> by_length(kLongestRun + 1);
  size_t good = 0;  // the path to the node before has so many bytes of the set from its begin
  for (uint32_t n = 0; n < trie.size(); ++n) {
    const TokenTrie::Node& node = trie.nodes[n];
    const size_t depth = node.depth;
    good = std::min(good, depth - 1);
    if (good == depth - 1 && set[node.byte]) good = depth;
    if (good != depth || depth > kLongestRun) continue;
    for (uint32_t t = node.first_token; t < trie.nodes[n + 1].first_token; ++t) {
      run[t] = true;
      by_length[depth].push_back(trie.tokens[t]);
    }
  }
  ByteRuns runs;
  // From the leaves up: the children of a node stand behind it.
  runs.height.assign(trie.size(), 0);
  std::vector<uint32_t> path;
  std::vector<uint32_t> parent(trie.size(), UINT32_MAX);
  for (uint32_t n = 0; n < trie.size(); ++n) {
    path.resize(trie.nodes[n].depth - 1u);
    if (!path.empty()) parent[n] = path.back();
    path.push_back(n);
  }
  for (uint32_t n = static_cast<uint32_t>(trie.size()); n-- > 0;) {
    if (parent[n] == UINT32_MAX) continue;
    const int here = set[trie.nodes[n].byte] ? runs.height[n] + 1 : kNotPlain;
    uint8_t& above = runs.height[parent[n]];
    above = static_cast<uint8_t>(std::max<int>(above, std::min<int>(here, kNotPlain)));
  }
  std::vector<uint32_t> others(trie.tokens.size() + 1, 0);
  for (size_t t = 0; t < run.size(); ++t) others[t + 1] = others[t] + !run[t];
  runs.inside.resize(trie.size());
  for (uint32_t n = 0; n < trie.size(); ++n) {
    const TokenTrie::Node& node = trie.nodes[n];
    runs.inside[n] = others[trie.nodes[node.end].first_token] == others[node.first_token];
  }
  std::vector<uint32_t> bits((texts + 31) / 32, 0);
  for (size_t length = 0; length <= kLongestRun; ++length) {
    for (const int32_t token : by_length[length]) bits[token / 32] |= 1u << (token % 32);
    runs.upto.push_back(bits);
  }
  while (runs.upto.size() > 1 && by_length[runs.upto.size() - 1].empty()) runs.upto.pop_back();
  return runs;
}

std::shared_ptr<const ByteRuns> ByteRunsCache::get(const TokenTrie& trie, size_t texts,
                                                   const ByteSet& set) {
  const auto look_up = [&]() -> std::shared_ptr<const ByteRuns> {
    const auto found = std::find_if(kept_.begin(), kept_.end(),
                                    [&](const auto& kept) { return kept.first == set; });
    if (found == kept_.end()) return nullptr;
    std::rotate(kept_.begin(), found, found + 1);
    return kept_.front().second;
  };
  {
    const std::lock_guard lock(mutex_);
    if (auto runs = look_up()) return runs;
  }
  auto runs = std::make_shared<const ByteRuns>(find_byte_runs(trie, texts, set));
  const std::lock_guard lock(mutex_);
  if (auto first = look_up()) return first;
  kept_.insert(kept_.begin(), {set, runs});
  if (kept_.size() > kMaxKeptSets) kept_.pop_back();
  return runs;
}

void measure_runs(Automaton& a) {
  std::vector<ByteSet> class_bytes(a.class_count);
  for (uint32_t byte = 0; byte < 128; ++byte) class_bytes[a.byte_class[byte]].set(byte);
  std::unordered_map<ByteSet, uint16_t> ids;
  std::vector<uint32_t> next(a.states.size(), kDead);
  a.runs.assign(a.states.size(), {});
  for (uint32_t s = 0; s < a.states.size(); ++s) {
    const MainStep step = main_step(a, s, class_bytes);
    if (step.next == kDead) continue;
    auto known = ids.find(step.bytes);
    if (known == ids.end()) {
      if (a.run_sets.size() == kMaxRunSets) continue;
      a.run_sets.push_back(step.bytes);
      known = ids.emplace(step.bytes, static_cast<uint16_t>(a.run_sets.size())).first;
    }
    next[s] = step.next;
    a.runs[s].set = known->second;
  }
  // Along the chains of one set, from their ends; one that bites its tail has no end.
  enum : uint8_t { kUnknown, kOnPath, kKnown };
  std::vector<uint8_t> status(a.states.size(), kUnknown);
  std::vector<uint32_t> path;
  for (uint32_t s = 0; s < a.states.size(); ++s) {
    path.clear();
    const auto goes_on = [&](uint32_t at) {
      return path.empty() || a.runs[at].set == a.runs[path.back()].set;
    };
    uint32_t at = s;
    while (next[at] != kDead && status[at] == kUnknown && goes_on(at)) {
      status[at] = kOnPath;
      path.push_back(at);
      at = next[at];
    }
    for (size_t i = path.size(); i-- > 0;) {
      Run& run = a.runs[path[i]];
      const uint32_t behind = next[path[i]];
      const bool same = a.runs[behind].set == run.set;
      const bool loop = same && status[behind] == kOnPath;
      run.room = !same ? 1 : loop ? kNoEnd : std::min<int>(a.runs[behind].room + 1, kNoEnd);
      const ByteSet& set = a.run_sets[run.set - 1];
      run.closed =
          alone(a, path[i], set) && (same ? !loop && a.runs[behind].closed
                                          : alone(a, behind, set) && takes_none(a, behind, set));
      status[path[i]] = kKnown;
    }
  }
  // A byte that is an item of a loop: as many as the loop has left.
  for (uint32_t s = 0; s < a.states.size(); ++s) {
    if (a.again[s] != s || next[s] == kDead || !a.states[next[s]].only_final()) continue;
    a.runs[s].room = kNoEnd;
    a.runs[s].closed = false;
  }
}

}  // namespace ktx::text::grammar
