#include "lib/runtime/quality/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lib/runtime/sampling/log_softmax.h"

namespace ktx::runtime {
namespace {

constexpr float kLeastLogprob = -16;
constexpr int64_t kFewest = 10;  // values that an error is estimated from

}  // namespace

double Mean::variance_of_mean() const {
  if (count_ <= kFewest) return 0;
  const double mean = value();
  const auto count = static_cast<double>(count_);
  return std::max(0.0, squares_ / count - mean * mean) / (count - 1);
}

Estimate Mean::estimate() const {
  return {value(), std::sqrt(variance_of_mean())};
}

Estimate perplexity(const Mean& negative_logprobs) {
  const Estimate mean = negative_logprobs.estimate();
  const double value = std::exp(mean.value);
  return {value, value * mean.error};
}

Status all_logprobs(std::span<const float> logits, std::span<float> out) {
  const LogSoftmax softmax = KTX_TRY(log_softmax(logits));
  for (size_t i = 0; i < logits.size(); ++i) {
    out[i] = static_cast<float>(softmax.logprob(logits[i]));
  }
  return {};
}

Result<Divergence> divergence(std::span<const float> base, std::span<const float> logits,
                              int32_t token) {
  KTX_ASSERT(base.size() == logits.size());
  const LogSoftmax softmax = KTX_TRY(log_softmax(logits));
  Divergence place;
  place.logprob = softmax.logprob(logits[static_cast<size_t>(token)]);
  place.base_logprob = base[static_cast<size_t>(token)];
  place.delta_p = std::exp(place.logprob) - std::exp(place.base_logprob);
  size_t base_best = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i] > base[base_best]) base_best = i;
    if (!(base[i] > kLeastLogprob)) continue;
    place.kld += std::exp(double{base[i]}) * (base[i] - softmax.logprob(logits[i]));
  }
  place.same_top = base_best == static_cast<size_t>(softmax.best);
  return place;
}

void DivergenceSum::add(const Divergence& place) {
  nll_.add(-place.logprob);
  base_nll_.add(-place.base_logprob);
  products_ += place.logprob * place.base_logprob;
  kld_.add(place.kld);
  delta_p_.add(place.delta_p);
  squared_delta_p_.add(place.delta_p * place.delta_p);
  same_top_ += place.same_top ? 1 : 0;
  klds_.push_back(static_cast<float>(place.kld));
  delta_ps_.push_back(static_cast<float>(place.delta_p));
}

Estimate DivergenceSum::same_top() const {
  if (count() == 0) return {};
  const auto places = static_cast<double>(count());
  const double share = static_cast<double>(same_top_) / places;
  return {share, count() > 1 ? std::sqrt(share * (1 - share) / (places - 1)) : 0};
}

Estimate DivergenceSum::rms_delta_p() const {
  const Estimate squares = squared_delta_p_.estimate();
  const double root = std::sqrt(squares.value);
  return {root, root > 0 ? squares.error / (2 * root) : 0};
}

// The two are of the same tokens, so that their errors go the same way.
Estimate DivergenceSum::log_ratio() const {
  Estimate ratio{nll_.value() - base_nll_.value(), 0};
  if (count() <= kFewest) return ratio;
  const auto places = static_cast<double>(count());
  const double covariance = (products_ / places - nll_.value() * base_nll_.value()) / (places - 1);
  const double variance = nll_.variance_of_mean() + base_nll_.variance_of_mean() - 2 * covariance;
  ratio.error = std::sqrt(std::max(0.0, variance));
  return ratio;
}

double DivergenceSum::percentile(const std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  std::vector<float> sorted = values;
  std::ranges::sort(sorted);
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const double part = place - static_cast<double>(below);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return (1 - part) * sorted[below] + part * sorted[above];
}

}  // namespace ktx::runtime
