// Counters of a batch scheduler and the contents of its slots, for metrics and /slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/engine/expert_use.h"
#include "lib/runtime/experts/expert_cache_use.h"
#include "lib/runtime/experts/expert_guest_use.h"
#include "lib/runtime/lora/lora_choice.h"
#include "lib/runtime/sampling/sampler.h"

namespace ktx::runtime {

// Counts of seconds up to each bound, and of all.
class SecondsHistogram {
 public:
  static constexpr std::array<double, 19> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   30,
                                                     60,    120,    300,   600,  1800};
  void add(double seconds) {
    size_t i = 0;
    while (i < kBounds.size() && seconds > kBounds[i]) ++i;
    ++counts_[i];
    sum_ += seconds;
    ++count_;
  }
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  int64_t in_bucket(size_t i) const { return counts_[i]; }  // kBounds.size(): above all bounds

 private:
  std::array<int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
  int64_t count_ = 0;
};

inline constexpr size_t kEndReasons = 7;  // EndReason (generation_request.h)

struct SchedulerStats {
  // Now.
  int64_t waiting = 0;
  int64_t running = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;  // by requests that run
  int64_t kv_blocks_idle = 0;  // kept for reuse
  int64_t state_slots_total = 0;
  int64_t state_slots_used = 0;  // by requests that run
  int64_t snapshots = 0;         // of states, kept for reuse
  // Since the start.
  int64_t requests = 0;  // accepted
  int64_t refused = 0;   // the queue was full
  int64_t ended = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  std::array<int64_t, kEndReasons> ended_by{};  // of `ended`, by EndReason
  int64_t preemptions = 0;
  int64_t steps = 0;
  int64_t step_requests = 0;      // sum over steps: requests in the batch
  int64_t prompt_tokens = 0;      // of all prompts
  int64_t cached_tokens = 0;      // of these, found in the cache
  int64_t computed_tokens = 0;    // by the engine, prompts and answers
  int64_t completion_tokens = 0;  // sampled
  int64_t drafted_tokens = 0;     // drafted (speculation)
  int64_t accepted_tokens = 0;    // of these, right
  double draft_seconds = 0;       // drafting
  int64_t draft_failed = 0;       // 1: it failed, and nothing is drafted any more
  double busy_seconds = 0;        // in steps
  double prompt_seconds = 0;      // sums over requests that gave a token: RequestEnd's
  double decode_seconds = 0;
  ExpertUse expert_use;  // activations of routed experts
  ExpertCacheUse expert_cache;
  ExpertGuestUse expert_guests;
  SecondsHistogram queue_time;
  SecondsHistogram first_token;  // from submit to the first token
  SecondsHistogram between_tokens;
  SecondsHistogram whole_time;  // from submit to the end, where the request was not cut off
  SecondsHistogram per_token;   // of an answer, the mean time of its tokens behind the first

  // The share of the cache that requests which run have.
  double kv_usage() const {
    return kv_blocks_total == 0
               ? 0
               : static_cast<double>(kv_blocks_used) / static_cast<double>(kv_blocks_total);
  }
};

// The tokens of a slot, and what it takes to go on with the answer at their end as if it
// had never been interrupted.
struct SlotText {
  std::vector<int32_t> tokens;
  int64_t answered = 0;  // of these, the last ones are the answer so far
  std::optional<SamplerState> sampler;
  SamplingOptions sampling;
  LoraChoice lora = {};
};

// A place in the batch. Places keep the text that was there last, so that it can be
// saved, restored and erased by number.
struct SlotState {
  int id = 0;
  bool busy = false;
  bool in_prompt = false;  // busy, and the prompt is not computed yet
  uint64_t request = 0;    // the one that runs, or ran last; 0: none yet
  int64_t tokens = 0;      // of its text
  int64_t computed = 0;    // of these, in the cache
};

}  // namespace ktx::runtime
