#include "lib/text/grammar/grammar_matcher.h"

#include <algorithm>

namespace ktx::text::grammar {
namespace {

constexpr size_t kMaxSeen = 1024;       // places without a byte between, in one step
constexpr size_t kFramesCompared = 64;  // of the newest, for one that is the same
constexpr size_t kComparesPerWork = 8;  // comparing one by one is that much cheaper

bool contains(const std::vector<Config>& configs, size_t first, const Config& config) {
  return std::find(configs.begin() + static_cast<ptrdiff_t>(first), configs.end(), config) !=
         configs.end();
}

}  // namespace

uint32_t Matcher::push(uint32_t target, uint32_t below) {
  const size_t oldest = frames_.size() - std::min(frames_.size() - 1, kFramesCompared);
  for (size_t f = frames_.size() - 1; f >= oldest && f > 0; --f) {
    if (frames_[f].target == target && frames_[f].below == below) return static_cast<uint32_t>(f);
  }
  work_ += 1 + kFramesCompared / kComparesPerWork;
  const uint32_t depth = frames_[below].depth + 1;
  if (depth > kMaxStackDepth) {
    dropped_ = true;
    return 0;
  }
  frames_.push_back({target, below, depth});
  return static_cast<uint32_t>(frames_.size()) - 1;
}

void Matcher::add(Config config, std::vector<Config>& configs, size_t first) {
  if (contains(configs, first, config)) return;
  if (configs.size() - first < kMaxConfigs) {
    configs.push_back(config);
  } else {
    dropped_ = true;
  }
}

bool Matcher::enter(Config config, std::vector<Config>& configs, size_t first) {
  seen_.clear();
  return enter_unseen(config, configs, first);
}

bool Matcher::enter_unseen(Config config, std::vector<Config>& configs, size_t first) {
  const Automaton& a = *automaton_;
  work_ += 1 + (configs.size() - first) / kComparesPerWork;
  if (exhausted()) return false;
  if (a.states[config.state].plain()) {
    add(config, configs, first);
    return false;
  }
  bool bottom = false;
  todo_.assign(1, config);
  while (!todo_.empty() && !exhausted()) {
    const Config at = todo_.back();
    todo_.pop_back();
    work_ += 1 + (seen_.size() + configs.size() - first) / kComparesPerWork;
    const State& state = a.states[at.state];
    if (!state.plain()) {
      if (contains(seen_, 0, at)) continue;
      dropped_ |= seen_.size() >= kMaxSeen;
      if (seen_.size() >= kMaxSeen) continue;
      seen_.push_back(at);
    }
    if (state.has_bytes) add(at, configs, first);
    for (uint32_t c = 0; c < state.call_count; ++c) {
      const Call& call = a.calls[state.first_call + c];
      uint32_t frame = at.frame;
      if (!a.states[call.target].only_final()) {
        frame = push(call.target, at.frame);
        if (frame == 0) continue;
      }
      todo_.push_back({call.start, frame});
    }
    if (!state.final) continue;
    if (at.frame == 0) {
      bottom = true;
    } else {
      todo_.push_back(below(at.frame));
    }
  }
  return bottom;
}

bool Matcher::step(std::vector<Config>& configs, size_t begin, size_t end, uint8_t byte) {
  bool bottom = false;
  seen_.clear();
  for (size_t i = begin; i < end; ++i) {
    const Config from = configs[i];
    const uint32_t next = automaton_->next(from.state, byte);
    if (next != kDead) bottom |= enter_unseen({next, from.frame}, configs, end);
  }
  return bottom;
}

void Matcher::compact(std::span<Config> configs) {
  std::vector<bool> used(frames_.size(), false);
  for (const Config& config : configs) {
    for (uint32_t f = config.frame; f != 0 && !used[f]; f = frames_[f].below) used[f] = true;
  }
  // A frame stands behind the one below it, so one walk renames both.
  std::vector<uint32_t> name(frames_.size(), 0);
  size_t kept = 1;
  for (size_t f = 1; f < frames_.size(); ++f) {
    if (!used[f]) continue;
    name[f] = static_cast<uint32_t>(kept);
    frames_[kept] = frames_[f];
    frames_[kept].below = name[frames_[f].below];
    ++kept;
  }
  frames_.resize(kept);
  for (Config& config : configs) config.frame = name[config.frame];
}

}  // namespace ktx::text::grammar
