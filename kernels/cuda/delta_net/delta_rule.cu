// delta_rule on a GPU (Gated Delta Networks, arXiv 2412.06464): token by token, with the matrix in
// registers, so that a pass reads and writes it once for each segment of a text.
//
// A warp has 8 columns of a head's matrix (state_matrix.cuh), and one round of shuffles gives all
// sums of a token. These are taken over the matrix M as it was before the token:
//
//   known = k^T M, read = q^T M, k^T k, q^T q, q^T k            one round
//   change = strength * (v - kept * known)                      of lengths see below
//   y = kept * read + (q^T k) * change                          = q^T (M as it is now)
//   M = kept * M + k change^T
//
// Where each row of a matrix decays by itself (by_channel), a lane multiplies its rows by what is
// kept of them first, and kept is 1 above.
//
// 4 warps a block, blocks (columns, heads, texts): 128 blocks for 32 heads of 128. Decode moves
// the matrix at the rate of memory. A token of a prompt takes about 130 multiply-adds and 46
// shuffles a warp, one behind the other; the inputs of the next token are on their way meanwhile.
// Prompts of heads of 128 take whole chunks on tensor cores where they can (delta_chunks.cuh), and
// here what is before and behind those.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/state_matrix.cuh"
#include "kernels/cuda/delta_net/delta_chunks.cuh"
#include "kernels/cuda/delta_net/delta_gates.cuh"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {
namespace {

// What a lane needs of a token: its rows of q, k and, by channel, of a; its columns of v.
template <int kGroups, bool kByChannel>
struct TokenPart {
  float4 q[kGroups], k[kGroups], v;
  float4 a[kByChannel ? kGroups : 1];
};

// The sums of a token over all rows; a lane's own columns.
struct TokenSums {
  float known[4] = {}, read[4] = {}, kk = 0, qq = 0, qk = 0;
};

// Over the lanes with the same columns; all get the same bits.
__device__ __forceinline__ void add_lanes(TokenSums& s) {
#pragma unroll
  for (int mask = 2; mask < 32; mask *= 2) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      s.known[c] += __shfl_xor_sync(kAllLanes, s.known[c], mask);
      s.read[c] += __shfl_xor_sync(kAllLanes, s.read[c], mask);
    }
    s.kk += __shfl_xor_sync(kAllLanes, s.kk, mask);
    s.qq += __shfl_xor_sync(kAllLanes, s.qq, mask);
    s.qk += __shfl_xor_sync(kAllLanes, s.qk, mask);
  }
}

// What is kept of a lane's rows; dt_bias: of them.
template <int kGroups>
__device__ __forceinline__ void keep_rows(MatrixPart<kGroups>& m, const TokenPart<kGroups, true>& x,
                                          const float4 (&dt_bias)[kGroups], float decay,
                                          float lower_bound) {
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float rate = part(x.a[j], e) + part(dt_bias[j], e);
      const float kept = expf(lower_bound < 0 ? lower_bound / (1 + expf(-fabsf(decay) * rate))
                                              : decay * softplus(rate));
      float4& row = m.rows[j][e];
      row = {kept * row.x, kept * row.y, kept * row.z, kept * row.w};
    }
  }
}

// Changes the matrix by a token; returns its y in the lane's columns.
template <int kGroups, bool kByChannel>
__device__ __forceinline__ float4 take_token(MatrixPart<kGroups>& m,
                                             const TokenPart<kGroups, kByChannel>& x, float kept,
                                             float strength, float head_scale) {
  TokenSums sums;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float k = part(x.k[j], e), q = part(x.q[j], e);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        sums.known[c] = fmaf(k, part(m.rows[j][e], c), sums.known[c]);
        sums.read[c] = fmaf(q, part(m.rows[j][e], c), sums.read[c]);
      }
      sums.kk = fmaf(k, k, sums.kk);
      sums.qq = fmaf(q, q, sums.qq);
      sums.qk = fmaf(q, k, sums.qk);
    }
  }
  add_lanes(sums);
  // q and k as they came: their lengths are divided out of the sums.
  const float k_scale = 1 / sqrtf(sums.kk + 1e-6f);
  const float q_scale = head_scale / sqrtf(sums.qq + 1e-6f);
  float change[4], y[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float known = kept * k_scale * sums.known[c];
    change[c] = k_scale * strength * (part(x.v, c) - known);
    y[c] = q_scale * fmaf(sums.qk, change[c], kept * sums.read[c]);
  }
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float k = part(x.k[j], e);
      float4& row = m.rows[j][e];
      row = {fmaf(k, change[0], kept * row.x), fmaf(k, change[1], kept * row.y),
             fmaf(k, change[2], kept * row.z), fmaf(k, change[3], kept * row.w)};
    }
  }
  return {y[0], y[1], y[2], y[3]};
}

