// Attention over a piece of 64 positions by four warps, on tensor cores: 16 rows, (token, head)
// pairs that read the same KV head, and what they have seen so far.
//
//   scores   warp w: q (16 rows) x keys of positions 16w .. 16w + 15, to shared memory
//   softmax  every warp for itself: new largest, weights in F16, sums
//   values   warp w: weights x its quarter of the value's elements
//
// Keys and values go from memory straight into B fragments: the k of a product may be
// permuted (as in marlin_layout.h), so a lane reads 8 neighbouring elements of a key, and
// of a value the lane's own columns for four positions.
#pragma once

#include "kernels/cuda/attention/kv_rows.cuh"

namespace ktx::kernels {

constexpr int kPiece = 64;          // positions
constexpr int kAttentionRows = 16;  // (token, head) pairs
constexpr int kScorePitch = kPiece + 4;
constexpr int kAttentionThreads = 128;

// Keys and values of a piece. Rows past `last` were never written.
struct PieceRows {
  const std::byte *keys, *values;
  int64_t key_bytes, value_bytes;
  int last;
};

// q of 16 rows in shared memory, scaled: [chunk of 32 elements][row][quarter of 8 halves].
__device__ __forceinline__ void put_query(uint4* q, int row, int chunk, int part, const float* x,
                                          float scale) {
  float v[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = x ? x[j] * scale : 0;
  q[(chunk * kAttentionRows + row) * 4 + part] = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3]),
                                                  pack_halves(v[4], v[5]), pack_halves(v[6], v[7])};
}

// Sums of the lane's rows g and g + 8 (g = lane / 4); quad = lane % 4.
// kHalves: 2, or 1 where the rows from the ninth on are not needed.
template <KvType kType, int kQuarter, int kHalves = 2>
struct AttentionSums {
  static constexpr int kOwn = kQuarter / 8;  // value elements of a lane
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};     // of exp(score - largest)
  float values[kOwn][4] = {};  // [own element][c]: rows g, g + 8; lanes 2 quad, 2 quad + 1

  // The rows see the positions [from, seen). sync() is a barrier of the four warps.
  template <class Sync>
  __device__ __forceinline__ void add(const uint4* q, int chunks, float (*scores)[kScorePitch],
                                      const PieceRows& rows, int first, const int (&from)[2],
                                      const int (&seen)[2], float softcap, int warp, int lane,
                                      Sync sync) {
    const int g = lane / 4, quad = lane % 4;
    // Values that fit in registers are on their way while scores are made.
    constexpr bool kEarly = kOwn <= 4;
    const int own = warp * kQuarter + g * kOwn;  // first element of the lane's columns
    uint32_t early[kEarly ? 16 : 1][kOwn / 2];
    if constexpr (kEarly) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int row = 16 * (i / 4) + 4 * quad + i % 4;
        kv_halves<kType, kOwn>(rows.values + min(row, rows.last) * rows.value_bytes, own, early[i]);
      }
    }
    score(q, chunks, scores, rows, warp, lane);
    sync();
    uint32_t weights[4][4];
    weigh(scores, first, from, seen, softcap, lane, weights);
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t v[4][kOwn / 2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (kEarly) {
#pragma unroll
          for (int i = 0; i < kOwn / 2; ++i) v[j][i] = early[4 * s + j][i];
        } else {
          kv_halves<kType, kOwn>(
              rows.values + min(16 * s + 4 * quad + j, rows.last) * rows.value_bytes, own, v[j]);
        }
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const uint32_t select = i % 2 ? 0x7632 : 0x5410;
        mma_f16(values[i], weights[s], __byte_perm(v[0][i / 2], v[1][i / 2], select),
                __byte_perm(v[2][i / 2], v[3][i / 2], select));
      }
    }
    sync();
  }

  // out[warp * kQuarter ...] of row g (r = 0) or g + 8 (r = 1), times `factor`. Column
  // 2 quad + e of product i is element i of lane 2 quad + e's.
  __device__ __forceinline__ void write(int r, float factor, float* out, int warp, int lane) const {
    const int quad = lane % 4;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        out[warp * kQuarter + (2 * quad + e) * kOwn + i] = values[i][2 * r + e] * factor;
      }
    }
  }

 private:
  __device__ __forceinline__ void score(const uint4* q, int chunks, float (*scores)[kScorePitch],
                                        const PieceRows& rows, int warp, int lane) const {
    const int g = lane / 4, quad = lane % 4;
    float score[2][4] = {};
    const std::byte* key0 = rows.keys + min(16 * warp + g, rows.last) * rows.key_bytes;
    const std::byte* key1 = rows.keys + min(16 * warp + 8 + g, rows.last) * rows.key_bytes;
#pragma unroll 4
    for (int c = 0; c < chunks; ++c) {
      uint32_t b0[4], b1[4];
      kv_halves<kType, 8>(key0, 32 * c + 8 * quad, b0);
      kv_halves<kType, 8>(key1, 32 * c + 8 * quad, b1);
      const uint4 q0 = q[(c * kAttentionRows + g) * 4 + quad];
      uint4 q1{0, 0, 0, 0};
      if constexpr (kHalves == 2) q1 = q[(c * kAttentionRows + g + 8) * 4 + quad];
      const uint32_t a0[4] = {q0.x, q1.x, q0.y, q1.y}, a1[4] = {q0.z, q1.z, q0.w, q1.w};
      mma_f16(score[0], a0, b0[0], b0[1]);
      mma_f16(score[0], a1, b0[2], b0[3]);
      mma_f16(score[1], a0, b1[0], b1[1]);
      mma_f16(score[1], a1, b1[2], b1[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int column = 16 * warp + 8 * n + 2 * quad;
      scores[g][column] = score[n][0];
      scores[g][column + 1] = score[n][1];
      if constexpr (kHalves == 2) {
        scores[g + 8][column] = score[n][2];
        scores[g + 8][column + 1] = score[n][3];
      }
    }
  }

  // Weights as A fragments: step s, positions 16s + 4 quad .. + 3.
  __device__ __forceinline__ void weigh(const float (*scores)[kScorePitch], int first,
                                        const int (&from)[2], const int (&seen)[2], float softcap,
                                        int lane, uint32_t (&weights)[4][4]) {
    const int g = lane / 4, quad = lane % 4;
    float shrink[2] = {1, 1};
    if constexpr (kHalves == 1) {
#pragma unroll
      for (auto& w : weights) w[1] = w[3] = 0;
    }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      float4 v[4];
      float most = largest[r];
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        v[s] = *reinterpret_cast<const float4*>(&scores[g + 8 * r][16 * s + 4 * quad]);
        const int position = first + 16 * s + 4 * quad;
        float* each = &v[s].x;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (softcap > 0) each[j] = softcap * tanhf(each[j] / softcap);
          if (position + j >= seen[r] || position + j < from[r]) each[j] = -INFINITY;
          most = fmaxf(most, each[j]);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0 : most;
      shrink[r] = __expf(largest[r] - base);
      largest[r] = most;
      float sum = 0;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const float w0 = __expf(v[s].x - base), w1 = __expf(v[s].y - base);
        const float w2 = __expf(v[s].z - base), w3 = __expf(v[s].w - base);
        sum += w0 + w1 + w2 + w3;
        weights[s][r] = pack_halves(w0, w1);
        weights[s][2 + r] = pack_halves(w2, w3);
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      total[r] = total[r] * shrink[r] + sum;
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      values[i][0] *= shrink[0], values[i][1] *= shrink[0];
      values[i][2] *= shrink[1], values[i][3] *= shrink[1];
    }
  }
};

}  // namespace ktx::kernels
