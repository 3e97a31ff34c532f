// Attention of one token over 16 positions of a KV head by one warp, on tensor cores, for up to
// eight query heads at once: the positions are the rows of the products, the heads their columns.
//
//   const KvPiece<KvType::F16, 128> piece(address);       // 8 KiB of shared memory, the warp's own
//   piece.ask_keys(keys, lane), commit_async();           // needs no query
//   piece.ask_values(values, there, lane), commit_async();
//   OneSums<128> sums;
//   wait_async<1>(), __syncwarp(), piece.open_keys(lane);
//   sums.add_keys(piece, q, from, seen, softcap, true, lane);   // scores, weights
//   wait_async<0>(), __syncwarp(), piece.open_values(lane);
//   sums.add_values(piece, lane);
//
// No other warp takes part, so that all warps of a block need one barrier, behind the query, and
// one before their sums are merged. Short code, since a token meets it cold: addresses within
// shared memory, scores in powers of two.
#pragma once

#include "kernels/cuda/attention/kv_rows.cuh"
#include "kernels/cuda/common/matrix_loads.cuh"

namespace ktx::kernels {

// The transpose of a matrix of 8 x 8 halves: lane 4 * g + t has columns 2t and 2t + 1 of row g.
__device__ __forceinline__ uint32_t transpose_halves(uint32_t v) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}
__device__ __forceinline__ float exp2_short(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Shared memory by its addresses: pointers to it take two registers, and conversions.
__device__ __forceinline__ uint32_t address_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ void store_at(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store_at(uint32_t address, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v.x), "f"(v.y) : "memory");
}
__device__ __forceinline__ void store_at(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store_at(uint32_t address, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w)
               : "memory");
}
__device__ __forceinline__ uint32_t load_half_at(uint32_t address) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_word_at(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_quad_at(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ float2 load_floats_at(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 load_float4_at(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
// 16 bytes, or zeros.
__device__ __forceinline__ void copy_async16_at(uint32_t address, const std::byte* global,
                                                bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
#endif
}

constexpr int kLogPiece = 4, kOnePiece = 1 << kLogPiece;  // positions
constexpr int kOneHeads = 8;                              // columns of the products

// q of the heads of a group in shared memory, scaled, in F16, as fragments: [chunk of 32 elements]
// [lane][8]. Lane 4 * g + t has of head g elements 2t and 2t + 1 of each 8 of the chunk.
__device__ __forceinline__ int one_query_index(int head, int element) {
  return element / 32 * 256 + (head * 4 + element % 8 / 2) * 8 + element % 32 / 8 * 2 + element % 2;
}

// Keys and values of 16 positions in shared memory: halves, in each line of 128 bytes the places of
// 16 mixed by the row, so that matrices of 8 x 8 are read of all banks. Q8_0 comes as it is in the
// cache and is opened in its place.
template <KvType kType, int kDim>
class KvPiece {
 public:
  static constexpr int kCacheRow = kv_row_bytes(kType, kDim), kRow = 2 * kDim;
  static constexpr int kPartBytes = kOnePiece * kRow, kBytes = 2 * kPartBytes;
  static constexpr bool kHalves = kType == KvType::F16;

  __device__ explicit KvPiece(uint32_t address) : address_(address) {}
  __device__ __forceinline__ void ask_keys(const std::byte* from, int lane) const {
    ask(address_, from, kOnePiece, lane);
  }
  // Zeros instead of rows from the `there`-th on, which are not written yet: they weigh nothing,
  // but might be no numbers.
  __device__ __forceinline__ void ask_values(const std::byte* from, int there, int lane) const {
    ask(address_ + kPartBytes, from, there, lane);
  }
  // Row `row` anew, from shared memory, and into the cache if `there` is its row. Before the piece
  // is opened.
  __device__ __forceinline__ void put_key(int row, uint32_t from, std::byte* there,
                                          int lane) const {
    put(address_, row, from, there, lane);
  }
  __device__ __forceinline__ void put_value(int row, uint32_t from, std::byte* there,
                                            int lane) const {
    put(address_ + kPartBytes, row, from, there, lane);
  }
  __device__ __forceinline__ void open_keys(int lane) const {
    if constexpr (!kHalves) open(address_, lane);
  }
  __device__ __forceinline__ void open_values(int lane) const {
    if constexpr (!kHalves) open(address_ + kPartBytes, lane);
  }
  // Elements 16i .. 16i + 15 of the keys, positions as rows; of the values, elements as rows.
  __device__ __forceinline__ void keys(int i, uint32_t (&m)[4], int lane) const {
    load_matrices(m, place(address_, lane % 16, lane / 16, i));
  }
  __device__ __forceinline__ void values(int i, uint32_t (&m)[4], int lane) const {
    load_transposed(m, place(address_ + kPartBytes, lane % 8 + lane / 16 * 8, lane / 8 % 2, i));
  }

 private:
  // The 16 bytes of elements 16i + 8 * half and on.
  __device__ __forceinline__ static uint32_t place(uint32_t part, int row, int half, int i) {
    return part + row * kRow + ((row % 8 ^ half) * 16 ^ i % 4 * 32) + i / 4 * 128;
  }
  __device__ __forceinline__ static void ask(uint32_t to, const std::byte* from, int there,
                                             int lane) {
    if constexpr (kHalves) {
      constexpr int kRows = 512 / kRow;  // that a warp copies at once
      const int row = lane * 16 / kRow;
      const uint32_t at = to + ((lane * 16) ^ (row * 16));
#pragma unroll
      for (int i = 0; i < kOnePiece / kRows; ++i) {
        copy_async16_at(i * 512 + (at ^ (i * kRows % 8 * 16)), from + i * 512 + lane * 16,
                        i * kRows + row < there);
      }
    } else {
      constexpr int kPlaces = kOnePiece * kCacheRow / 16;
#pragma unroll
      for (int i = 0; i < (kPlaces + 31) / 32; ++i) {
        const int at = (i * 32 + lane) * 16;
        if (i * 32 + lane < kPlaces) {
          copy_async16_at(to + at, from + at, at < there * kCacheRow);
        }
      }
    }
  }
  __device__ __forceinline__ static void put(uint32_t part, int row, uint32_t from,
                                             std::byte* there, int lane) {
    constexpr int kWords = kCacheRow / 4;
#pragma unroll
    for (int i = lane; i < kWords; i += 32) {
      const uint32_t word = load_word_at(from + i * 4);
      store_at(part + row * kCacheRow + (i * 4 ^ (kHalves ? (row & 7) * 16 : 0)), word);
      if (there) reinterpret_cast<uint32_t*>(there)[i] = word;
    }
  }
  // A lane opens a block of 34 bytes, of the last rows first: they move up.
  __device__ static void open(uint32_t part, int lane) {
    constexpr int kBlocks = kDim / 32, kRows = 32 / kBlocks;
    const int block = lane % kBlocks;
#pragma unroll 1
    for (int row = kOnePiece - kRows + lane / kBlocks; row >= 0; row -= kRows) {
      const uint32_t from = part + row * kCacheRow + block * 34;
      const half2 scale = as_half2(load_half_at(from) * 0x10001u);
      const half2 bias = __half2half2(__ushort_as_half(0x6400 + 128));
      uint32_t v[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const uint32_t bytes = load_half_at(from + 2 + 2 * i) ^ 0x8080u;
        v[i] = as_bits(
            __hmul2(__hsub2(as_half2(__byte_perm(bytes, 0x64646464, 0x4140)), bias), scale));
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = block * 64 + i * 16;
        store_at(part + row * kRow + (at ^ row % 8 * 16),
                 uint4{v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]});
      }
      __syncwarp();
    }
  }
  uint32_t address_;
};

// What a warp has seen: lane 4 * g + t of heads 2t and 2t + 1 the weighted elements
// 16i + g (values[i][0 and 1]) and 16i + 8 + g (2 and 3).
template <int kDim>
struct OneSums {
  float largest[2] = {-1e30f, -1e30f};  // (scores of -inf weigh nothing)
  float total[2] = {0, 0};              // of exp2(score - largest), of this lane's positions
  float values[kDim / 16][4] = {};
  uint32_t weights[2];  // of the piece, of positions 2t, 2t + 1 and 2t + 8, 2t + 9 for head g

  __device__ __forceinline__ bool none() const { return fmaxf(largest[0], largest[1]) == -1e30f; }
  // The positions [from, seen) of the piece. `first`: nothing was seen before. Scores are powers of
  // two: q and softcap are multiplied by log2(e). All lanes take part.
  template <KvType kType>
  __device__ __forceinline__ void add_keys(const KvPiece<kType, kDim>& piece, uint32_t q, int from,
                                           int seen, float softcap, bool first, int lane) {
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4 b = load_quad_at(q + c * 512 + lane * 16);
      uint32_t a[4];
      piece.keys(2 * c, a, lane);
      mma_f16(even, a, b.x, b.y);
      piece.keys(2 * c + 1, a, lane);
      mma_f16(odd, a, b.z, b.w);
    }
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = even[i] + odd[i];
    if (__builtin_expect(softcap > 0, 0)) {
      const float factor = __fdividef(2 * 1.44269504f, softcap);
#pragma unroll
      for (float& v : w) {  // tanh by the exponential: an error of 1e-7 of the cap
        v = softcap - __fdividef(2 * softcap, 1 + exp2_short(factor * v));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      if (row < from || row >= seen) w[i] = -INFINITY;
    }
    float shrink[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float most = fmaxf(w[e], w[2 + e]);
#pragma unroll
      for (int o = 4; o < 32; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
      most = fmaxf(most, largest[e]);
      shrink[e] = exp2_short(largest[e] - most);
      largest[e] = most;
      w[e] = exp2_short(w[e] - most);
      w[2 + e] = exp2_short(w[2 + e] - most);
      total[e] = total[e] * shrink[e] + (w[e] + w[2 + e]);
    }
    weights[0] = transpose_halves(pack_halves(w[0], w[1]));
    weights[1] = transpose_halves(pack_halves(w[2], w[3]));
    if (first) return;
#pragma unroll
    for (auto& v : values) {
      v[0] *= shrink[0], v[2] *= shrink[0];
      v[1] *= shrink[1], v[3] *= shrink[1];
    }
  }
  template <KvType kType>
  __device__ __forceinline__ void add_values(const KvPiece<kType, kDim>& piece, int lane) {
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      uint32_t a[4];
      piece.values(i, a, lane);
      mma_f16(values[i], a, weights[0], weights[1]);
    }
  }
};

// Parts of two heads on their way to a merge: [element][head of the two], and their sums, largest
// score and total of each. A warp writes those of its heads to its own shared memory, two heads
// every kPitch bytes, so that lanes write to banks of their own.
template <int kDim>
struct OneParts {
  static constexpr int kPitch = 8 * kDim + 32, kBytes = kOneHeads / 2 * kPitch;

  __device__ __forceinline__ static void put(const OneSums<kDim>& own, uint32_t to, uint32_t sums,
                                             int heads, int lane) {
    const int g = lane / 4, t = lane % 4;
    float total[2] = {own.total[0], own.total[1]};
#pragma unroll
    for (int o = 4; o < 32; o *= 2) {
      total[0] += __shfl_xor_sync(~0u, total[0], o), total[1] += __shfl_xor_sync(~0u, total[1], o);
    }
    if (2 * t >= heads) return;
    if (g == 0) store_at(sums + t * 16, float4{own.largest[0], total[0], own.largest[1], total[1]});
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      store_at(to + t * kPitch + (16 * i + g) * 8, float2{own.values[i][0], own.values[i][1]});
      store_at(to + t * kPitch + (16 * i + 8 + g) * 8, float2{own.values[i][2], own.values[i][3]});
    }
  }
};

// A lane's share of two heads, over all parts: elements 2 * lane and 2 * lane + 1 of 64, {x, y} and
// {z, w}, not yet divided by the total; and the largest score and the total of head lane / 16.
struct TwoHeads {
  float4 v = {0, 0, 0, 0};
  float largest, total;

  // Merges parts 0 .. count - 1, in rising order; kMost at most. The sums of part i are at
  // sums + i * sums_pitch, its values at values + i * pitch, in shared memory.
  template <int kMost>
  __device__ __forceinline__ void merge(int count, uint32_t sums, int sums_pitch, uint32_t values,
                                        int pitch, int lane) {
    float2 own = {-INFINITY, 0};
    if (lane % 16 < count) own = load_floats_at(sums + lane % 16 * sums_pitch + lane / 16 * 8);
    largest = fmaxf(own.x, -1e30f);
#pragma unroll
    for (int o = 1; o < kMost; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    const float weight = exp2_short(own.x - largest);
    total = weight * own.y;
#pragma unroll
    for (int o = 1; o < kMost; o *= 2) total += __shfl_xor_sync(~0u, total, o);
    if (count == 0) return;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {  // (those behind the last one weigh nothing)
      if (i % 4 == 0 && i >= count) break;
      const float4 x = load_float4_at(values + min(i, count - 1) * pitch + lane * 16);
      const float w0 = __shfl_sync(~0u, weight, i), w1 = __shfl_sync(~0u, weight, 16 + i);
      v.x = fmaf(w0, x.x, v.x), v.y = fmaf(w1, x.y, v.y);
      v.z = fmaf(w0, x.z, v.z), v.w = fmaf(w1, x.w, v.w);
    }
  }
};

// A group of more than eight heads is that of several blocks, or clusters.
__host__ __device__ inline int head_parts(const AttentionAttrs& a) {
  return (a.heads / a.kv_heads + kOneHeads - 1) / kOneHeads;
}

}  // namespace ktx::kernels
