#include "lib/runtime/sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ktx::runtime {

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void put_best_first(Candidates& candidates, size_t count) {
  if (count < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), better);
  }
  std::sort(candidates.begin(), candidates.begin() + std::min(count, candidates.size()), better);
}

namespace {

double best_logit(const Candidates& candidates) {
  return std::min_element(candidates.begin(), candidates.end(), better)->logit;
}

}  // namespace

double weigh(const Candidates& candidates, float temperature, std::vector<double>& weights) {
  const double best = best_logit(candidates);
  weights.clear();
  double total = 0;
  for (const Candidate& candidate : candidates) {
    weights.push_back(std::exp((candidate.logit - best) / temperature));
    total += weights.back();
  }
  return total;
}

void keep_top_p(Candidates& candidates, float top_p) {
  const double best = best_logit(candidates);
  const auto share = [&](const Candidate& candidate) { return std::exp(candidate.logit - best); };
  double total = 0;
  for (const Candidate& candidate : candidates) total += share(candidate);
  // Few tokens usually hold most of the probability: sort only as many as needed.
  for (size_t sorted = std::min<size_t>(64, candidates.size());;) {
    put_best_first(candidates, sorted);
    double sum = 0;
    size_t kept = 0;
    while (kept < sorted && (kept == 0 || sum < top_p * total)) sum += share(candidates[kept++]);
    if (kept < sorted || sorted == candidates.size() || sum >= top_p * total) {
      candidates.resize(kept);
      return;
    }
    sorted = std::min(sorted * 8, candidates.size());
  }
}

void keep_min_p(Candidates& candidates, float min_p) {
  const double best = best_logit(candidates);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return std::exp(candidate.logit - best) < min_p;
  });
}

void keep_typical(Candidates& candidates, float typical_p) {
  std::vector<double> weights;
  const double total = weigh(candidates, 1, weights);
  double entropy = 0;
  for (double& weight : weights) {
    weight /= total;
    if (weight > 0) entropy -= weight * std::log(weight);
  }
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto distance = [&](size_t i) {
    return weights[i] > 0 ? std::abs(-std::log(weights[i]) - entropy)
                          : std::numeric_limits<double>::infinity();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return distance(a) < distance(b); });
  Candidates kept;
  double sum = 0;
  for (const size_t i : order) {
    kept.push_back(candidates[i]);
    sum += weights[i];
    if (sum >= typical_p) break;
  }
  candidates = std::move(kept);
  put_best_first(candidates, candidates.size());
}

void exclude_top_choices(Candidates& candidates, float threshold) {
  put_best_first(candidates, candidates.size());
  std::vector<double> weights;
  const double total = weigh(candidates, 1, weights);
  size_t above = 0;
  while (above < weights.size() && weights[above] / total >= threshold) ++above;
  if (above >= 2) {
    candidates.erase(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(above) - 1);
  }
}

void keep_unsurprising(Candidates& candidates, float temperature, double bound) {
  put_best_first(candidates, candidates.size());
  std::vector<double> weights;
  const double total = weigh(candidates, temperature, weights);
  size_t kept = 1;
  while (kept < weights.size() && weights[kept] > 0 && -std::log2(weights[kept] / total) <= bound) {
    ++kept;
  }
  candidates.resize(kept);
}

float sigma_bound(std::span<const float> logits, float n) {
  double sum = 0, squares = 0, count = 0, best = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) {
    if (!std::isfinite(logit)) continue;
    ++count;
    sum += logit;
    best = std::max<double>(best, logit);
  }
  if (count == 0) return -std::numeric_limits<float>::infinity();
  const double mean = sum / count;
  for (const float logit : logits) {
    if (std::isfinite(logit)) squares += (logit - mean) * (logit - mean);
  }
  return static_cast<float>(best - n * std::sqrt(squares / count));
}

float dynamic_temperature(const Candidates& candidates, float temperature, float range,
                          float exponent) {
  const float low = std::max(0.0f, temperature - range), high = temperature + range;
  std::vector<double> weights;
  const double total = weigh(candidates, 1, weights);
  double entropy = 0;
  for (const double weight : weights) {
    if (weight > 0) entropy -= weight / total * std::log(weight / total);
  }
  const double most = std::log(static_cast<double>(candidates.size()));
  const double part = most > 0 ? std::clamp(entropy / most, 0.0, 1.0) : 0;
  const auto found = static_cast<float>(low + (high - low) * std::pow(part, exponent));
  return std::max(found, 1e-4f);  // 0 is greedy: the best one has all of the weight
}

}  // namespace ktx::runtime