template <int kGroups, bool kByChannel>
__global__ void __launch_bounds__(32 * kMatrixWarps, kGroups <= 2 ? 4 : 1)
    delta_rule(CudaDeltaRuleArgs a, DeltaPart part) {
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = a.attrs.head_dim;
  const MatrixLane place(dim, dim);
  const int head = static_cast<int>(blockIdx.y), text = static_cast<int>(blockIdx.z);
  if (!place.warp_has_columns()) return;  // the whole warp
  const bool writes = place.row == 0 && place.has_columns();
  float* const y = a.y + head * dim + place.column;
  const int begin = a.texts.begin[text], end = a.texts.begin[text + 1];
  if (begin == end) {  // the whole block
    if (a.texts.one_token_each && writes) store4(y + text * a.y_stride, float4{});
    return;
  }
  const StateSegment* const segments = a.texts.segments;
  const int64_t first = segments[begin].first;
  const int tokens = static_cast<int>(segments[end - 1].first + segments[end - 1].tokens - first);

  const ChunkTokens chunks = part == DeltaPart::All ? ChunkTokens{tokens, tokens}
                                                    : whole_chunks(a.position[first], tokens);
  const int from = part == DeltaPart::Tail ? chunks.end : 0;
  const int to = part == DeltaPart::Tail ? tokens : chunks.begin;
  if (from == to) return;  // the whole block

  const auto matrix_of = [&](int slot) {
    return a.states.slots + slot * a.states.slot_floats + int64_t{head} * dim * dim;
  };
  MatrixPart<kGroups> m;
  // Between two launches the text's last state lies where it will be behind the pass.
  const int in = from == 0 ? segments[begin].in : segments[end - 1].out;
  m.load(place, in >= 0 ? matrix_of(in) : nullptr);

  const int key_head = a.attrs.tiled != 0 ? head % a.attrs.key_heads
                                          : head / (a.attrs.value_heads / a.attrs.key_heads);
  const auto fetch = [&](int t) {
    TokenPart<kGroups, kByChannel> token;
    const float* const x = a.x + (first + t) * a.x_stride;
    const float* const q = x + key_head * dim;
    const float* const k = q + a.attrs.key_heads * dim;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      token.q[j] = place.rows_of(q, j);
      token.k[j] = place.rows_of(k, j);
      if constexpr (kByChannel) {
        token.a[j] = place.rows_of(a.a + (first + t) * a.a_stride + head * dim, j);
      }
    }
    token.v = place.columns_of(x + (2 * a.attrs.key_heads + head) * dim);
    return token;
  };
  const float head_scale = 1 / sqrtf(static_cast<float>(dim));
  float4 dt_bias[kGroups];
  float decay = 0;
  if constexpr (kByChannel) {
    decay = a.decay[head];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) dt_bias[j] = place.rows_of(a.dt_bias + head * dim, j);
  }
  TokenPart<kGroups, kByChannel> token = fetch(from);
  float lane_kept, lane_strength;  // of the token with the lane's number among 32
  const auto read_gates = [&](int t) {
    const int own = t - t % 32 + lane;
    const Gates gates = own < tokens ? gates_of<kByChannel>(a, head, first + own) : Gates{};
    lane_kept = expf(gates.log_kept);
    lane_strength = gates.strength;
  };
  read_gates(from);
  int t = from, segment_end = 0;
  for (int s = begin; s < end && t < to; ++s) {
    segment_end += segments[s].tokens;
    if (segment_end <= from) continue;
    for (const int stop = min(segment_end, to); t < stop; ++t) {
      if (t % 32 == 0 && t > from) read_gates(t);
      const float kept = kByChannel ? 1 : __shfl_sync(kAllLanes, lane_kept, t % 32);
      const float strength = __shfl_sync(kAllLanes, lane_strength, t % 32);
      const TokenPart<kGroups, kByChannel> next = t + 1 < to ? fetch(t + 1) : token;
      if constexpr (kByChannel) keep_rows(m, token, dt_bias, decay, a.attrs.lower_bound);
      const float4 read = take_token(m, token, kept, strength, head_scale);
      if (writes) store4(y + (first + t) * a.y_stride, read);
      token = next;
    }
    if (t == segment_end) m.store(place, matrix_of(segments[s].out));
  }
  if (to < tokens) m.store(place, matrix_of(segments[end - 1].out));
}

using Kernel = void (*)(CudaDeltaRuleArgs, DeltaPart);
constexpr Kernel kByGroups[] = {delta_rule<1, false>, delta_rule<2, false>, delta_rule<3, false>,
                                delta_rule<4, false>};
constexpr Kernel kChannelsByGroups[] = {delta_rule<1, true>, delta_rule<2, true>,
                                        delta_rule<3, true>, delta_rule<4, true>};

}  // namespace

Status launch_delta_tokens(const CudaDeltaRuleArgs& a, DeltaPart part, CudaStream stream) {
  const int dim = a.attrs.head_dim;
  const dim3 grid(static_cast<unsigned>(ceil_div(dim, kBlockColumns)),
                  static_cast<unsigned>(a.attrs.value_heads), static_cast<unsigned>(a.texts.texts));
  const bool by_channel = a.attrs.by_channel != 0;
  const Kernel kernel = (by_channel ? kChannelsByGroups : kByGroups)[(dim - 1) / 64];
  return launch("delta_rule", kernel, grid, 32 * kMatrixWarps, 0, stream, a, part);
}

Status launch_delta_rule(const CudaDeltaRuleArgs& a, CudaStream stream) {
  const int dim = a.attrs.head_dim;
  if (!gpu_delta_rule_takes(dim)) {
    return Error{"delta_rule: no GPU kernel takes heads of " + std::to_string(dim)};
  }
  if (!four_floats_at_a_time({a.x, a.y, a.states.slots},
                             {a.x_stride, a.y_stride, a.states.slot_floats})) {
    return Error{"delta_rule: rows or states that do not begin at multiples of 16 bytes"};
  }
  const bool by_channel = a.attrs.by_channel != 0;
  if (by_channel && !four_floats_at_a_time({a.a, a.dt_bias}, {a.a_stride})) {
    return Error{"delta_rule: rates of channels that do not begin at multiples of 16 bytes"};
  }
  if (a.rows.empty() || !delta_chunks_run(a.attrs)) {
    return launch_delta_tokens(a, DeltaPart::All, stream);
  }
  return launch_delta_chunks(a, stream);
}

}  // namespace ktx::kernels
