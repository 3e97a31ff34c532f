// Who computes how many tokens in the next step.
//
// Everybody who generates gets its one token. What is left of the budget goes to
// prompts: a quarter to the one that waits longest (it never starves), the rest to
// those with the fewest tokens left (a short question need not wait for a long
// document). A step that ends a prompt, so that somebody's first token comes with it, is
// filled only up to an eighth of the budget by those that go on, of which the oldest has
// a sixteenth in any case: a short question behind a long document waits for what is
// left of one whole step, and then for its own tokens and an eighth of one. A prompt
// whose next block somebody else computes in this step waits: in the next step it is in
// the cache, so a shared beginning is computed once.
//
//   budget 256; generating: 3 requests; prompts: 8000 left (oldest), 300 left
//     -> 1, 1, 1, 63, 190
//   ... and 10 left
//     -> 1, 1, 1, 19, 0, 10
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ktx::runtime {

struct StepCandidate {
  int64_t remaining = 1;  // tokens to compute; 1: generating, or the end of a prompt
  uint64_t arrival = 0;   // lower: earlier
  int64_t position = 0;   // tokens in the cache
  // Names of the whole blocks of its text, the first at position 0; equal names mean
  // equal text from the beginning.
  std::span<const uint64_t> blocks;
  bool silent = false;  // nothing was said yet, so that its first token comes when 1 remains
};

// Tokens for each candidate, in their order; the sum is at most `budget`, which must
// be at least the number of candidates.
std::vector<int64_t> plan_step(std::span<const StepCandidate> candidates, int64_t budget,
                               int64_t block_tokens);

}  // namespace ktx::runtime
