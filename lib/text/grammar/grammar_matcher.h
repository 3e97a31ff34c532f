// Runs an automaton over bytes: a set of states (configurations), each with its stack of calls.
//
// The stacks share their frames: a frame is a return state and the frame below; frame 0 is the
// bottom. Stacks of more than kMaxStackDepth calls and more than kMaxConfigs configurations at
// once are dropped, so that hostile grammars take bounded time; only text that could have been
// allowed is ever lost. That bounds one byte. A mask follows hundreds of thousands of bytes, so
// the work since begin_work() is limited too: `x ::= . | . x | . x .` can be parsed in so many
// ways that one mask would take 19 s.
//
// An item of a loop that stands at the bottom (a mask is found for a state alone) may be followed
// by any number of others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

inline constexpr uint32_t kMaxStackDepth = 256;
inline constexpr size_t kMaxConfigs = 128;
// In places looked at: 0.2 s. With 128,000 tokens, JSON and llama.cpp's examples of GBNF
// take at most 0.5 million for a mask, palindromes of 20 letters 12 million.
inline constexpr uint64_t kMaxMatchWork = 30'000'000;

struct Config {
  uint32_t state = 0;
  uint32_t frame = 0;
  bool operator==(const Config&) const = default;
};

class Matcher {
 public:
  explicit Matcher(const Automaton& automaton) : automaton_(&automaton) { frames_.push_back({}); }

  // From here on kMaxMatchWork is allowed. exhausted(): it was not enough; from then on
  // nothing is found to follow. dropped(): another limit left a way to read the text out.
  void begin_work() {
    work_ = 0;
    dropped_ = false;
  }
  void exhaust() { work_ = kMaxMatchWork + 1; }
  bool exhausted() const { return work_ > kMaxMatchWork; }
  bool dropped() const { return dropped_; }

  // Adds a state and what can be reached from it without a byte: all configurations
  // from `first` on that a byte can leave. True when the bottom is reached, that is,
  // when what was started may end here.
  bool enter(Config config, std::vector<Config>& configs, size_t first);

  // From the configurations [begin, end) over a byte to those behind `end`, which is
  // the end of `configs`. True as for enter().
  bool step(std::vector<Config>& configs, size_t begin, size_t end, uint8_t byte);

  // What may come behind the end of the call that `frame` stands for; not of the bottom.
  void leave(uint32_t frame, std::vector<Config>& configs);
  // How many more items may follow the one of `frame`; INT32_MAX where none are counted.
  int32_t items_left(uint32_t frame) const {
    const int32_t loop = frames_[frame].loop;
    const int max = loop < 0 ? kNoLimit : automaton_->loops[loop].max;
    return max == kNoLimit ? INT32_MAX : max - frames_[frame].count;
  }

  size_t frame_count() const { return frames_.size(); }
  void drop_frames(size_t count) { frames_.resize(count); }
  // Forgets all frames that no configuration uses.
  void compact(std::span<Config> configs);

 private:
  struct Frame {
    uint32_t target = 0;
    uint32_t below = 0;
    uint32_t depth = 0;
    int32_t loop = -1;
    int32_t count = 0;  // items of the loop, the one at hand included; no further than is needed
  };
  // The frame for a call; 0 when the stack is too deep.
  uint32_t push(const Call& call, uint32_t below, int32_t count);
  // Adds a configuration behind `first` unless it is there; dropped() at kMaxConfigs.
  void add(Config config, std::vector<Config>& configs, size_t first);
  // enter() within a step: what another configuration of it has led to is left out.
  bool enter_unseen(Config config, std::vector<Config>& configs, size_t first);
  // Adds to todo_ what may come behind the call that `frame` stands for.
  void end_call(uint32_t frame);
  bool follow_todo(std::vector<Config>& configs, size_t first);

  const Automaton* automaton_;
  std::vector<Frame> frames_;
  std::vector<Config> todo_;
  std::vector<Config> seen_;  // places that are not plain, in this step
  uint64_t work_ = 0;
  bool dropped_ = false;
};

}  // namespace ktx::text::grammar
