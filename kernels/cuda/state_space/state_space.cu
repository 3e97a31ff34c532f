// state_space on a GPU (Mamba-2, arXiv 2405.21060): token by token, with the matrix in registers
// (state_matrix.cuh). A token changes the matrix without a sum over its rows, so a warp does not
// wait for the sums of one token before it begins the next:
//
//   M = kept * M + in (step * value)^T
//   y = out^T M + skip * value
//
// 4 warps a block, blocks (columns, heads, texts): 256 blocks for 128 heads of 64. One token moves
// the matrix at the rate of memory; a token of a prompt takes about 110 instructions a warp.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/state_matrix.cuh"
#include "kernels/cuda/state_space/cuda_state_space.h"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {
namespace {

// What a lane needs of a token: its rows of both vectors, its columns of the values.
template <int kGroups>
struct SpaceToken {
  float4 in[kGroups], out[kGroups], value;
};

// The sum over the 16 lanes with the same four columns, of the one that the lane keeps
// (kept_column).
__device__ __forceinline__ float add_lanes(const float (&sums)[4], int lane) {
  const bool right = (lane & 2) != 0, second = (lane & 4) != 0;
  float two[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float given = right ? sums[c] : sums[c + 2];
    two[c] = (right ? sums[c + 2] : sums[c]) + __shfl_xor_sync(kAllLanes, given, 2);
  }
  float sum = (second ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, second ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(kAllLanes, sum, 8);
  return sum + __shfl_xor_sync(kAllLanes, sum, 16);
}
__device__ __forceinline__ int kept_column(int lane) {
  return (lane & 2) + (lane >> 2 & 1);
}

// Changes the matrix by a token; returns y without the skip in the column that the lane keeps.
template <int kGroups>
__device__ __forceinline__ float take_token(MatrixPart<kGroups>& m, const SpaceToken<kGroups>& x,
                                            float kept, float step, int lane) {
  float change[4], read[4] = {};
#pragma unroll
  for (int c = 0; c < 4; ++c) change[c] = step * part(x.value, c);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float in = part(x.in[j], e), out = part(x.out[j], e);
      float4& row = m.rows[j][e];
      row = {fmaf(in, change[0], kept * row.x), fmaf(in, change[1], kept * row.y),
             fmaf(in, change[2], kept * row.z), fmaf(in, change[3], kept * row.w)};
#pragma unroll
      for (int c = 0; c < 4; ++c) read[c] = fmaf(out, part(row, c), read[c]);
    }
  }
  return add_lanes(read, lane);
}

// kAhead: tokens whose inputs are in registers; divides 32.
template <int kGroups, int kAhead>
__global__ void __launch_bounds__(32 * kMatrixWarps, kGroups > 2  ? 1
                                                     : kAhead > 1 ? 3
                                                                  : 4)
    state_space(CudaStateSpaceArgs a) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = a.attrs.head_dim, rows = a.attrs.state_dim;
  const MatrixLane place(rows, dim);
  const int head = static_cast<int>(blockIdx.y), text = static_cast<int>(blockIdx.z);
  if (!place.warp_has_columns()) return;  // the whole warp
  const bool writes = lane < 8 && place.has_columns();
  float* const y = a.y + head * dim + place.column + kept_column(lane);
  const int begin = a.texts.begin[text], end = a.texts.begin[text + 1];
  if (begin == end) {  // the whole block
    if (a.texts.one_token_each && writes) y[text * a.y_stride] = 0;
    return;
  }
  const StateSegment* const segments = a.texts.segments;
  const int64_t first = segments[begin].first;
  const int tokens = static_cast<int>(segments[end - 1].first + segments[end - 1].tokens - first);
  const auto matrix_of = [&](int slot) {
    return a.states.slots + slot * a.states.slot_floats + int64_t{head} * rows * dim;
  };
  MatrixPart<kGroups> m;
  m.load(place, segments[begin].in >= 0 ? matrix_of(segments[begin].in) : nullptr);

  const int group = head / (a.attrs.heads / a.attrs.groups);
  const auto fetch = [&](int t) {
    SpaceToken<kGroups> token;
    const float* const x = a.x + (first + t) * a.x_stride;
    const float* const in = x + a.attrs.heads * dim + group * rows;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      token.in[j] = place.rows_of(in, j);
      token.out[j] = place.rows_of(in + a.attrs.groups * rows, j);
    }
    token.value = place.columns_of(x + head * dim);
    return token;
  };
  const float decay = a.decay[head], dt_bias = a.dt_bias[head], skip = a.skip[head];
  float lane_step = 0, lane_kept = 0;  // of the token with the lane's number among 32
  const auto read_steps = [&](int t) {
    if (t + lane >= tokens) return;
    lane_step = softplus(a.dt[(first + t + lane) * a.dt_stride + head] + dt_bias);
    lane_step = fmaxf(lane_step, a.attrs.step_min);
    if (a.attrs.step_max > 0) lane_step = fminf(lane_step, a.attrs.step_max);
    lane_kept = expf(decay * lane_step);
  };
  // The tokens in front of the one that is computed are on their way: their loads take far longer
  // than its arithmetic.
  SpaceToken<kGroups> ahead[kAhead];
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (j < tokens) ahead[j] = fetch(j);
  }
  int segment = begin, segment_end = segments[begin].tokens;
  for (int first_ahead = 0; first_ahead < tokens; first_ahead += kAhead) {
    if (first_ahead % 32 == 0) read_steps(first_ahead);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int t = first_ahead + j;
      if (t >= tokens) break;
      const float step = __shfl_sync(kAllLanes, lane_step, t % 32);
      const float kept = __shfl_sync(kAllLanes, lane_kept, t % 32);
      const float read = take_token(m, ahead[j], kept, step, lane);
      if (writes) {
        y[(first + t) * a.y_stride] = fmaf(skip, part(ahead[j].value, kept_column(lane)), read);
      }
      if (t + kAhead < tokens) ahead[j] = fetch(t + kAhead);
      if (t + 1 < segment_end) continue;
      m.store(place, matrix_of(segments[segment].out));
      if (++segment < end) segment_end += segments[segment].tokens;
    }
  }
}

using Kernel = void (*)(CudaStateSpaceArgs);
constexpr Kernel kOneToken[] = {state_space<1, 1>, state_space<2, 1>, state_space<3, 1>,
                                state_space<4, 1>};
constexpr Kernel kTokens[] = {state_space<1, 4>, state_space<2, 4>, state_space<3, 2>,
                              state_space<4, 2>};

}  // namespace

Status launch_state_space(const CudaStateSpaceArgs& a, CudaStream stream) {
  const int dim = a.attrs.head_dim, rows = a.attrs.state_dim;
  if (!gpu_state_space_takes(dim, rows)) {
    return Error{"state_space: no GPU kernel takes states of " + std::to_string(rows) + " by " +
                 std::to_string(dim)};
  }
  if (!four_floats_at_a_time({a.x, a.y, a.states.slots},
                             {a.x_stride, a.y_stride, a.states.slot_floats})) {
    return Error{"state_space: rows or states that do not begin at multiples of 16 bytes"};
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(dim, kBlockColumns)),
                  static_cast<unsigned>(a.attrs.heads), static_cast<unsigned>(a.texts.texts));
  const Kernel kernel = (a.texts.most_tokens > 1 ? kTokens : kOneToken)[(rows - 1) / 64];
  return launch("state_space", kernel, grid, 32 * kMatrixWarps, 0, stream, a);
}

}  // namespace ktx::kernels
