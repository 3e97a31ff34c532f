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

__device__ inline float group_score(const float* choice, int n, bool two) {
  float best = -INFINITY, second = -INFINITY;
  for (int e = 0; e < n; ++e) {
    const float c = choice[e];
    if (better(c, best)) {
      second = best;
      best = c;
    } else if (better(c, second)) {
      second = c;
    }
  }
  return two && n >= 2 ? best + second : best;
}

// kOwn: experts of a lane at most. `shared`: choose_experts_bytes() of it, this warp's alone.
template <int kOwn>
__device__ RouterChoice choose_experts(const CudaRouterArgs& a, int64_t t, float* shared, int lane) {
  const int n = a.attrs.experts, groups = a.attrs.groups;
  if (a.position && a.position[t] < 0) return {-1, 0};
  float* score = shared;
  float* choice = score + n;
  float* group = choice + n;
  const float* logits = a.logits + t * a.logits_stride;
  float own_score[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    own_score[i] = lane + 32 * i < n ? logits[lane + 32 * i] : -INFINITY;
  }
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
    choice[e] = a.bias ? own_score[i] + a.bias[e] : own_score[i];
  }
  __syncwarp();

  if (groups > 1) {
    const int size = n / groups;
    const bool two = static_cast<GroupScore>(a.attrs.group_score) == GroupScore::SumOfTwoBest;
    for (int g = lane; g < groups; g += 32) group[g] = group_score(choice + g * size, size, two);
    __syncwarp();
    for (int g = lane; g < groups; g += 32) {
      int ahead = 0;
      for (int o = 0; o < groups; ++o) {
        ahead += better(group[o], group[g]) || (o < g && !better(group[g], group[o]));
      }
      if (ahead < a.attrs.groups_used) continue;
      for (int e = g * size; e < (g + 1) * size; ++e) choice[e] = NAN;
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
