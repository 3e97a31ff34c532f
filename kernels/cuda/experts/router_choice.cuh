// The five steps of RouterAttrs for one token, by one warp: lane k ends with choice k.
//
//   const RouterPick pick = pick_experts<8>(args, t, shared, lane);   // who
//   const RouterChoice choice = weigh(args, pick, lane);              // and with which weight
//
// A lane has some experts in a row in registers, and sorts them. Choices are compared as integers
// of the same order: a choice is one reduction of the warp over the lanes' best ones, whose lane
// (of equal ones the first, which has the lowest experts) goes on to its next. Ties go to the
// lower expert, NaN choices come last, and of groups that are left out experts follow with their
// own scores, as in kernels/router. Scores in F32.
//
// Blocks of a product of experts wait for this, so what counts is the length of the chain.
#pragma once

#include <climits>

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/router/expert_places.h"

namespace ktx::kernels {

struct RouterPick {
  int id;  // -1: padding, or no choice of this lane
  float score;
};
struct RouterChoice {
  int id;
  float weight;  // 0 without one
};

// The matrix of an expert; -1: it is on another device.
__device__ __forceinline__ int matrix_of(const CudaRouterArgs& a, int expert) {
  return !a.places || expert < 0 ? expert : place_of_expert(a.places[expert], a.here);
}
// Stores a choice as launches of experts read it: by matrix, with weight 0 without one.
__device__ __forceinline__ void store_choice(const CudaRouterArgs& a, RouterChoice choice,
                                             int64_t at) {
  const int matrix = matrix_of(a, choice.id);
  a.ids[at] = matrix;
  a.weights[at] = matrix < 0 ? 0 : choice.weight;
}

// Shared memory of a warp.
inline int choose_experts_bytes(const RouterAttrs& attrs) {
  return (2 * attrs.experts + attrs.groups) * 4;
}

__device__ inline bool better(float a, float b) {
  return isnan(b) ? !isnan(a) : a > b;
}

// Integers in the order of floats; NaN is the lowest, and 0 is below it.
constexpr uint32_t kOrderedNan = 1;
__device__ inline uint32_t ordered(float v) {
  if (isnan(v)) return kOrderedNan;
  const uint32_t bits = __float_as_uint(v == 0 ? 0.0f : v);  // -0 is 0
  return bits >> 31 ? ~bits : bits | 0x80000000;
}
// The float of such an integer, -infinity for NaN and 0.
__device__ inline float of_ordered(uint32_t v) {
  if (v <= kOrderedNan) return -INFINITY;
  return __uint_as_float(v >> 31 ? v & 0x7fffffff : ~v);
}

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, v);
#else
  for (int o = 16; o > 0; o /= 2) v = max(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
}

// Falling order, by Batcher's network: runs of kRun are sorted already, and merged by exchanges of
// pairs at a distance of kStep, which halves.
template <int kRun = 1, int kStep = kRun, int kCount>
__device__ __forceinline__ void sort_falling(uint32_t (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i + kStep < kCount; ++i) {
    const int from = i - kStep % kRun;
    if (from < 0 || from / kStep % 2 == 1 || i / (2 * kRun) != (i + kStep) / (2 * kRun)) continue;
    const uint32_t high = max(v[i], v[i + kStep]);
    v[i + kStep] = min(v[i], v[i + kStep]);
    v[i] = high;
  }
  if constexpr (kStep > 1) {
    sort_falling<kRun, kStep / 2>(v);
  } else if constexpr (2 * kRun < kCount) {
    sort_falling<2 * kRun>(v);
  }
}

// The two best of some values, NaN left out.
struct TwoBest {
  float best = -INFINITY, second = -INFINITY;
  __device__ __forceinline__ void add(float v) {
    if (better(v, best)) {
      second = best;
      best = v;
    } else if (better(v, second)) {
      second = v;
    }
  }
  __device__ __forceinline__ float score(bool two) const { return two ? best + second : best; }
};

// The score of each group of `size` choices, to `group`; lanes of the warp share each group.
__device__ inline void group_scores(const float* choice, int groups, int size, bool two,
                                    float* group, int lane) {
  int share = 1;
  while (2 * share * groups <= 32) share *= 2;
  for (int first = 0; first < groups; first += 32 / share) {
    const int g = first + lane / share;
    TwoBest own;
    for (int e = lane % share; e < size && g < groups; e += share) own.add(choice[g * size + e]);
    for (int o = 1; o < share; o *= 2) {
      const float best = __shfl_xor_sync(~0u, own.best, o),
                  second = __shfl_xor_sync(~0u, own.second, o);
      own.add(best);
      own.add(second);
    }
    if (g < groups && lane % share == 0) group[g] = own.score(two && size >= 2);
  }
}

