// router and group_experts (cuda_experts.h).
//
// router: one warp a token; scores and choices in shared memory, a group's score and each
// of the top_k choices by a scan of the warp. Ties go to the lower expert, NaN choices come
// last, and of groups that are left out experts follow with their own scores, as in
// kernels/router. Scores in F32.
// group_experts: one block; counts per expert, then every expert's pairs by a warp in
// rising order of the pairs, so the sort is stable and the same at every run.
#include "kernels/cuda/cuda_experts.h"
#include "kernels/cuda/cuda_launch.cuh"
#include "kernels/cuda/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kRouterWarps = 4;

__device__ bool better(float a, float b) { return isnan(b) ? !isnan(a) : a > b; }

// Of all lanes' (value, number) the best; the lower number of equal ones.
__device__ void best_of_warp(float& value, int& number) {
  for (int o = 16; o > 0; o /= 2) {
    const float v = __shfl_xor_sync(~0u, value, o);
    const int n = __shfl_xor_sync(~0u, number, o);
    if (better(v, value) || (!better(value, v) && n < number)) value = v, number = n;
  }
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

__global__ void __launch_bounds__(32 * kRouterWarps) router(CudaRouterArgs a) {
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

  // Lane k ends with choice number k. Experts taken are marked in the lanes that own them.
  uint32_t taken = 0;  // bit i: expert lane + 32 * i
  int own = -1;
  for (int k = 0; k < a.attrs.top_k; ++k) {
    float value = NAN;
    int number = INT_MAX;
    for (int e = lane, i = 0; e < n; e += 32, ++i) {
      if (taken >> i & 1) continue;
      if (number == INT_MAX || better(choice[e], value)) value = choice[e], number = e;
    }
    best_of_warp(value, number);
    if (number % 32 == lane) taken |= 1u << (number / 32);
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

__global__ void __launch_bounds__(kGroupThreads)
    group_experts(const int32_t* ids, int pairs, int experts, int32_t* order, int32_t* offsets) {
  __shared__ int first[kCudaMaxExperts + 2];  // of expert e; [experts]: of pairs without one
  __shared__ int warp_total[32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int e = thread; e <= experts; e += kGroupThreads) first[e] = 0;
  __syncthreads();
  for (int i = thread; i < pairs; i += kGroupThreads) {
    const int e = ids[i];
    atomicAdd(&first[e < 0 || e >= experts ? experts : e], 1);  // counts: any order is the same
  }
  __syncthreads();
  // Exclusive sums. One expert a thread.
  const int count = thread < experts ? first[thread] : 0;
  int sum = count;
  for (int o = 1; o < 32; o *= 2) {
    const int below = __shfl_up_sync(~0u, sum, o);
    if (lane >= o) sum += below;
  }
  if (lane == 31) warp_total[warp] = sum;
  __syncthreads();
  int before = sum - count;
  for (int w = 0; w < warp; ++w) before += warp_total[w];
  if (thread < experts) first[thread] = offsets[thread] = before;
  if (thread == experts - 1) offsets[experts] = first[experts] = before + count;
  __syncthreads();
  // A warp takes an expert and looks through all pairs; those without expert are the last.
  for (int e = warp; e <= experts; e += 32) {
    int place = first[e];
    const int end = e == experts ? pairs : first[e + 1];
    for (int i = 0; i < pairs && place < end; i += 32) {
      const int id = i + lane < pairs ? ids[i + lane] : INT_MIN;
      const bool here = id != INT_MIN && (id < 0 || id >= experts ? experts : id) == e;
      const unsigned mask = __ballot_sync(~0u, here);
      if (here) order[place + __popc(mask & ((1u << lane) - 1))] = i + lane;
      place += __popc(mask);
    }
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
  return launch("router", router, grid, 32 * kRouterWarps, shared, stream, a);
}

Status launch_group_experts(const CudaGroupExpertsArgs& a, CudaStream stream) {
  if (a.attrs.experts > kCudaMaxExperts) {
    return Error{"group_experts: " + std::to_string(a.attrs.experts) + " experts, at most " +
                 std::to_string(kCudaMaxExperts)};
  }
  return launch("group_experts", group_experts, dim3(1), kGroupThreads, 0, stream, a.ids,
                static_cast<int>(a.tokens * a.attrs.top_k), static_cast<int>(a.attrs.experts),
                a.order, a.offsets);
}

}  // namespace ktx::kernels
