// One request to the batch scheduler: a prompt, sampling options, and callbacks.
//
//   GenerationRequest request;
//   request.prompt = ids;
//   request.max_tokens = 100;
//   request.is_end = [&](int32_t id) { return tokenizer.is_eog(id); };
//   request.on_token = [](const TokenEvent& token) { print(token.id); return true; };
//   request.on_end = [](const RequestEnd& end) { ... };
//
// With `prompt_logprobs` the log-probabilities of the prompt's own tokens are reported as they are
// computed: all of the prompt is computed then, also what the cache has.
//
// A request with `embed` has no answer: the hidden states of its text are pooled to one vector.
//
// The callbacks run on the engine's thread, between two steps: they must be quick and must not
// wait for the scheduler.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/runtime/cache/prefix_cache.h"
#include "lib/runtime/draft/speculation.h"
#include "lib/runtime/engine/engine.h"
#include "lib/runtime/lora/lora_choice.h"
#include "lib/runtime/sampling/sampler.h"
#include "lib/runtime/sampling/token_filter.h"
#include "lib/runtime/scheduler/key_shares.h"
#include "lib/runtime/scheduler/scheduler_stats.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// How the hidden states of a text (the final norm's output) become one vector: that of its last
// token or its first, or the mean of all; None leaves them as they are, one behind the other.
// Scores are those of a model that scores texts, in their place. All but Last, and Scores of a
// decoder, compute the whole text, also what is cached.
enum class Pooling { Last, Mean, None, First, Scores };

struct RequestEnd;
struct TokenEvent {
  int32_t id = -1;
  const Logprobs* logprobs = nullptr;  // if requested; valid during the call
  const RequestEnd* so_far = nullptr;  // valid during the call
};

enum class EndReason {
  Stop,         // the model's end token, or on_token returned false
  Length,       // max_tokens
  ContextFull,  // the context or the whole cache is full
  Cancelled,
  Deadline,
  Failed,    // RequestEnd::error says why
  ShutDown,  // the scheduler ended
};
static_assert(static_cast<size_t>(EndReason::ShutDown) + 1 == kEndReasons);

struct RequestEnd {
  EndReason reason = EndReason::Stop;
  std::string error;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt, not computed
  std::string cache_miss;         // why not more of them
  int64_t completion_tokens = 0;  // the end token included
  int64_t dropped_tokens = 0;     // of the text, to make room for more (ContextShift)
  double queue_seconds = 0;       // waiting for a place
  double prompt_seconds = 0;      // from then to the first token
  double decode_seconds = 0;      // from the first token to the last
  int64_t drafted_tokens = 0;     // drafted (speculation)
  int64_t accepted_tokens = 0;    // of these, right ones
  int preemptions = 0;            // how often it had to make room and began anew
  int slot = -1;
};

// How far the prompt is.
struct PromptProgress {
  int64_t tokens = 0;    // of the prompt
  int64_t cached = 0;    // of these, not computed
  int64_t computed = 0;  // of these, ready, with those that were cached
  double seconds = 0;    // since the request got its place
};

// What becomes of a text that fills its context before its answer has ended: tokens behind the
// first `keep` are dropped, and what stays is computed again.
struct ContextShift {
  int64_t keep = 0;  // -1: the whole prompt
  int64_t drop = 0;  // at a time; 0: half of what is behind `keep`
};

// What a client may choose of its answer.
struct GenerationOptions {
  int64_t max_tokens = -1;  // -1: until the model ends or the context is full
  SamplingOptions sampling;
  int logprobs = -1;  // how many of the best tokens to report; -1: none
  // Reports those of the distribution that the token was drawn from, not the model's own.
  bool sampled_logprobs = false;
  bool reuse_cache = true;                     // false: compute all of the prompt
  int64_t max_draft_tokens = kMaxDraftTokens;  // in a pass, where the scheduler drafts; 0: none
  int slot = -1;                               // the place in the batch that it waits for; -1: any
  std::optional<ContextShift> shift;           // none: the answer ends. Needs a limit of tokens.
  LoraChoice lora;                             // adapters that it is computed with
};

struct GenerationRequest : GenerationOptions {
  std::vector<int32_t> prompt;
  std::vector<ImageTokens> images;  // of the prompt, rising: its tokens below 0 are theirs
  // Whose text it is: slots and kept prefixes are found by the same owner alone.
  std::string owner;
  ShareOf share;  // whose part of the batch it takes
  // As `logprobs` for each token of the prompt from this one on, whose position comes with them, in
  // order; nothing stands before the first, 0.
  int prompt_logprobs = -1;
  int64_t first_prompt_logprobs = 1;
  std::function<void(int64_t position, const Logprobs&)> on_prompt_logprobs;
  std::function<bool(int32_t)> is_end;  // null: no token ends the answer
  bool tell_end = false;                // on_token is called for that token, too
  std::unique_ptr<TokenFilter> filter;  // null: all tokens
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // To go on with an answer that was interrupted (a slot that was saved): where its random
  // numbers were, and how many tokens at the end of the prompt are its own, which the filter
  // accepts first.
  std::optional<SamplerState> sampler;
  int64_t answered_tokens = 0;
  // Instead of an answer; not normalised. max_tokens and on_token do not count then.
  std::optional<Pooling> embed;
  std::function<void(std::vector<float>)> on_embedding;
  // When the request has its place, and after each step that computed a part of the prompt.
  std::function<void(const PromptProgress&)> on_progress;
  std::function<bool(const TokenEvent&)> on_token;  // false ends it; see tell_end
  std::function<void(const RequestEnd&)> on_end;    // exactly once, the last call
};

}  // namespace ktx::runtime
