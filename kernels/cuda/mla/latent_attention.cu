// Attention over expanded keys and values (latent_panels.cuh), by Hopper's products: the second
// half of MLA in expanded form.
//
// A block takes 128 tokens of one head, 64 to a warpgroup, and walks the pieces of 64 positions
// that they see. A third warpgroup, which gives its registers to the others, loads pieces ahead, in
// four stages. They all synchronize at the barriers of the stages only, so that one warpgroup's
// softmax overlaps the other's products. Within a warpgroup, the softmax of the next piece waits
// only for that piece's scores; this piece's product with the values still runs.
//
//   scores   q (registers, F16, scaled) . keys (head_dim / 64 panels and the rotary one)
//   values   weights (registers, F16) . values (positions in rows)
//
// Roofline: the tensor cores; a piece takes 1280 cycles for 128 tokens and head_dim 128, and 512 of
// exp. Shared memory: 160 KiB. Registers: 48 q, 32 scores, 16 weights, 64 sums.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/mla/latent_panels.cuh"

namespace ktx::kernels {
namespace {

constexpr int kGroups = 2;                     // warpgroups
constexpr int kThreads = 128 * (kGroups + 1);  // and the one that asks for pieces
constexpr int kStages = 4;
constexpr int kPanelBytes = kPanelHalves * 2;
constexpr float kLog2E = 1.4426950408889634f;
static_assert(kLatentAttentionRows == 64 * kGroups);

template <int kDim>
struct Stage {
  static constexpr int kHeadBytes = kDim * 256;  // keys, values
  static constexpr int kBytes = kHeadBytes + kPanelBytes;
};

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two rows of this lane's, 8 apart, and what their softmax has seen.
struct RowSums {
  int seen[2];  // positions that the row sees
  int least;    // of all rows of the warp
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of this lane's columns
  float shrink[2];

