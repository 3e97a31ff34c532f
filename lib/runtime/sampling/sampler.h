// Chooses the next token from the logits.
//
//   Sampler sampler = KTX_TRY(Sampler::create({.temperature = 0.7f, .seed = 1}, vocab));
//   int32_t id = KTX_TRY(sampler.sample(logits, history));
//
// Steps, in this order; each does nothing at its neutral value:
//   1. logit bias, then what is not allowed goes (a grammar);
//   2. repetition, presence and frequency penalty over the last tokens, and DRY;
//   3. temperature 0: the best logit wins, of equals the lowest id. Else
//   4. top_n_sigma: the logits within n standard deviations of the best stay;
//   5. top_k: the k best stay;
//   6. typical_p: of these the ones with the most expected surprise;
//   7. top_p: of these the smallest best set with that share of probability;
//   8. min_p: of these all with at least min_p times the best one's probability;
//   9. XTC: now and then the most likely ones go;
//  10. the logits are divided by the temperature, which may depend on the entropy, and one token is
//      drawn. Mirostat 2 is this step with a bound of its own; 4 to 9 do not apply then.
// Steps 4 to 9 use probabilities before the temperature, as llama.cpp does. At least one token
// always remains. One random number is used per drawn token, with XTC two, so the same seed,
// options and logits give the same tokens on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/runtime/sampling/best_logits.h"
#include "lib/runtime/sampling/candidates.h"
#include "lib/runtime/sampling/random.h"
#include "lib/runtime/sampling/sampling_options.h"
#include "lib/runtime/sampling/token_filter.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// The natural logarithm of a token's probability: log-softmax of the raw logits,
// before bias, penalties and temperature, in double precision.
struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};
struct Logprobs {
  double logprob = 0;             // of the chosen token
  std::vector<TokenLogprob> top;  // the best, falling; of equals the lower id first
};

class Sampler {
 public:
  // Fails on values that are not finite or out of range, naming the option.
  static Result<Sampler> create(SamplingOptions options, int64_t vocab_size);

  // `history`: all tokens of the sequence, oldest first; ids outside of the
  // vocabulary are ignored. Fails when a logit is NaN or +infinity, or when
  // nothing is allowed. Not thread-safe; allocates only while warming up.
  Result<int32_t> sample(std::span<const float> logits, std::span<const int32_t> history,
                         const std::optional<TokenBits>& allowed = {});

  // How many of the best logits are enough to choose the token that all of them would
  // give, of those that are allowed; -1: all are needed (penalties, bias, a bound on all logits, a
  // top_k that is off or above kMostBestLogits).
  int32_t best_needed() const;
  // The same token as from all logits, from at least best_needed() of them.
  Result<int32_t> sample(const BestLogits& best);

  const SamplingOptions& options() const { return options_; }
  SamplerState state() const { return {random_.state(), mirostat_bound_}; }
  void set_state(const SamplerState& state);

  // What the last token was drawn from: its probability, and those of the `count` likeliest.
  Logprobs drawn_from(int32_t chosen, int count) const;

 private:
  Sampler(SamplingOptions options, int64_t vocab_size);
  bool penalties() const;
  bool changes_logits() const;
  void apply_penalties(std::span<const int32_t> history);
  void collect();
  int32_t draw();  // one of candidates_
  void decide(int32_t id);

  SamplingOptions options_;
  Random random_;
  std::vector<float> logits_;
  std::vector<int32_t> seen_;  // per token id; zero between calls
  Candidates candidates_;
  std::vector<double> weights_;  // of the candidates, since the last draw
  double mirostat_bound_ = 0;    // bits
};

// `count` is cut to the size of the vocabulary. Fails as sample() does.
Result<Logprobs> logprobs(std::span<const float> logits, int32_t chosen, int count);
// From the best logits, of which `chosen` is one; at most as many as they are.
Result<Logprobs> logprobs(const BestLogits& best, int32_t chosen, int count);

// The id of the largest logit, of equals the lowest. Fails as sample() does.
Result<int32_t> best_token(std::span<const float> logits);
Result<int32_t> best_token(std::span<const float> logits, TokenBits allowed);
Result<int32_t> best_token(const BestLogits& best);

}  // namespace ktx::runtime
