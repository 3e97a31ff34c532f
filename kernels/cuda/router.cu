// router and group_experts (cuda_experts.h).
//
// router: one warp a token; a lane has every 32nd expert in registers. Choices are compared
// as integers of the same order, so that a choice is two reductions of the warp. Ties go to the lower expert, NaN choices come
// last, and of groups that are left out experts follow with their own scores, as in
// kernels/router. Scores in F32.
// group_experts: one block; counts per expert, then 1,024 pairs at a time find their places:
// after the pairs of the same expert in earlier rounds, warps and lanes. So the sort is
// stable and the same at every run.
#include "kernels/cuda/cuda_experts.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kRouterWarps = 4;

__device__ bool better(float a, float b) { return isnan(b) ? !isnan(a) : a > b; }

// Integers in the order of floats; NaN is the lowest, and 0 is below it.
__device__ uint32_t ordered(float v) {
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

__device__ float group_score(const float* choice, int n, bool two) {
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

// kOwn: experts of a lane at most.
template <int kOwn>
__global__ void __launch_bounds__(32 * kRouterWarps) router(CudaRouterArgs a) {
  begin_kernel();
  extern __shared__ float router_shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t t = int64_t{blockIdx.x} * kRouterWarps + warp;
  const int n = a.attrs.experts, groups = a.attrs.groups;
  if (t >= a.tokens) return;
  int32_t* ids = a.ids + t * a.attrs.top_k;
  float* weights = a.weights + t * a.attrs.top_k;
  if (a.position && a.position[t] < 0) {
    if (lane < a.attrs.top_k) ids[lane] = -1, weights[lane] = 0;
    return;
  }
  float* score = router_shared + warp * (2 * n + groups);
  float* choice = score + n;
  float* group = choice + n;
  const float* logits = a.logits + t * a.logits_stride;

  if (static_cast<Scoring>(a.attrs.scoring) == Scoring::Softmax) {
    float largest = -INFINITY;
    for (int e = lane; e < n; e += 32) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    float sum = 0;
    for (int e = lane; e < n; e += 32) sum += expf(logits[e] - largest);
    sum = warp_sum(sum);
    for (int e = lane; e < n; e += 32) score[e] = expf(logits[e] - largest) / sum;
  } else {
    for (int e = lane; e < n; e += 32) score[e] = 1 / (1 + expf(-logits[e]));
  }
  for (int e = lane; e < n; e += 32) choice[e] = a.bias ? score[e] + a.bias[e] : score[e];
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
  if (lane < a.attrs.top_k) {
    ids[lane] = own;
    weights[lane] = (a.attrs.normalize ? chosen / (sum + 1e-20f) : chosen) * a.attrs.scale;
  }
}

constexpr int kGroupThreads = 1024;
constexpr int kGroupWarps = kGroupThreads / 32;

// `experts` itself is the number of pairs without an expert; they come last.
__global__ void __launch_bounds__(kGroupThreads)
    group_experts(const int32_t* ids, int pairs, int experts, int32_t* order, int32_t* offsets) {
  begin_kernel();
  extern __shared__ uint16_t of_warp[];       // [warp][expert] pairs of this round
  __shared__ int next[kCudaMaxExperts + 1];   // place of the next pair of an expert
  __shared__ int warp_total[kGroupWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kinds = experts + 1;
  const auto kind_of = [&](int pair) {
    const int id = ids[pair];
    return id < 0 || id >= experts ? experts : id;
  };
  for (int e = thread; e < kinds; e += kGroupThreads) next[e] = 0;
  for (int i = thread; i < kGroupWarps * kinds; i += kGroupThreads) of_warp[i] = 0;
  __syncthreads();
  for (int i = thread; i < pairs; i += kGroupThreads) atomicAdd(&next[kind_of(i)], 1);  // a count
  __syncthreads();
  const int count = thread < experts ? next[thread] : 0;  // an expert a thread
  int sum = count;
  for (int o = 1; o < 32; o *= 2) {
    const int below = __shfl_up_sync(~0u, sum, o);
    if (lane >= o) sum += below;
  }
  if (lane == 31) warp_total[warp] = sum;
  __syncthreads();
  int before = sum - count;
  for (int w = 0; w < warp; ++w) before += warp_total[w];
  if (thread < experts) next[thread] = offsets[thread] = before;
  if (thread == experts - 1) offsets[experts] = next[experts] = before + count;
  for (int first = 0; first < pairs; first += kGroupThreads) {
    const int pair = first + thread;
    const int kind = pair < pairs ? kind_of(pair) : -1;
    const unsigned same = __match_any_sync(~0u, kind);
    const int rank = __popc(same & ((1u << lane) - 1));
    if (kind >= 0 && rank == 0) of_warp[warp * kinds + kind] = static_cast<uint16_t>(__popc(same));
    __syncthreads();
    for (int e = thread; e < kinds; e += kGroupThreads) {  // counts become places
      int place = 0;
      for (int w = 0; w < kGroupWarps; ++w) {
        const int here = of_warp[w * kinds + e];
        of_warp[w * kinds + e] = static_cast<uint16_t>(place);
        place += here;
      }
    }
    __syncthreads();
    int place = 0;
    if (kind >= 0) place = next[kind] + of_warp[warp * kinds + kind] + rank;
    if (kind >= 0) order[place] = pair;
    __syncthreads();
    // The last pair of an expert in this round moves it on; then the counts are cleared.
    if (kind >= 0) atomicMax(&next[kind], place + 1);
    __syncthreads();
    for (int i = thread; i < kGroupWarps * kinds; i += kGroupThreads) of_warp[i] = 0;
    __syncthreads();
  }
}

}  // namespace

Status launch_router(const CudaRouterArgs& a, CudaStream stream) {
  if (a.attrs.experts > kCudaMaxExperts || a.attrs.top_k > kCudaMaxTopK) {
    return Error{"router: " + std::to_string(a.attrs.experts) + " experts, top " +
                 std::to_string(a.attrs.top_k) + ", at most " + std::to_string(kCudaMaxExperts) +
                 " and " + std::to_string(kCudaMaxTopK)};
  }
  const int shared = kRouterWarps * (2 * a.attrs.experts + a.attrs.groups) * 4;
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(a.tokens, kRouterWarps)));
  if (a.attrs.experts <= 256) {
    return launch("router", router<8>, grid, 32 * kRouterWarps, shared, stream, a);
  }
  return launch("router", router<32>, grid, 32 * kRouterWarps, shared, stream, a);
}

Status launch_group_experts(const CudaGroupExpertsArgs& a, CudaStream stream) {
  if (a.attrs.experts > kCudaMaxExperts) {
    return Error{"group_experts: " + std::to_string(a.attrs.experts) + " experts, at most " +
                 std::to_string(kCudaMaxExperts)};
  }
  return launch("group_experts", group_experts, dim3(1), kGroupThreads,
                kGroupWarps * (a.attrs.experts + 1) * 2, stream, a.ids,
                static_cast<int>(a.tokens * a.attrs.top_k), static_cast<int>(a.attrs.experts),
                a.order, a.offsets);
}

}  // namespace ktx::kernels