  // Scores of the positions from `first` on become weights.
  __device__ __forceinline__ void weigh(float (&s)[8][4], int first, int lane) {
    if (first + kPiece > least) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          if (first + 8 * j + lane % 4 * 2 + v % 2 >= seen[v / 2]) s[j][v] = -INFINITY;
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = largest[r];
#pragma unroll
      for (int j = 0; j < 8; ++j) most = fmaxf(most, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0 : most * kLog2E;
      shrink[r] = exp2_fast(fmaf(largest[r], kLog2E, -base));
      largest[r] = most;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        s[j][2 * r] = exp2_fast(fmaf(s[j][2 * r], kLog2E, -base));
        s[j][2 * r + 1] = exp2_fast(fmaf(s[j][2 * r + 1], kLog2E, -base));
        sum += s[j][2 * r] + s[j][2 * r + 1];
      }
      total[r] = total[r] * shrink[r] + sum;
    }
  }
};

// Weights as A: step k has positions 16k .. 16k + 15.
__device__ __forceinline__ void pack_weights(const float (&s)[8][4], uint32_t (&a)[4][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[k][2 * h] = pack_halves(s[2 * k + h][0], s[2 * k + h][1]);
      a[k][2 * h + 1] = pack_halves(s[2 * k + h][2], s[2 * k + h][3]);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) latent_attention(LatentAttention p) {
  begin_kernel();
  constexpr int kStageBytes = Stage<kDim>::kBytes, kHeadBytes = Stage<kDim>::kHeadBytes;
  constexpr int kSteps = kDim / 16;
  extern __shared__ uint8_t attention_shared[];
  __shared__ uint64_t full[kStages], empty[kStages];
  uint8_t* const memory = attention_shared + (-shared_address(attention_shared) & 1023);
  const CudaLatentArgs& a = p.of;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // The longest first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kLatentAttentionRows;
  const int split = static_cast<int>(blockIdx.y), head = static_cast<int>(blockIdx.z);
  const int tokens = static_cast<int>(a.tokens);
  if (thread == 0) {
    for (uint64_t& barrier : full) start_barrier(&barrier);
    for (uint64_t& barrier : empty) start_barrier(&barrier, 4 * kGroups);
  }
  __syncthreads();
  // Positions rise with the tokens.
  const auto seen_by = [&](int token) {
    return min(a.kv.position[min(token, tokens - 1)] + 1, static_cast<int>(a.positions));
  };
  const PieceRange range =
      piece_range(0, seen_by(first + kLatentAttentionRows - 1), p.parts.splits, split);
  const int pieces = range.end - range.begin;

  if (warp >= 4 * kGroups) {
    give_registers<24>();
    if (thread != 128 * kGroups) return;
    for (int i = 0; i < pieces; ++i) {
      const int stage = i % kStages, piece = range.begin + i;
      if (i >= kStages) wait_phase(&empty[stage], (i / kStages - 1) % 2);
      uint8_t* to = memory + stage * kStageBytes;
      bytes_to_come(&full[stage], kStageBytes);
      copy_bulk(to, p.expanded + (int64_t{head} * p.pieces + piece) * (kHeadBytes / 2), kHeadBytes,
                &full[stage]);
      copy_bulk(to + kHeadBytes,
                p.latents + ((int64_t{piece} + 1) * (p.latent_panels + 1) - 1) * kPanelHalves,
                kPanelBytes, &full[stage]);
    }
    return;
  }

  get_registers<240>();
  const int group = warp / 4, g = lane / 4, column = lane % 4 * 2;
  const int first_of_group = first + 64 * group;
  int token[2];
  RowSums rows;
  uint32_t q[kSteps + 4][4];  // as A
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    token[r] = first_of_group + warp % 4 * 16 + g + 8 * r;
    const bool live = token[r] < tokens;
    rows.seen[r] = live ? seen_by(token[r]) : 0;
    const uint16_t* x = a.queries + (token[r] * int64_t{a.heads} + head) * (kDim + 64) + 2 * column;
#pragma unroll
    for (int k = 0; k < kSteps + 4; ++k) {
      uint2 v = {0, 0};
      if (live) v = *reinterpret_cast<const uint2*>(x + 16 * k);
      q[k][r] = v.x;
      q[k][2 + r] = v.y;
    }
  }
  rows.least = __reduce_min_sync(~0u, min(rows.seen[0], rows.seen[1]));
  // The number of pieces that rows of this warpgroup see.
  const int longest = first_of_group < tokens ? seen_by(first_of_group + 63) : 0;
  const int own = max(0, min(pieces, (longest + kPiece - 1) / kPiece - range.begin));

  float s[8][4], sums[kDim / 8][4] = {};
  uint32_t weights[4][4];
  const auto ask_scores = [&](int i) {
    wait_phase(&full[i % kStages], i / kStages % 2);
    const uint8_t* stage = memory + i % kStages * kStageBytes;
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      wgmma_f16(s, q[k], wgmma_rows(stage + k / 4 * kPanelBytes, k % 4), k > 0);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_f16(s, q[kSteps + k], wgmma_rows(stage + kHeadBytes, k), true);
    commit_wgmma();
  };
  const auto ask_values = [&](int i) {
    const uint8_t* stage = memory + i % kStages * kStageBytes + kDim * 128;
    fence_wgmma();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma_f16(sums, weights[k], wgmma_rows(stage, k), true);
    commit_wgmma();
  };
  const auto release = [&](int i) {
    if (lane == 0) arrive(&empty[i % kStages]);
  };
  if (own > 0) {
    ask_scores(0);
    wait_wgmma<0>();
    ready(s);
    rows.weigh(s, range.begin * kPiece, lane);
    pack_weights(s, weights);
    for (int i = 0; i + 1 < own; ++i) {
      ask_scores(i + 1);
      ask_values(i);
      wait_wgmma<1>();
      ready(s);
      rows.weigh(s, (range.begin + i + 1) * kPiece, lane);
      wait_wgmma<0>();
      ready(sums);
      ready(weights);
      release(i);
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[j][v] *= rows.shrink[v / 2];
      }
      pack_weights(s, weights);
    }
    ask_values(own - 1);
    wait_wgmma<0>();
    ready(sums);
    ready(weights);
    release(own - 1);
  }
  // A stage is free when both warpgroups have given it back, in turn.
  for (int i = own; i < pieces; ++i) {
    wait_phase(&full[i % kStages], i / kStages % 2);
    release(i);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = rows.total[r];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    if (token[r] >= tokens) continue;
    float factor = total > 0 ? 1 / total : 0;
    float* out = a.y + token[r] * a.y_stride + head * kDim;
    if (p.parts.splits > 1) {
      const int64_t part = (int64_t{token[r]} * gridDim.z + head) * p.parts.splits + split;
      if (lane % 4 == 0) p.parts.sums[part] = {rows.largest[r], total};
      out = p.parts.values + part * kDim;
      factor = 1;
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      *reinterpret_cast<float2*>(out + 8 * j + column) = {sums[j][2 * r] * factor,
                                                          sums[j][2 * r + 1] * factor};
    }
  }
}

}  // namespace

Status launch_latent_attention(const LatentAttention& p, int heads, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div<int64_t>(p.of.tokens, kLatentAttentionRows)),
                  static_cast<unsigned>(p.parts.splits), static_cast<unsigned>(heads));
  const char* what = "attention over expanded keys and values";
  if (p.of.head_dim == 128) {
    return launch(what, latent_attention<128>, grid, kThreads, kStages * Stage<128>::kBytes + 1024,
                  stream, p);
  }
  return launch(what, latent_attention<64>, grid, kThreads, kStages * Stage<64>::kBytes + 1024,
                stream, p);
}

}  // namespace ktx::kernels
