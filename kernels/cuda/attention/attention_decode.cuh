// Attention of one token over 16 positions of a KV head by one warp, on tensor cores, for up to
// eight query heads at once: the positions are the rows of the products, the heads their columns.
//
//   KvPiece<KvType::F16, 128> piece;
//   piece.load(rows, there, lane);             // 64 registers; needs no query
//   OneSums<128> sums;
//   sums.add(piece, q, seen, lane);            // scores, softmax, values
//
// No other warp takes part, so that all warps of a block need one barrier, behind the query, and
// one before their sums are merged.
#pragma once

#include "kernels/cuda/attention/kv_rows.cuh"

namespace ktx::kernels {

// The transpose of a matrix of 8 x 8 halves: lane 4 * g + t has columns 2t and 2t + 1 of row g.
__device__ __forceinline__ uint32_t transpose_halves(uint32_t v) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// The halves of meet_cluster(): what a thread wrote before it arrives is seen by who has waited. A
// block that has ended is not waited for. begin_in_cluster() tells nothing but that a block runs.
__device__ __forceinline__ void begin_in_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void await_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Writes to the shared memory of block `rank` of the cluster, where this block has `p`.
__device__ __forceinline__ void store_of_rank(float* p, int rank, float v) {
#if __CUDA_ARCH__ >= 900
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  uint32_t other;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(other), "f"(v) : "memory");
#else
  (void)rank;
  *p = v;
#endif
}

constexpr int kOnePiece = 16;  // positions
constexpr int kOneHeads = 8;   // columns of the products

// q of the heads of a group in shared memory, scaled, in F16: [chunk of 32 elements][head][32].
// Lane 4 * g + t reads elements 8t .. 8t + 7 of head g as one piece of 16 bytes.
__device__ __forceinline__ int one_query_index(int head, int element) {
  return element / 32 * (32 * kOneHeads) + head * 32 + element % 32;
}

// Rows of keys and values side by side.
struct KvRows {
  const std::byte *keys, *values;
  int key_bytes, value_bytes;  // of a row
};

__device__ __forceinline__ int cache_block(const CudaKvView& kv, int sequence, int position) {
  return kv.table[sequence * kv.table_stride + position / static_cast<int>(kv.layout.block_tokens)];
}
// Those from a position on, which is in block `block` of the cache.
__device__ __forceinline__ KvRows kv_rows_at(const CudaKvView& kv, int block, int kv_head,
                                             int position) {
  const std::byte* slot = kv.pool + block * kv.block_bytes + kv.slot_offset;
  const int row = position % static_cast<int>(kv.layout.block_tokens);
  return {slot + kv.layout.key_offset(kv_head, row), slot + kv.layout.value_offset(kv_head, row),
          static_cast<int>(kv.layout.key_row_bytes()),
          static_cast<int>(kv.layout.value_row_bytes())};
}

// Lane 4 * g + t has of keys g and g + 8 elements 8t .. 8t + 7 of each 32, and of values
// 2t, 2t + 1, 2t + 8, 2t + 9 elements g * kDim / 8 and on.
template <KvType kType, int kDim>
struct KvPiece {
  static constexpr int kChunks = kDim / 32, kOwn = kDim / 8;
  uint32_t keys[2][kChunks][4];
  uint32_t values[4][kOwn / 2];

  // Rows from the `there`-th on are zeros: they are not written yet.
  __device__ __forceinline__ void load(const KvRows& rows, int there, int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int row = g + 8 * n;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (row < there) {
          kv_halves<kType, 8>(rows.keys + row * rows.key_bytes, 32 * c + 8 * t, keys[n][c]);
        } else {
          keys[n][c][0] = keys[n][c][1] = keys[n][c][2] = keys[n][c][3] = 0;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = value_row(j, t);
      if (row < there) {
        kv_halves<kType, kOwn>(rows.values + row * rows.value_bytes, g * kOwn, values[j]);
      } else {
#pragma unroll
        for (uint32_t& v : values[j]) v = 0;
      }
    }
  }
  // Row `row` anew.
  __device__ __forceinline__ void put(int row, const std::byte* key, const std::byte* value,
                                      int lane) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (row != g + 8 * n) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) kv_halves<kType, 8>(key, 32 * c + 8 * t, keys[n][c]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row == value_row(j, t)) kv_halves<kType, kOwn>(value, g * kOwn, values[j]);
    }
  }

 private:
  __device__ static int value_row(int j, int t) {
    return 2 * t + j % 2 + j / 2 * 8;
  }
};

// What a warp has seen: lane 4 * g + t of heads 2t and 2t + 1 the weighted elements g * kDim / 8
// and on, the first half in values[i][0 and 1], the second in values[i][2 and 3].
template <int kDim>
struct OneSums {
  static constexpr int kOwn = kDim / 8;
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // of exp(score - largest), of this lane's positions
  float values[kOwn / 2][4] = {};

