// The five steps of RouterAttrs for one token, by one warp: lane k ends with choice k.
//
// A lane has every 32nd expert in registers. Choices are compared as integers of the same
// order, so that a choice is two reductions of the warp. Ties go to the lower expert, NaN
// choices come last, and of groups that are left out experts follow with their own scores,
// as in kernels/router. Scores in F32.
#pragma once

#include <climits>

#include "kernels/cuda/cuda_experts.h"
#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {

struct RouterChoice {
  int id;        // -1: padding, or no such choice
  float weight;  // 0 then
};

// Shared memory of a warp.
inline int choose_experts_bytes(const RouterAttrs& attrs) {
  return (2 * attrs.experts + attrs.groups) * 4;
}

__device__ inline bool better(float a, float b) { return isnan(b) ? !isnan(a) : a > b; }

// Integers in the order of floats; NaN is the lowest, and 0 is below it.
__device__ inline uint32_t ordered(float v) {
  if (isnan(v)) return 1;
  const uint32_t bits = __float_as_uint(v == 0 ? 0.0f : v);  // -0 is 0
  return bits >> 31 ? ~bits : bits | 0x80000000;
}

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, v);
#else
  for (int o = 16; o > 0; o /= 2) v = max(v, __shfl_xor_sync(~0u, v, o));
  return v;
#endif
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
};

// The score of each group of `size` choices, to `group`; lanes of the warp share each group.
__device__ inline void group_scores(const float* choice, int groups, int size, bool two, float* group,
                                    int lane) {
  int share = 1;
  while (2 * share * groups <= 32) share *= 2;
  for (int first = 0; first < groups; first += 32 / share) {
    const int g = first + lane / share;
    TwoBest own;
    for (int e = lane % share; e < size && g < groups; e += share) own.add(choice[g * size + e]);
    for (int o = 1; o < share; o *= 2) {
      const float best = __shfl_xor_sync(~0u, own.best, o), second = __shfl_xor_sync(~0u, own.second, o);
      own.add(best);
      own.add(second);
    }
    if (g < groups && lane % share == 0) {
      group[g] = two && size >= 2 ? own.best + own.second : own.best;
    }
  }
}

// kOwn: experts of a lane at most. `shared`: choose_experts_bytes() of it, this warp's alone.
template <int kOwn>
__device__ RouterChoice choose_experts(const CudaRouterArgs& a, int64_t t, float* shared, int lane) {
  const int n = a.attrs.experts, groups = a.attrs.groups;
  // All that is read from memory, asked for at once.
  const bool padding = a.position && a.position[t] < 0;
  float* score = shared;
  float* choice = score + n;
  float* group = choice + n;
  const float* logits = a.logits + t * a.logits_stride;
  float own_score[kOwn], own_bias[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + 32 * i;
    own_score[i] = e < n ? logits[e] : -INFINITY;
    own_bias[i] = e < n && a.bias ? a.bias[e] : 0;
  }
  if (padding) return {-1, 0};
  if (static_cast<Scoring>(a.attrs.scoring) == Scoring::Softmax) {
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) largest = fmaxf(largest, own_score[i]);
    largest = warp_max(largest);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (lane + 32 * i < n) sum += own_score[i] = expf(own_score[i] - largest);
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own_score[i] /= sum;
  } else {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own_score[i] = 1 / (1 + expf(-own_score[i]));
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int e = lane + 32 * i;
    if (e >= n) break;
    score[e] = own_score[i];
    choice[e] = a.bias ? own_score[i] + own_bias[i] : own_score[i];
  }
  __syncwarp();

  if (groups > 1) {
    const int size = n / groups;
    const bool two = static_cast<GroupScore>(a.attrs.group_score) == GroupScore::SumOfTwoBest;
    group_scores(choice, groups, size, two, group, lane);
    __syncwarp();
    for (int first = 0; first < groups; first += 32) {
      const int g = first + lane;
      int ahead = 0;
      for (int o = 0; o < groups && g < groups; ++o) {
        ahead += better(group[o], group[g]) || (o < g && !better(group[g], group[o]));
      }
      unsigned out = __ballot_sync(~0u, g < groups && ahead >= a.attrs.groups_used);
      for (; out != 0; out &= out - 1) {
        const int begin = (first + __ffs(static_cast<int>(out)) - 1) * size;
        for (int e = begin + lane; e < begin + size; e += 32) choice[e] = NAN;
      }
    }
    __syncwarp();
  }

  uint32_t key[kOwn];  // 0: taken, or no expert
#pragma unroll
  for (int i = 0; i < kOwn; ++i) key[i] = lane + 32 * i < n ? ordered(choice[lane + 32 * i]) : 0;
  int own = 0;  // lane k ends with choice number k
  for (int k = 0; k < a.attrs.top_k; ++k) {
    uint32_t best = 0;
    int number = INT_MAX;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (key[i] > best) best = key[i], number = lane + 32 * i;
    }
    const uint32_t largest = largest_of_warp(best);
    // Of equal ones the lowest number: its complement is the largest.
    number = ~largest_of_warp(best == largest ? ~static_cast<uint32_t>(number) : 0);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (lane + 32 * i == number) key[i] = 0;
    }
    if (lane == k) own = number;
  }
  const float chosen = lane < a.attrs.top_k ? score[own] : 0;
  const float sum = warp_sum(chosen);
  if (lane >= a.attrs.top_k) return {-1, 0};
  return {own, (a.attrs.normalize ? chosen / (sum + 1e-20f) : chosen) * a.attrs.scale};
}

}  // namespace ktx::kernels