// Any number of groups of any size: choices of those that are left out become NaN.
__device__ inline void keep_best_groups(const RouterAttrs& attrs, float* choice, float* group,
                                        int lane) {
  const int groups = attrs.groups, size = attrs.experts / groups;
  const bool two = static_cast<GroupScore>(attrs.group_score) == GroupScore::SumOfTwoBest;
  group_scores(choice, groups, size, two, group, lane);
  __syncwarp();
  for (int first = 0; first < groups; first += 32) {
    const int g = first + lane;
    int ahead = 0;
    for (int o = 0; o < groups && g < groups; ++o) {
      ahead += better(group[o], group[g]) || (o < g && !better(group[g], group[o]));
    }
    unsigned out = __ballot_sync(~0u, g < groups && ahead >= attrs.groups_used);
    for (; out != 0; out &= out - 1) {
      const int begin = (first + __ffs(static_cast<int>(out)) - 1) * size;
      for (int e = begin + lane; e < begin + size; e += 32) choice[e] = NAN;
    }
  }
  __syncwarp();
}

// Groups of whole lanes, a power of two (32 / groups): whether this lane's is left out. best,
// second: of the lane's choices.
__device__ __forceinline__ bool in_group_left_out(const RouterAttrs& attrs, uint32_t best,
                                                  uint32_t second, int lane) {
  const int groups = attrs.groups, lanes = 32 / groups;
  for (int o = 1; o < lanes; o *= 2) {
    const uint32_t a = __shfl_xor_sync(~0u, best, o), b = __shfl_xor_sync(~0u, second, o);
    second = max(min(best, a), max(second, b));
    best = max(best, a);
  }
  const bool two = static_cast<GroupScore>(attrs.group_score) == GroupScore::SumOfTwoBest &&
                   attrs.experts / groups >= 2;
  const float score = TwoBest{of_ordered(best), of_ordered(second)}.score(two);
  int ahead = 0;
#pragma unroll 8
  for (int o = 0; o < groups; ++o) {
    const float other = __shfl_sync(~0u, score, o * lanes);
    ahead += better(other, score) || (o < lane / lanes && !better(score, other));
  }
  return ahead >= attrs.groups_used;
}

// Scoring::SparseMixer: as many rounds as choices, each of the experts that are left. `logit` are
// this lane's, from expert `begin` on; -infinity where it has none.
template <int kOwn>
__device__ inline RouterPick mix_sparsely(const CudaRouterArgs& a, const float (&logit)[kOwn],
                                          int begin, int lane) {
  RouterPick pick{-1, 0};
  uint32_t taken = 0;
  for (int k = 0; k < a.attrs.top_k; ++k) {
    uint32_t best = 0;
    int own = -1;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const bool left = (taken >> i & 1) == 0 && begin + i < a.attrs.experts;
      if (left && ordered(logit[i]) > best) best = ordered(logit[i]), own = i;
    }
    const uint32_t largest = largest_of_warp(best);
    const int whose = __ffs(static_cast<int>(__ballot_sync(~0u, best == largest))) - 1;
    const int chosen = __shfl_sync(~0u, own, whose);
    const float most = of_ordered(largest);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const float x = logit[i];
      const bool far = (most - x) / fmaxf(fabsf(x), most) > static_cast<float>(kSparseMixerReach);
      if ((taken >> i & 1) == 0 && !far && !isnan(x)) sum += expf(x - most);
    }
    sum = warp_sum(sum);
    if (lane == whose) taken |= 1u << chosen;
    const int id = __shfl_sync(~0u, begin, whose) + chosen;
    if (lane == k) pick = {id, isinf(most) ? NAN : 1 / sum};  // no number was left
  }
  return pick;
}

// The experts that the table has for the token's id. Where it has no such id, weights that are no
// numbers: the pass fails, as the CPU's does.
__device__ __forceinline__ RouterPick pick_by_token(const CudaRouterArgs& a, int64_t t,
                                                    const float* score, int lane) {
  if (lane >= a.attrs.top_k) return {-1, 0};
  const int token = a.token_ids[t];
  const bool known = token >= 0 && token < a.table_rows;
  const int id = known ? a.table[int64_t{token} * a.attrs.top_k + lane] : lane;
  return {id, known || token < 0 ? score[id] : NAN};
}