  // The positions [from, seen) of the piece, one at least. All lanes take part.
  template <KvType kType>
  __device__ __forceinline__ void add(const KvPiece<kType, kDim>& piece, const uint4* q, int from,
                                      int seen, float softcap, int lane) {
    const int g = lane / 4;
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4 b = q[c * 32 + lane];
      const auto& low = piece.keys[0][c];
      const auto& high = piece.keys[1][c];
      const uint32_t a0[4] = {low[0], high[0], low[1], high[1]};
      const uint32_t a1[4] = {low[2], high[2], low[3], high[3]};
      mma_f16(even, a0, b.x, b.y);
      mma_f16(odd, a1, b.z, b.w);
    }
    float w[4], shrink[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8;
      w[i] = even[i] + odd[i];
      if (softcap > 0) w[i] = softcap * tanhf(w[i] / softcap);
      if (row < from || row >= seen) w[i] = -INFINITY;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float most = fmaxf(w[e], w[2 + e]);
      for (int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
      most = fmaxf(most, largest[e]);
      const float base = most == -INFINITY ? 0 : most;
      shrink[e] = __expf(largest[e] - base);
      largest[e] = most;
      w[e] = __expf(w[e] - base);
      w[2 + e] = __expf(w[2 + e] - base);
      total[e] = total[e] * shrink[e] + (w[e] + w[2 + e]);
    }
    const uint32_t b0 = transpose_halves(pack_halves(w[0], w[1]));
    const uint32_t b1 = transpose_halves(pack_halves(w[2], w[3]));
#pragma unroll
    for (int i = 0; i < kOwn / 2; ++i) {
#pragma unroll
      for (int v = 0; v < 4; ++v) values[i][v] *= shrink[v % 2];
      const uint32_t select = i % 2 ? 0x7632 : 0x5410;
      const int first = i / 2, second = kOwn / 4 + i / 2;
      const auto& p = piece.values;
      const uint32_t a[4] = {__byte_perm(p[0][first], p[1][first], select),
                             __byte_perm(p[0][second], p[1][second], select),
                             __byte_perm(p[2][first], p[3][first], select),
                             __byte_perm(p[2][second], p[3][second], select)};
      mma_f16(values[i], a, b0, b1);
    }
  }
};

// The sums of a warp on their way to a merge, in shared memory. Pitches keep lanes in banks of
// their own.
template <int kDim>
struct OneParts {
  static constexpr int kOwn = kDim / 8, kHeadPitch = 8 * (kOwn + 4) + 4;
  float* values;  // [warp][head], kHeadPitch each
  float2* sums;   // [warp][head]: largest, total

  __device__ __forceinline__ static int index(int element) {
    return element / kOwn * (kOwn + 4) + element % kOwn;
  }
  __device__ __forceinline__ void put(const OneSums<kDim>& own, int warp, int heads,
                                      int lane) const {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float total = own.total[e];
      for (int o = 4; o < 32; o *= 2) total += __shfl_xor_sync(~0u, total, o);
      const int head = 2 * t + e;
      if (head >= heads) continue;
      if (g == 0) sums[warp * heads + head] = {own.largest[e], total};
      auto* to =
          reinterpret_cast<float4*>(values + (warp * heads + head) * kHeadPitch + g * (kOwn + 4));
#pragma unroll
      for (int i = 0; i < kOwn / 2; i += 4) {
        to[i / 4] = {own.values[i][e], own.values[i + 1][e], own.values[i + 2][e],
                     own.values[i + 3][e]};
        to[kOwn / 8 + i / 4] = {own.values[i][2 + e], own.values[i + 1][2 + e],
                                own.values[i + 2][2 + e], own.values[i + 3][2 + e]};
      }
    }
  }
};

// Part `i` of `count` of an element and of its head: sums(i), value(i). Gives the element, not yet
// divided by the total, in rising order; `all`: largest and total.
template <class Sums, class Value>
__device__ __forceinline__ float merge_ones(int count, Sums sums, Value value, float2& all) {
  float largest = -INFINITY;
#pragma unroll 8
  for (int i = 0; i < count; ++i) largest = fmaxf(largest, sums(i).x);
  float total = 0, v = 0;
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const float2 part = sums(i);
    const float weight = __expf(part.x - largest);
    total = fmaf(weight, part.y, total);
    v = fmaf(weight, value(i), v);
  }
  all = {largest, total};
  return v;
}

// A group of more than eight heads is that of several blocks, or clusters.
__host__ __device__ inline int head_parts(const AttentionAttrs& a) {
  return (a.heads / a.kv_heads + kOneHeads - 1) / kOneHeads;
}

}  // namespace ktx::kernels
