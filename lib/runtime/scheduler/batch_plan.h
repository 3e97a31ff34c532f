// Chunked prefill: how many tokens each request computes in the next iteration.
//
// Every generating request gets its one token. The rest of the budget goes to prompts: a
// quarter to the oldest (it never starves), the remainder to those with the fewest tokens
// left (a short question need not wait for a long document). When a step finishes some
// request's prompt, prefill tokens of *other* requests fill at most 1/8 of the budget (the
// oldest always gets 1/16). This bounds the time to first token of a short prompt behind a
// long one: the running step, the prompt's own tokens, and 1/8 of a step. A prompt waits if
// another request computes its next block in this step: in the next step the block is in the
// prefix cache, so a shared beginning is computed once.
//
//   budget 256; generating: 3 requests; prompts: 8000 left (oldest), 300 left
//     -> 1, 1, 1, 63, 190
//   ... and 10 left
//     -> 1, 1, 1, 19, 0, 10
//
// Prompts of several keys share what is left for prompts, each key's by the rule above; what
// one leaves the others get. So no number of short prompts of a key holds up that of another.
//
// An image is never cut: a share ends before it or behind it. One that begins within a share is all
// of it as far as the step has room; where it has not, the oldest prompt takes the places of some
// that generate, so that an image as long as a step waits for one step at most.
//
// Where passes had better end at multiples of some number of tokens (chunks of delta nets), a
// prompt's share ends there if it does not end the prompt and loses less than an eighth.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

struct StepCandidate {
  // Tokens to compute; 1: generating, or the end of a prompt; 0: it is not its turn.
  int64_t remaining = 1;
  uint64_t arrival = 0;  // lower: earlier
  int64_t position = 0;  // tokens in the cache
  // Names of the whole blocks of its text, the first at position 0; equal names mean
  // equal text from the beginning.
  std::span<const uint64_t> blocks;
  bool silent = false;        // no token yet: its first token comes when 1 remains
  int64_t ahead = 0;          // tokens before `position` that steps in flight compute
  std::string_view key = {};  // whose share it takes (key_shares.h)
  double weight = 1;          // of the key
  std::span<const ImageTokens> images = {};  // of its text
};

// Tokens for each candidate, in their order; the sum is at most `budget`, which must
// be at least the number of candidates, and that of the tokens of any image.
std::vector<int64_t> plan_step(std::span<const StepCandidate> candidates, int64_t budget,
                               int64_t block_tokens, int64_t end_at = 1);

// The same for encoders: each text as a whole or not at all, the oldest first.
std::vector<int64_t> plan_whole_texts(std::span<const StepCandidate> candidates, int64_t budget);

}  // namespace ktx::runtime
