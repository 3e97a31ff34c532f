// Chooses the next token from the logits.
//
//   Sampler sampler = KTX_TRY(Sampler::create({.temperature = 0.7f, .seed = 1}, vocab));
//   int32_t id = KTX_TRY(sampler.sample(logits, history));
//
// Steps, in this order; each does nothing at its default value:
//   1. logit bias, then what is not allowed goes (a grammar);
//   2. repetition, presence and frequency penalty over the last tokens;
//   3. temperature 0: the best logit wins, of equals the lowest id. Else
//   4. top_k: the k best stay;
//   5. top_p: of these the smallest best set with that share of probability;
//   6. min_p: of these all with at least min_p times the best one's probability;
//   7. the logits are divided by the temperature and one token is drawn.
// Steps 5 and 6 use probabilities before the temperature, as llama.cpp does. At least one token
// always remains. One random number is used per drawn token, so the same seed, options and
// logits give the same tokens on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lib/runtime/sampling/best_logits.h"
#include "lib/runtime/sampling/random.h"
#include "lib/runtime/sampling/token_filter.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct SamplingOptions {
  float temperature = 0.8f;      // 0: greedy
  int32_t top_k = 40;            // 0: off
  float top_p = 0.95f;           // 1: off
  float min_p = 0.05f;           // 0: off
  float repetition_penalty = 1;  // 1: off; logits of seen tokens: / if positive, * if negative
  float presence_penalty = 0;    // subtracted once from the logit of a seen token
  float frequency_penalty = 0;   // subtracted as often as the token was seen
  int32_t penalty_window = 64;   // how many last tokens count; -1: all
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
};

// Where a sampler is in its random numbers: what a session file keeps.
struct SamplerState {
  std::array<uint64_t, 4> random{};
  bool operator==(const SamplerState&) const = default;
};

// Greedy decoding without penalties: what `--temp 0` asks for.
SamplingOptions greedy_sampling();

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
  // give, of those that are allowed; -1: all are needed (penalties, bias, a top_k that is off or
  // above kMostBestLogits).
  int32_t best_needed() const;
  // The same token as from all logits, from at least best_needed() of them.
  Result<int32_t> sample(const BestLogits& best);

  const SamplingOptions& options() const { return options_; }
  SamplerState state() const { return {random_.state()}; }
  void set_state(const SamplerState& state) { random_.set_state(state.random); }

 private:
  struct Candidate {
    int32_t id;
    float logit;
  };
  Sampler(SamplingOptions options, int64_t vocab_size);
  bool penalties() const;
  void apply_penalties(std::span<const int32_t> history);
  void collect();
  int32_t draw();  // one of candidates_
  static bool better(const Candidate& a, const Candidate& b);
  void keep_top(size_t count);

  SamplingOptions options_;
  Random random_;
  std::vector<float> logits_;
  std::vector<int32_t> seen_;  // per token id; zero between calls
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
};

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
// `count` is cut to the size of the vocabulary. Fails as sample() does.
Result<Logprobs> logprobs(std::span<const float> logits, int32_t chosen, int count);
// From the best logits, of which `chosen` is one; at most as many as they are.
Result<Logprobs> logprobs(const BestLogits& best, int32_t chosen, int count);

// The id of the largest logit, of equals the lowest. Fails as sample() does.
Result<int32_t> best_token(std::span<const float> logits);
Result<int32_t> best_token(std::span<const float> logits, TokenBits allowed);
Result<int32_t> best_token(const BestLogits& best);

}  // namespace ktx::runtime
