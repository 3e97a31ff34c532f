// How far a model is from another one, token by token, and from a text: perplexity,
// Kullback-Leibler divergence and what else llama.cpp's perplexity program reports, by its
// definitions, so that figures compare (tools/perplexity/perplexity.cpp, August 2026).
//
//   perplexity    exp of the mean of -ln p(token)
//   KLD           sum of p_base (ln p_base - ln p), over tokens with ln p_base > -16
//   same top      share of places where both have the same likeliest token
//   delta p       p(token) - p_base(token), in per cent
//
// An error "±" is that of the mean: the square root of (mean of squares - square of mean) / (n -
// 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/support/result.h"

namespace ktx::runtime {

struct Estimate {
  double value = 0;
  double error = 0;  // 0 where fewer than ten values are known
};

// Accumulates values and gives their mean and its error.
class Mean {
 public:
  void add(double value) {
    sum_ += value;
    squares_ += value * value;
    ++count_;
  }
  int64_t count() const { return count_; }
  double value() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double variance_of_mean() const;
  Estimate estimate() const;

 private:
  double sum_ = 0, squares_ = 0;
  int64_t count_ = 0;
};

// e to a mean of -ln p.
Estimate perplexity(const Mean& negative_logprobs);

// One place of a text, whose next token is known.
struct Divergence {
  double logprob = 0, base_logprob = 0;  // of that token
  double kld = 0;
  double delta_p = 0;  // from -1 to 1
  bool same_top = false;
};

// `base`: ln p of each token of the vocabulary, as many as `logits`. Fails where a logit is NaN or
// +infinity.
Result<Divergence> divergence(std::span<const float> base, std::span<const float> logits,
                              int32_t token);

// ln p of all tokens. Fails likewise. `out` has the size of `logits`.
Status all_logprobs(std::span<const float> logits, std::span<float> out);

// Means and shares over all places.
class DivergenceSum {
 public:
  void add(const Divergence& place);
  int64_t count() const { return kld_.count(); }

  const Mean& negative_logprobs() const { return nll_; }
  const Mean& base_negative_logprobs() const { return base_nll_; }
  Estimate mean_kld() const { return kld_.estimate(); }
  Estimate same_top() const;     // share
  Estimate rms_delta_p() const;  // share
  Estimate mean_delta_p() const { return delta_p_.estimate(); }
  // ln(perplexity / perplexity of the base).
  Estimate log_ratio() const;
  // The value that a share of the places stays below; between two places in proportion. `share`
  // from 0 to 1. 0 where there is no place.
  double kld_percentile(double share) const { return percentile(klds_, share); }
  double delta_p_percentile(double share) const { return percentile(delta_ps_, share); }

 private:
  static double percentile(const std::vector<float>& values, double share);

  Mean nll_, base_nll_, kld_, delta_p_, squared_delta_p_;
  double products_ = 0;  // sum of nll times base nll
  int64_t same_top_ = 0;
  std::vector<float> klds_, delta_ps_;
};

}  // namespace ktx::runtime
