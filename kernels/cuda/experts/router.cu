// router and group_experts (cuda_experts.h).
//
// router: one warp a token (router_choice.cuh).
// group_experts: a block an expert. It counts the pairs of lower experts, then writes its own, a
// share a warp: a stable sort with one barrier, whatever the number of pairs. All blocks read all
// pairs (2,048 tokens of 8: 64 KiB, which L1 holds).
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

constexpr int kGroupWarps = 8;

// The expert of a pair; their number, where it has none here.
__device__ __forceinline__ int kind_of_pair(const CudaGroupExpertsArgs& a, int pair) {
  const int experts = a.attrs.experts;
  if (!has_rank(a.attrs, pair % a.attrs.top_k)) return experts;
  int id = a.ids[pair];
  if (a.places) id = id < 0 || id >= a.routed ? -1 : place_of_expert(a.places[id], experts);
  return id < 0 || id >= min(experts, a.end) ? experts : id;
}

// Block `experts` has the pairs without an expert, which come last.
__global__ void __launch_bounds__(32 * kGroupWarps) group_experts(CudaGroupExpertsArgs a) {
  begin_kernel();
  __shared__ int warp_before[kGroupWarps], warp_own[kGroupWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int pairs = static_cast<int>(a.tokens) * a.attrs.top_k;
  const int expert = static_cast<int>(blockIdx.x);
  const int share = ceil_div(pairs, 32 * kGroupWarps) * 32;
  const int begin = warp * share, end = min(pairs, begin + share);
  int before = 0, own = 0;  // pairs of lower experts, and of this one
#pragma unroll 8
  for (int pair = begin + lane; pair < end; pair += 32) {
    const int kind = kind_of_pair(a, pair);
    before += kind < expert;
    own += kind == expert;
  }
  before = warp_sum(before);
  own = warp_sum(own);
  if (lane == 0) warp_before[warp] = before, warp_own[warp] = own;
  __syncthreads();
  int first = 0, place = 0, count = 0;
  for (int w = 0; w < kGroupWarps; ++w) {
    first += warp_before[w];
    place += w < warp ? warp_own[w] : 0;
    count += warp_own[w];
  }
  if (threadIdx.x == 0) {
    a.offsets[expert] = first;
    if (a.counts && expert < a.attrs.experts) a.counts[expert] += static_cast<uint64_t>(count);
  }
  if (own == 0) return;
  int32_t* order = a.order + first + place;
#pragma unroll 4
  for (int round = begin; round < end; round += 32) {
    const int pair = round + lane;
    const bool is_own = pair < end && kind_of_pair(a, pair) == expert;
    const unsigned all = __ballot_sync(~0u, is_own);
    if (is_own) order[__popc(all & ((1u << lane) - 1))] = pair;
    order += __popc(all);
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
  return launch("group_experts", group_experts, dim3(static_cast<unsigned>(a.attrs.experts + 1)),
                32 * kGroupWarps, 0, stream, a);
}

}  // namespace ktx::kernels
