// The best logits of a token, which the sampler can use instead of all of them.
//
//   best     40 tokens of 150,000, falling; of equal logits the lower id first
//   log_sum  log sum exp of all, for log-probabilities
//
// A GPU selects them in its own memory, so only these few are copied back (Engine::best).
#pragma once

#include <cstdint>
#include <span>

namespace ktx::runtime {

struct TokenLogit {
  float logit = 0;
  int32_t id = -1;
};

struct BestLogits {
  std::span<const TokenLogit> best;  // fewer than requested if fewer are allowed
  double log_sum = 0;                // NaN: a logit is NaN or +infinity
};

// At most so many can be requested.
inline constexpr int32_t kMostBestLogits = 128;

}  // namespace ktx::runtime
