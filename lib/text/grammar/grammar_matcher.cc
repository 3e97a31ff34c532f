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

uint32_t Matcher::push(const Call& call, uint32_t below, int32_t count) {
  const size_t oldest = frames_.size() - std::min(frames_.size() - 1, kFramesCompared);
  for (size_t f = frames_.size() - 1; f >= oldest && f > 0; --f) {
    const Frame& frame = frames_[f];
    if (frame.target == call.target && frame.below == below && frame.loop == call.loop &&
        frame.count == count) {
      return static_cast<uint32_t>(f);
    }
  }
  work_ += 1 + kFramesCompared / kComparesPerWork;
  const uint32_t depth = frames_[below].depth + 1;
  if (depth > kMaxStackDepth) {
    dropped_ = true;
    return 0;
  }
  frames_.push_back({call.target, below, depth, call.loop, count});
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
  todo_.assign(1, config);
  return follow_todo(configs, first);
}

void Matcher::end_call(uint32_t frame) {
  const Frame ended = frames_[frame];
  if (ended.loop < 0) {
    todo_.push_back({ended.target, ended.below});
    return;
  }
  const Loop& loop = automaton_->loops[ended.loop];
  if (ended.count >= loop.min) todo_.push_back({ended.target, ended.below});
  if (loop.next == kDead || items_left(frame) <= 0) return;
  const bool counted = loop.max != kNoLimit || ended.count < loop.min;
  const uint32_t next =
      push({0, ended.target, ended.loop}, ended.below, ended.count + (counted ? 1 : 0));
  if (next != 0) todo_.push_back({loop.next, next});
}

void Matcher::leave(uint32_t frame, std::vector<Config>& configs) {
  seen_.clear();
  todo_.clear();
  end_call(frame);
  follow_todo(configs, configs.size());
}

bool Matcher::follow_todo(std::vector<Config>& configs, size_t first) {
  const Automaton& a = *automaton_;
  bool bottom = false;
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
      if (call.loop >= 0 || !a.states[call.target].only_final()) {
        frame = push(call, at.frame, 1);
        if (frame == 0) continue;
      }
      todo_.push_back({call.start, frame});
    }
    if (!state.final) continue;
    if (at.frame != 0) {
      end_call(at.frame);
      continue;
    }
    bottom = true;
    if (a.again[at.state] != kDead) todo_.push_back({a.again[at.state], 0});
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
