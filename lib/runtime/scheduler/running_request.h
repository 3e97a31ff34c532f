// A request inside the batch scheduler, from arrival to end: its text so far, its sampler, and,
// while it has a slot in the batch, the sequence with its KV blocks.
//
//   waiting    sequence empty; after a preemption tokens holds a part of the answer too
//   running    computed() tokens are in the cache, remaining() are to be computed
//   ended      result is complete, and on_end was called with it
//
// Private to the batch scheduler; the engine's thread owns it once it has arrived.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/runtime/scheduler/batch_scheduler.h"
#include "lib/runtime/session/text_run.h"

namespace ktx::runtime {

inline double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The text of the exception that is being handled, for RequestEnd::error.
inline std::string exception_text() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "an error inside the server: not enough memory";
  } catch (const std::exception& error) {
    return std::string("an error inside the server: ") + error.what();
  } catch (...) {
    return "an error inside the server";
  }
}

// Its tokens are the prompt, then the answer so far.
struct BatchScheduler::Running : TextRun {
  Running(RequestId id, GenerationRequest request, Sampler sampler)
      : TextRun(std::move(sampler)), id(id), request(std::move(request)) {
    owner = this->request.owner;
    tokens = this->request.prompt;
    images = this->request.images;
    next_told = std::max<int64_t>(1, this->request.first_prompt_logprobs);
    result.prompt_tokens = static_cast<int64_t>(tokens.size());
  }

  bool in_prompt() const { return result.completion_tokens == 0; }
  // Its next rows of logits are those of the prompt's tokens, of which each is needed.
  bool tells_prompt() const { return has_untold() && begun() >= next_told - 1; }
  // Tokens in front of those, of which no row is needed; 0: none.
  int64_t tokens_before_told() const {
    return has_untold() ? std::max<int64_t>(0, next_told - 1 - begun()) : 0;
  }
  bool has_untold() const {
    return request.prompt_logprobs >= 0 && next_told < static_cast<int64_t>(request.prompt.size());
  }
  // Tokens of the answer, with those that an interrupted one had before; of a text that was
  // shifted, as many as it still has.
  int64_t answered() const {
    return std::min(request.answered_tokens + result.completion_tokens,
                    static_cast<int64_t>(tokens.size()));
  }
  ShareItem share_item(int64_t blocks) const {
    return {&request.share, id, remaining(), in_prompt(), blocks};
  }
  // What is new of it since the last call, for its key's meter (key_shares.h). Tokens that are
  // computed again after it made room do not count.
  double take_charge() {
    const int64_t prompt = std::min(computed(), result.prompt_tokens);
    const int64_t fresh = std::max<int64_t>(0, prompt - charged_prompt);
    const int64_t answer = result.completion_tokens - charged_answer;
    charged_prompt += fresh;
    charged_answer += answer;
    return static_cast<double>(fresh) * KeyShares::kPromptToken + static_cast<double>(answer);
  }
  // Times of the result, up to its last token.
  void take_times() {
    if (result.completion_tokens == 0) return;
    result.prompt_seconds = seconds(first_token - submitted) - result.queue_seconds;
    result.decode_seconds = seconds(last_token - first_token);
  }
  // Another place behind the prompt, where such are wanted.
  void add_snapshot(int64_t place) {
    if (!snapshots.empty() && place > snapshots.back()) snapshots.push_back(place);
  }
  void tell_progress() const {
    if (!request.on_progress) return;
    PromptProgress progress;
    progress.tokens = result.prompt_tokens;
    progress.cached = result.cached_tokens;
    progress.computed = std::min(computed(), result.prompt_tokens);
    progress.seconds = seconds(Clock::now() - admitted);
    request.on_progress(progress);
  }
  SlotText slot_text() const {
    return {tokens, answered(), sampler.state(), request.sampling, request.lora};
  }

  RequestId id;
  GenerationRequest request;
  std::vector<uint64_t> blocks;  // names of those of its text, when it got its place
  int64_t kept_blocks = 0;       // that the prefix cache has
  int64_t parting = -1;          // of its text and others, as known when snapshots were chosen
  std::vector<float> pooled;     // embeddings: the sum of `pooled_rows` hidden rows
  int64_t pooled_rows = 0;
  int64_t next_told;  // log-probabilities of the prompt go on with this one of its tokens
  bool asked_cache = false;
  bool gives_way = false;    // no step begins with it: another one gets its place
  int64_t overtaken = 0;     // by requests of other keys, for want of blocks
  int64_t blocks_after = 0;  // no other gives blocks back for it before that step
  int64_t charged_prompt = 0, charged_answer = 0;  // tokens that its key's meter has
  int64_t in_flight = 0;                           // steps that have begun and have no results yet
  int64_t last_step = 0;                           // by number
  bool ended = false;
  // As soon as none is in flight.
  struct Ending {
    EndReason reason;
    std::string error;
  };
  std::optional<Ending> ends_as;
  RequestEnd result;
  Clock::time_point submitted, admitted, first_token, last_token;
};

// What a step computes, and for whom: item i is who[i]'s.
struct BatchScheduler::StepItems {
  std::vector<BatchItem> items;  // of their tokens the number alone, once the step has begun
  std::vector<Running*> who;
  double seconds = 0;  // in the engine so far

  int64_t count(size_t i) const { return static_cast<int64_t>(items[i].tokens.size()); }
  // Rows of logits that item i has.
  int64_t rows(size_t i) const {
    return items[i].want == Want::None ? 0 : items[i].want == Want::All ? count(i) : 1;
  }
  // The rows of item i are those of its tokens, one by one, and not of draft tokens.
  bool tells_prompt(size_t i) const {
    return items[i].want == Want::All && who[i]->draft_tokens == 0 &&
           who[i]->request.prompt_logprobs >= 0;
  }
  int64_t tokens() const {
    int64_t sum = 0;
    for (size_t i = 0; i < items.size(); ++i) sum += count(i);
    return sum;
  }
};

}  // namespace ktx::runtime
