// A way to stream the CPU's experts in long prompts, and the predictions for a placement with it.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/plan/stream_slots.h"

namespace ktx::passes {

struct StreamWay {
  std::optional<plan::StreamSlots> slots;  // none: experts are not streamed
  int64_t chunk = 0;                       // tokens of a pass of a long prompt
};

inline constexpr int64_t kAnswerTokens = 512, kLongPrompt = 4096, kShortPrompt = 512;

// In seconds; all 0 where a rate of the target is not known.
struct ConversationTime {
  double token = 0, long_prompt = 0, short_prompt = 0;
  // What placements are compared by: an answer of 512 tokens, a prompt of 4096 and one of 512.
  double seconds() const {
    return static_cast<double>(kAnswerTokens) * token + long_prompt + short_prompt;
  }
};

struct StreamTrial {
  StreamWay way;
  double gpu_expert_use = 0;  // placement.h
  ConversationTime time;
  bool chosen = false;

  // The later one of two that take as long is better; so is it where nothing is known.
  bool is_better_than(const StreamTrial& other) const {
    return time.token == 0 || time.seconds() <= other.time.seconds();
  }
};

}  // namespace ktx::passes
