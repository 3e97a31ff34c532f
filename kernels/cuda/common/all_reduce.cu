// launch_all_reduce (cuda_all_reduce.h). Roofline: the link's way there for a few tokens, its rate
// for prompts.
#include "kernels/cuda/common/cuda_all_reduce.h"
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMostNanoseconds = 20'000'000'000;

__device__ __forceinline__ void set_flag(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t read_flag(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
__device__ __forceinline__ void send(uint4* to, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 look(const uint4* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Polls until `there` says so, or notes that GPU `other` does not come. Sums that are queued behind
// such a one do not wait as long again.
template <class There>
__device__ __forceinline__ void wait_for(const CudaTeam& team, int other, There&& there) {
  uint64_t begun = 0;
  for (int polls = 1; !there(); ++polls) {
    if (polls % 1024 != 0) continue;
    if (*static_cast<volatile uint32_t*>(team.missing) != 0) return;
    if (begun == 0) begun = nanoseconds();
    if (nanoseconds() - begun < kMostNanoseconds) continue;
    *team.missing = static_cast<uint32_t>(other) + 1;
    return;
  }
}

// One thread for each other GPU waits until that has come to sum number `sum`.
__device__ __forceinline__ void meet_team(const CudaTeam& team, uint32_t sum) {
  const int other = static_cast<int>(threadIdx.x);
  if (other < team.gpus && other != team.rank) {
    if (blockIdx.x == 0) set_flag(&team.memory[other]->flags[team.rank], sum);
    const uint32_t* const flag = &team.memory[team.rank]->flags[other];
    wait_for(team, other, [&] { return static_cast<int32_t>(read_flag(flag) - sum) >= 0; });
  }
  __syncthreads();
}

// The last block counts the sum.
__device__ __forceinline__ void end_sum(CudaTeamCounts& own, uint32_t sum) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(&own.finished, 1) + 1 < gridDim.x) return;
  own.finished = 0;
  own.sums = sum;
}

__device__ __forceinline__ void add(float4& y, float4 part) {
  y.x += part.x, y.y += part.y, y.z += part.z, y.w += part.w;
}

// kParts: at least a.count. A thread has all of its loads on their way before it adds.
template <int kParts>
__global__ void __launch_bounds__(kThreads)
    read_and_add(const __grid_constant__ CudaAllReduceArgs a,
                 const __grid_constant__ CudaTeam team) {
  constexpr int kLoads = 16 / kParts;
  begin_kernel();
  CudaTeamCounts& own = *team.counts;
  const uint32_t sum = __ldcg(&own.sums) + 1;
  meet_team(team, sum);
  const int64_t groups = a.elems / 4, step = int64_t{gridDim.x} * kThreads;
  float4* const all = reinterpret_cast<float4*>(a.y);
  for (int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x; first < groups;
       first += kLoads * step) {
    float4 y[kLoads] = {}, parts[kParts][kLoads] = {};
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int64_t at = first + i * step;
        if (p < a.count && at < groups) {
          parts[p][i] = __ldcg(reinterpret_cast<const float4*>(a.parts[p]) + at);
        }
        if (p == 0 && a.accumulate && at < groups) y[i] = all[at];
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        if (p < a.count) add(y[i], parts[p][i]);
      }
      if (first + i * step < groups) all[first + i * step] = y[i];
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < a.elems % 4) {
    const int64_t i = groups * 4 + threadIdx.x;
    float y = a.accumulate ? a.y[i] : 0;
    for (int p = 0; p < a.count; ++p) y += __ldcg(a.parts[p] + i);
    a.y[i] = y;
  }
  end_sum(own, sum);
}

// A thread has two elements. GPUs without a part send zeros, so that all wait for all.
__global__ void __launch_bounds__(kThreads)
    send_and_add(const __grid_constant__ CudaAllReduceArgs a,
                 const __grid_constant__ CudaTeam team) {
  begin_kernel();
  CudaTeamCounts& own = *team.counts;
  const uint32_t sum = __ldcg(&own.sums) + 1;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (2 * i < a.elems) {
    const auto place = [&](int of, int from) {
      return reinterpret_cast<uint4*>(team.memory[of]->small[sum % 2][from]) + i;
    };
    float2 mine = {};
    for (int p = 0; p < a.count; ++p) {
      if (a.ranks[p] == team.rank) mine = reinterpret_cast<const float2*>(a.parts[p])[i];
    }
    const uint4 sent = {__float_as_uint(mine.x), sum, __float_as_uint(mine.y), sum};
    for (int other = 0; other < team.gpus; ++other) {
      if (other != team.rank) send(place(other, team.rank), sent);
    }
    float2 y = {};
    if (a.accumulate) y = reinterpret_cast<const float2*>(a.y)[i];
    const auto receive = [&](int rank) {
      float2 part = mine;
      if (rank == team.rank) return part;
      const uint4* const from = place(team.rank, rank);
      wait_for(team, rank, [&] {
        const uint4 v = look(from);
        part = {__uint_as_float(v.x), __uint_as_float(v.z)};
        return v.y == sum && v.w == sum;
      });
      return part;
    };
    uint32_t others = (1u << team.gpus) - 1;
    for (int p = 0; p < a.count; ++p) {
      const float2 part = receive(a.ranks[p]);
      y.x += part.x, y.y += part.y;
      others &= ~(1u << a.ranks[p]);
    }
    for (int rank = 0; others != 0 && rank < team.gpus; ++rank) {
      if ((others >> rank & 1) != 0) receive(rank);
    }
    reinterpret_cast<float2*>(a.y)[i] = y;
  }
  end_sum(own, sum);
}

// Slices of sums that go by the host.
Status send_in_slices(CudaAllReduceArgs a, const CudaTeam& team, CudaStream stream) {
  if (a.elems % 2 != 0) return Error{"a sum of an odd number of elements"};
  int64_t left = a.elems;
  while (left > 0) {
    a.elems = left < kMostSmallSum ? left : kMostSmallSum;
    const dim3 grid(static_cast<unsigned>(ceil_div(a.elems / 2, int64_t{kThreads})));
    KTX_TRY(launch("sum over GPUs", send_and_add, grid, kThreads, 0, stream, a, team));
    a.y += a.elems;
    for (int p = 0; p < a.count; ++p) a.parts[p] += a.elems;
    left -= a.elems;
  }
  return {};
}

}  // namespace

Status launch_all_reduce(const CudaAllReduceArgs& a, const CudaTeam& team, CudaStream stream) {
  const bool small = a.elems <= kMostSmallSum && a.elems % 2 == 0 && a.count == team.gpus;
  if (small || team.by_host) return send_in_slices(a, team, stream);
  const int64_t blocks = ceil_div(a.elems / 4 + 1, int64_t{kThreads});
  const int64_t most = int64_t{8} * sm_count();
  const dim3 grid(static_cast<unsigned>(blocks < most ? blocks : most));
  auto* const kernel = a.count <= 2   ? read_and_add<2>
                       : a.count <= 4 ? read_and_add<4>
                                      : read_and_add<kMostTeam>;
  return launch("sum over GPUs", kernel, grid, kThreads, 0, stream, a, team);
}

}  // namespace ktx::kernels
