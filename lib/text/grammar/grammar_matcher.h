// Runs an automaton over bytes: a set of places in it (configurations), each with the
// stack of calls that it is in.
//
// The stacks share their frames: a frame is the place to go on at and the frame below;
// frame 0 is the bottom. Bounded: a stack of more than kMaxStackDepth calls and more
// than kMaxConfigs configurations at once are dropped, so that hostile grammars take
// bounded time; what is dropped is only ever text that could have been allowed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/text/grammar/grammar_automaton.h"

namespace ktx::text::grammar {

inline constexpr uint32_t kMaxStackDepth = 256;
inline constexpr size_t kMaxConfigs = 128;

struct Config {
  uint32_t state = 0;
  uint32_t frame = 0;
  bool operator==(const Config&) const = default;
};

class Matcher {
 public:
  explicit Matcher(const Automaton& automaton) : automaton_(&automaton) { frames_.push_back({}); }

  // Adds a state and what can be reached from it without a byte: all configurations
  // from `first` on that a byte can leave. True when the bottom is reached, that is,
  // when what was started may end here.
  bool enter(Config config, std::vector<Config>& configs, size_t first);

  // From the configurations [begin, end) over a byte to those behind `end`, which is
  // the end of `configs`. True as for enter().
  bool step(std::vector<Config>& configs, size_t begin, size_t end, uint8_t byte);

  // The configuration behind the call that `frame` stands for; not of the bottom.
  Config below(uint32_t frame) const { return {frames_[frame].target, frames_[frame].below}; }

  size_t frame_count() const { return frames_.size(); }
  void drop_frames(size_t count) { frames_.resize(count); }
  // Forgets all frames that no configuration uses.
  void compact(std::span<Config> configs);

 private:
  struct Frame {
    uint32_t target = 0;
    uint32_t below = 0;
    uint32_t depth = 0;
  };
  // The frame for a call; 0 when the stack is too deep.
  uint32_t push(uint32_t target, uint32_t below);

  const Automaton* automaton_;
  std::vector<Frame> frames_;
  std::vector<Config> todo_, seen_;
};

}  // namespace ktx::text::grammar
