// Choice of experts. There is one variant: a few hundred logits per token are
// nothing beside the products, and double makes the scores plain.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/router/expert_places.h"
#include "kernels/router/router.h"

namespace ktx::kernels {

void router_scalar(const RouterArgs& a);
void group_experts_scalar(const GroupExpertsArgs& a);

namespace {

// Order of choices in which NaN is below everything.
bool better(float a, float b) {
  return std::isnan(b) ? !std::isnan(a) : a > b;
}

void scores_softmax(const float* logits, int64_t n, float* scores) {
  float largest = -INFINITY;
  for (int64_t e = 0; e < n; ++e) largest = logits[e] > largest ? logits[e] : largest;
  double sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += std::exp(double{logits[e]} - largest);
  for (int64_t e = 0; e < n; ++e) {
    scores[e] = static_cast<float>(std::exp(double{logits[e]} - largest) / sum);
  }
}

void scores_sigmoid(const float* logits, int64_t n, float* scores) {
  for (int64_t e = 0; e < n; ++e) {
    scores[e] = static_cast<float>(1 / (1 + std::exp(-double{logits[e]})));
  }
}

void scores_sqrt_softplus(const float* logits, int64_t n, float* scores) {
  for (int64_t e = 0; e < n; ++e) {
    const double x = logits[e];
    const double softplus = std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    scores[e] = static_cast<float>(std::sqrt(softplus));
  }
}

float group_score(const float* choice, int64_t n, GroupScore kind) {
  float best = -INFINITY, second = -INFINITY;
  for (int64_t e = 0; e < n; ++e) {
    if (better(choice[e], best)) {
      second = best;
      best = choice[e];
    } else if (better(choice[e], second)) {
      second = choice[e];
    }
  }
  if (kind == GroupScore::Best || n < 2) return best;
  return best + second;
}

// Experts outside of the best groups_used groups get the choice NaN, so that they
// come last.
void keep_best_groups(const RouterAttrs& attrs, float* choice, float* group) {
  const int64_t size = attrs.experts / attrs.groups;
  for (int64_t g = 0; g < attrs.groups; ++g) {
    group[g] = group_score(choice + g * size, size, static_cast<GroupScore>(attrs.group_score));
  }
  for (int64_t g = 0; g < attrs.groups; ++g) {
    int64_t ahead = 0;  // groups that win against g; of equal ones the first wins
    for (int64_t o = 0; o < attrs.groups; ++o) {
      ahead += better(group[o], group[g]) || (o < g && !better(group[g], group[o]));
    }
    if (ahead < attrs.groups_used) continue;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) choice[e] = NAN;
  }
}

// The top_k best choices in falling order; of equal ones the lower expert is first.
void best_choices(const float* choice, int64_t n, int64_t top_k, int32_t* ids) {
  int64_t count = 0;
  for (int64_t e = 0; e < n; ++e) {
    if (count == top_k && !better(choice[e], choice[ids[count - 1]])) continue;
    int64_t place = count < top_k ? count++ : count - 1;
    for (; place > 0 && better(choice[e], choice[ids[place - 1]]); --place) {
      ids[place] = ids[place - 1];
    }
    ids[place] = static_cast<int32_t>(e);
  }
}

void choose(const RouterArgs& a, const float* scores, float* choice, int32_t* ids) {
  const RouterAttrs& attrs = a.attrs;
  const int64_t n = attrs.experts;
  for (int64_t e = 0; e < n; ++e) choice[e] = a.bias ? scores[e] + a.bias[e] : scores[e];
  if (attrs.groups > 1) keep_best_groups(attrs, choice, a.scratch + 2 * n);
  best_choices(choice, n, attrs.top_k, ids);
}

void weigh(const RouterArgs& a, const int32_t* ids, float* weights, double divisor) {
  for (int64_t k = 0; k < a.attrs.top_k; ++k) {
    weights[k] = static_cast<float>(weights[k] / divisor) * a.attrs.scale;
    if (a.factors) weights[k] *= a.factors[ids[k]];
  }
}

// (A NaN is below everything, and no part of a softmax.)
void mix_sparsely(const RouterAttrs& attrs, const float* logits, float* left, int32_t* ids,
                  float* weights) {
  const int64_t n = attrs.experts;
  for (int64_t e = 0; e < n; ++e) left[e] = logits[e];
  for (int64_t k = 0; k < attrs.top_k; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; ++e) {
      const bool taken = std::find(ids, ids + k, e) != ids + k;
      if (!taken && (best < 0 || better(logits[e], logits[best]))) best = e;
    }
    const double most = logits[best];
    double sum = 0;
    for (int64_t e = 0; e < n; ++e) {
      const double x = left[e];
      if (std::isnan(x) && e != best) continue;
      const bool far = (most - x) / std::fmax(std::fabs(x), most) > kSparseMixerReach;
      if (!far) sum += std::exp(x - most);
    }
    ids[k] = static_cast<int32_t>(best);
    weights[k] = static_cast<float>(1 / sum);
    left[best] = -INFINITY;
  }
}

