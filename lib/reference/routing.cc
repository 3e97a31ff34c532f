#include "lib/reference/routing.h"

#include <algorithm>
#include <cmath>

namespace ktx::reference {
namespace {

std::vector<std::pair<int32_t, float>> mix_sparsely(int32_t rounds, std::span<const float> logits) {
  std::vector<std::pair<int32_t, float>> out;
  std::vector<double> left(logits.begin(), logits.end());
  for (int32_t i = 0; i < rounds; ++i) {
    const auto best = std::ranges::max_element(left);
    double sum = 0;
    for (const double x : left) {
      const bool far = (*best - x) / std::max(std::abs(x), *best) > kSparseMixerReach;
      if (!far) sum += std::exp(x - *best);
    }
    out.emplace_back(static_cast<int32_t>(best - left.begin()), static_cast<float>(1 / sum));
    *best = -INFINITY;
  }
  return out;
}

}  // namespace

std::vector<double> scores_of(const RouterAttrs& attrs, std::span<const float> logits) {
  std::vector<double> score(logits.size());
  if (attrs.scoring == static_cast<int32_t>(Scoring::Sigmoid)) {
    for (size_t i = 0; i < score.size(); ++i) score[i] = 1 / (1 + std::exp(-double{logits[i]}));
  } else if (attrs.scoring == static_cast<int32_t>(Scoring::SqrtSoftplus)) {
    for (size_t i = 0; i < score.size(); ++i) {
      score[i] = std::sqrt(std::log1p(std::exp(double{logits[i]})));
    }
  } else {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (size_t i = 0; i < score.size(); ++i) sum += score[i] = std::exp(logits[i] - top);
    for (double& s : score) s /= sum;
  }
  return score;
}

std::vector<std::pair<int32_t, float>> weighted(const RouterAttrs& attrs,
                                                std::span<const double> score,
                                                std::span<const int32_t> experts) {
  double sum = 1e-20;
  for (int32_t expert : experts) sum += score[expert];
  std::vector<std::pair<int32_t, float>> out;
  for (int32_t expert : experts) {
    const double weight = score[expert] / (attrs.normalize ? sum : 1.0) * attrs.scale;
    out.emplace_back(expert, static_cast<float>(weight));
  }
  return out;
}

std::vector<std::pair<int32_t, float>> route(const RouterAttrs& attrs,
                                             std::span<const float> logits,
                                             std::span<const float> bias) {
  if (attrs.scoring == static_cast<int32_t>(Scoring::SparseMixer)) {
    return mix_sparsely(attrs.top_k, logits);
  }
  const size_t n = logits.size();
  const std::vector<double> score = scores_of(attrs, logits);
  std::vector<double> choice(n);
  for (size_t i = 0; i < n; ++i) choice[i] = score[i] + (bias.empty() ? 0.0 : bias[i]);

  if (attrs.groups > 1) {
    const size_t size = n / attrs.groups;
    std::vector<std::pair<double, int32_t>> groups;
    for (int32_t g = 0; g < attrs.groups; ++g) {
      std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(members.rbegin(), members.rend());
      const bool two = attrs.group_score == static_cast<int32_t>(GroupScore::SumOfTwoBest);
      groups.push_back({members[0] + (two ? members[1] : 0), g});
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (int32_t i = attrs.groups_used; i < attrs.groups; ++i) {
      const size_t first = groups[i].second * size;
      std::fill_n(choice.begin() + static_cast<int64_t>(first), size, -INFINITY);
    }
  }
  std::vector<int32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return choice[a] > choice[b]; });
  order.resize(attrs.top_k);
  return weighted(attrs, score, order);
}

}  // namespace ktx::reference