// kOwn: experts of a lane at most. `shared`: choose_experts_bytes() of it, this warp's alone.
template <int kOwn>
__device__ RouterPick pick_experts(const CudaRouterArgs& a, int64_t t, float* shared, int lane) {
  const int n = a.attrs.experts, groups = a.attrs.groups;
  const int own = (n + 31) / 32, begin = lane * own;  // this lane's experts
  const auto is_own = [&](int i) { return i < own && begin + i < n; };
  // All that is read from memory, asked for at once.
  const bool padding = a.position && a.position[t] < 0;
  float* score = shared;
  auto* choice = reinterpret_cast<uint32_t*>(score + n);
  const float* logits = a.logits + t * a.logits_stride;
  float v[kOwn], bias[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    v[i] = is_own(i) ? logits[begin + i] : -INFINITY;
    bias[i] = is_own(i) && a.bias ? a.bias[begin + i] : 0;
  }
  if (padding) return {-1, 0};
  if (static_cast<Scoring>(a.attrs.scoring) == Scoring::SparseMixer) {
    return mix_sparsely(a, v, begin, lane);
  }
  if (static_cast<Scoring>(a.attrs.scoring) == Scoring::Softmax) {
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) largest = fmaxf(largest, v[i]);
    largest = of_ordered(largest_of_warp(ordered(largest)));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      v[i] = expf(v[i] - largest);
      if (is_own(i)) sum += v[i];
    }
    const float inverse = 1 / warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) v[i] *= inverse;
  } else if (static_cast<Scoring>(a.attrs.scoring) == Scoring::SqrtSoftplus) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      v[i] = sqrtf(fmaxf(v[i], 0) + log1pf(expf(-fabsf(v[i]))));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) v[i] = __fdividef(1, 1 + expf(-v[i]));
  }
  if (a.table) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (is_own(i)) score[begin + i] = v[i];
    }
    __syncwarp();
    return pick_by_token(a, t, score, lane);
  }
  uint32_t key[kOwn], sorted[kOwn];  // 0: no expert
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (is_own(i)) score[begin + i] = v[i];
    key[i] = is_own(i) ? ordered(a.bias ? v[i] + bias[i] : v[i]) : 0;
  }
  // With 32 lanes to whole groups the lanes find the best groups themselves.
  const bool whole = n % 32 == 0 && groups <= 32 && 32 % groups == 0;
  if (groups > 1 && !whole) {
    auto* values = reinterpret_cast<float*>(choice);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (is_own(i)) values[begin + i] = key[i] == kOrderedNan ? NAN : of_ordered(key[i]);
    }
    __syncwarp();
    keep_best_groups(a.attrs, values, values + n, lane);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) key[i] = is_own(i) ? ordered(values[begin + i]) : 0;
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sorted[i] = key[i];
  sort_falling(sorted);
  if (groups > 1 && whole &&
      in_group_left_out(a.attrs, sorted[0], sorted[kOwn > 1 ? 1 : 0], lane)) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      key[i] = min(key[i], kOrderedNan);
      sorted[i] = min(sorted[i], kOrderedNan);
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (is_own(i)) choice[begin + i] = key[i];
  }

  // Lane k ends with the value of choice k, whose it is, and how many equal ones of that lane
  // came before it.
  uint32_t value = 0, last = 0;
  int from = -1, last_from = -1, equal = 0, repeats = 0;
  for (int k = 0; k < a.attrs.top_k; ++k) {
    const uint32_t largest = largest_of_warp(sorted[0]);
    const unsigned whose = __ballot_sync(~0u, sorted[0] == largest);
    if (whose >> lane & 1 && (whose & ((1u << lane) - 1)) == 0) {
#pragma unroll
      for (int i = 0; i + 1 < kOwn; ++i) sorted[i] = sorted[i + 1];
      sorted[kOwn - 1] = 0;
    }
    const int first = __ffs(static_cast<int>(whose)) - 1;
    repeats = first == last_from && largest == last ? repeats + 1 : 0;
    last = largest, last_from = first;
    if (lane == k) value = largest, from = first, equal = repeats;
  }
  __syncwarp();
  if (lane >= a.attrs.top_k) return {-1, 0};
  int id = -1;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = from * own + i;
    if (i < own && e < n && choice[e] == value && equal-- == 0) id = e;
  }
  return {id, id < 0 ? 0 : score[id]};
}

// All lanes of the warp.
__device__ __forceinline__ RouterChoice weigh(const CudaRouterArgs& a, const RouterPick& pick,
                                              int lane) {
  const float sum = warp_sum(lane < a.attrs.top_k ? pick.score : 0);
  const bool shares = static_cast<Scoring>(a.attrs.scoring) == Scoring::SparseMixer;  // already
  const float part = a.attrs.normalize && !shares ? pick.score / (sum + 1e-20f) : pick.score;
  const float factor = a.factors && pick.id >= 0 ? a.factors[pick.id] : 1;
  return {pick.id, part * a.attrs.scale * factor};
}

template <int kOwn>
__device__ __forceinline__ RouterChoice choose_experts(const CudaRouterArgs& a, int64_t t,
                                                       float* shared, int lane) {
  return weigh(a, pick_experts<kOwn>(a, t, shared, lane), lane);
}

}  // namespace ktx::kernels