void route(const RouterArgs& a, int64_t token, int32_t* ids, float* weights) {
  constexpr void (*kScores[])(const float*, int64_t, float*) = {scores_softmax, scores_sigmoid,
                                                                scores_sqrt_softplus};
  static_assert(std::size(kScores) == kScorings - 1);
  const RouterAttrs& attrs = a.attrs;
  const float* logits = a.logits + token * a.logits_stride;
  float* scores = a.scratch;
  if (attrs.scoring == static_cast<int32_t>(Scoring::SparseMixer)) {
    mix_sparsely(attrs, logits, scores, ids, weights);
    return weigh(a, ids, weights, 1);
  }
  kScores[attrs.scoring](logits, attrs.experts, scores);
  if (a.table) {
    const int32_t* row = a.table + a.tokens[token] * int64_t{attrs.top_k};
    for (int64_t k = 0; k < attrs.top_k; ++k) ids[k] = row[k];
  } else {
    choose(a, scores, a.scratch + attrs.experts, ids);
  }
  double sum = 0;
  for (int64_t k = 0; k < attrs.top_k; ++k) sum += weights[k] = scores[ids[k]];
  weigh(a, ids, weights, attrs.normalize ? sum + 1e-20 : 1);
}

}  // namespace

void router_scalar(const RouterArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    route(a, t, a.ids + t * a.attrs.top_k, a.weights + t * a.attrs.top_k);
  }
}

void group_experts_scalar(const GroupExpertsArgs& a) {
  const int64_t pairs = a.tokens * a.attrs.top_k;
  const auto matrix_of = [&](int64_t p) {
    if (!has_rank(a.attrs, static_cast<int32_t>(p % a.attrs.top_k))) return -1;
    const int32_t matrix =
        a.places ? place_of_expert(a.places[a.ids[p]], a.attrs.experts) : a.ids[p];
    return matrix >= a.first && matrix < a.end ? matrix : -1;
  };
  int32_t* next = a.offsets + 1;  // where the next pair of expert e - 1 goes, then its end
  for (int64_t e = 0; e <= a.attrs.experts; ++e) a.offsets[e] = 0;
  int32_t here = 0;  // pairs of experts that are
  for (int64_t p = 0; p < pairs; ++p) {
    const int32_t expert = matrix_of(p);
    here += expert >= 0;
    if (expert >= 0 && expert + 1 < a.attrs.experts) ++next[expert + 1];
  }
  for (int64_t e = 1; e < a.attrs.experts; ++e) next[e] += next[e - 1];
  // Here next[e] is the first place of expert e; filling moves it to its end.
  for (int64_t p = 0; p < pairs; ++p) {
    const int32_t expert = matrix_of(p);
    a.order[expert >= 0 ? next[expert]++ : here++] = static_cast<int32_t>(p);
  }
}

}  // namespace ktx::kernels
