// router and group_experts (cuda_experts.h).
//
// router: one warp a token (router_choice.cuh).
// group_experts: one block; counts per expert, then 1,024 pairs at a time find their places:
// after the pairs of the same expert in earlier rounds, warps and lanes. So the sort is
// stable and the same at every run. Few pairs are compared with each other instead: one barrier.
#include <algorithm>

#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/experts/router_choice.cuh"
#include "kernels/router/expert_places.h"

namespace ktx::kernels {
namespace {

constexpr int kRouterWarps = 4;

// kOwn: experts of a lane at most.
template <int kOwn>
__global__ void __launch_bounds__(32 * kRouterWarps) router(CudaRouterArgs a) {
  begin_kernel();
  extern __shared__ float router_shared[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t t = int64_t{blockIdx.x} * kRouterWarps + warp;
  if (t >= a.tokens) return;
  float* own = router_shared + warp * (2 * a.attrs.experts + a.attrs.groups);
  const RouterChoice choice = choose_experts<kOwn>(a, t, own, lane);
  if (lane >= a.attrs.top_k) return;
  a.ids[t * a.attrs.top_k + lane] = choice.id;
  a.weights[t * a.attrs.top_k + lane] = choice.weight;
}

constexpr int kGroupThreads = 1024;
constexpr int kGroupWarps = kGroupThreads / 32;
constexpr int kFewPairs = 128;

// The expert of a pair; their number, where it has none here.
__device__ __forceinline__ int kind_of_pair(const CudaGroupExpertsArgs& a, int pair) {
  const int experts = a.attrs.experts;
  if (!has_rank(a.attrs, pair % a.attrs.top_k)) return experts;
  int id = a.ids[pair];
  if (a.places) id = id < 0 || id >= a.routed ? -1 : place_of_expert(a.places[id], experts);
  return id < 0 || id >= min(experts, a.end) ? experts : id;
}

__global__ void __launch_bounds__(kGroupThreads) group_few_pairs(CudaGroupExpertsArgs a) {
  begin_kernel();
  __shared__ int kinds[kFewPairs];
  const int pairs = static_cast<int>(a.tokens) * a.attrs.top_k, experts = a.attrs.experts;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int kind = thread < pairs ? kind_of_pair(a, thread) : 0;
  if (thread < pairs) kinds[thread] = kind;
  __syncthreads();
  if (thread < pairs) {
    int place = 0;
#pragma unroll 4
    for (int i = 0; i < pairs; ++i) place += kinds[i] < kind + (i < thread);
    a.order[place] = thread;
  }
  for (int e = thread; e <= experts; e += threads) {
    int before = 0, own = 0;
#pragma unroll 4
    for (int i = 0; i < pairs; ++i) before += kinds[i] < e, own += kinds[i] == e;
    a.offsets[e] = before;
    if (a.counts && e < experts && own > 0) a.counts[e] += static_cast<uint64_t>(own);
  }
}

// `experts` itself is the number of pairs without an expert; they come last. So do pairs of experts
// from `end` on.
__global__ void __launch_bounds__(kGroupThreads) group_experts(CudaGroupExpertsArgs a) {
  begin_kernel();
  const int pairs = static_cast<int>(a.tokens) * a.attrs.top_k, experts = a.attrs.experts;
  int32_t* const order = a.order;
  int32_t* const offsets = a.offsets;
  extern __shared__ uint16_t of_warp[];      // [warp][expert] pairs of this round
  __shared__ int next[kCudaMaxExperts + 1];  // place of the next pair of an expert
  __shared__ int warp_total[kGroupWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kinds = experts + 1;
  const auto kind_of = [&](int pair) { return kind_of_pair(a, pair); };
  for (int e = thread; e < kinds; e += kGroupThreads) next[e] = 0;
  for (int i = thread; i < kGroupWarps * kinds; i += kGroupThreads) of_warp[i] = 0;
  __syncthreads();
  for (int i = thread; i < pairs; i += kGroupThreads) atomicAdd(&next[kind_of(i)], 1);  // a count
  __syncthreads();
  const int count = thread < experts ? next[thread] : 0;  // an expert a thread
  if (a.counts && count > 0) a.counts[thread] += static_cast<uint64_t>(count);
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
  const int shared = kRouterWarps * choose_experts_bytes(a.attrs);
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
  if (const int64_t pairs = a.tokens * a.attrs.top_k; pairs <= kFewPairs) {
    const int64_t wanted = std::max<int64_t>(pairs, a.attrs.experts + 1);
    const int threads =
        static_cast<int>(std::min<int64_t>(ceil_div<int64_t>(wanted, 32) * 32, 1024));
    return launch("group_experts", group_few_pairs, dim3(1), threads, 0, stream, a);
  }
  return launch("group_experts", group_experts, dim3(1), kGroupThreads,
                kGroupWarps * (a.attrs.experts + 1) * 2, stream, a);
}

}  // namespace ktx::kernels
