// Attention whose values are the first elements of its keys (absorbed MLA: many heads, one wide
// row a position), on tensor cores.
//
// A block of 8 warps takes 16 or 32 rows, (token, head) pairs that read the same KV head, and
// brings each piece of 64 positions to shared memory once, for scores and for values:
//
//   scores   warp w: 8 or 16 positions for 16 rows, all of the key; to shared memory
//   softmax  8 or 16 threads a row: new largest, weights in F16, what earlier sums shrink by
//   values   warp w: weights of all rows x its eighth of the value's columns
//
// Sparse and compressed attention (kListed) take what a token's list has, each token by itself.
//
// The next piece is on its way meanwhile where shared memory has room for two. Rows are 16 bytes
// longer than a key, so that the eight of an ldmatrix lie in different banks.
//
// Roofline: few rows, bytes of the cache; many, the tensor cores. DeepSeek's 128 heads read the
// cache 4 times (from L2), 0.28 MFLOP a position. What bounds it then is shared memory: about
// 3500 cycles for 32 rows and 64 positions of 576 elements.
#pragma once

#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/common/matrix_loads.cuh"
#include "kernels/cuda/rows/row_shape.cuh"

namespace ktx::kernels {

constexpr int kLatentWarps = 8;
constexpr int kLatentThreads = 32 * kLatentWarps;
constexpr int kWeightPitch = kPiece + 8;  // halves

// Shared memory of a block, by bytes.
struct LatentMemory {
  int pitch;  // of a row of q or keys
  int keys, scores, weights, shrink, factors, bytes;
  __host__ __device__ LatentMemory(int rows, int key_dim, int stages) : pitch(2 * key_dim + 16) {
    keys = rows * pitch;
    scores = keys + stages * kPiece * pitch;
    weights = scores + rows * kScorePitch * 4;
    shrink = weights + rows * kWeightPitch * 2;
    factors = shrink + rows * 4;
    bytes = factors + rows * 4;
  }
};

// kTiles: rows in sixteens, 1 or 2. kOwn: products of eight value columns of a warp.
template <KvType kType, int kTiles, int kOwn, bool kListed>
__global__ void __launch_bounds__(kLatentThreads, 1)
    attention_latent(CudaAttentionArgs a, AttentionParts parts, int stages) {
  begin_kernel();
  constexpr int kRows = 16 * kTiles;
  constexpr int kOfRow = kLatentThreads / kRows;  // threads in the softmax
  constexpr int kShare = kPiece / kOfRow;         // positions of each
  extern __shared__ uint4 dynamic_shared[];
  uint8_t* memory = reinterpret_cast<uint8_t*>(dynamic_shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int key_dim = a.attrs.key_dim, chunks = key_dim / 8;
  const LatentMemory at(kRows, key_dim, stages);
  uint8_t* const q = memory;
  float* const scores = reinterpret_cast<float*>(memory + at.scores);
  half* const weights = reinterpret_cast<half*>(memory + at.weights);
  float* const shrinks = reinterpret_cast<float*>(memory + at.shrink);
  float* const factors = reinterpret_cast<float*>(memory + at.factors);
  const int split = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.z);
  const int group = a.attrs.heads / a.attrs.kv_heads;
  const RowShape shape = row_shape(group, kRows, one_token(a));
  const BlockRows rows(shape, static_cast<int>(blockIdx.y), kRows, group,
                       static_cast<int>(a.tokens));

  const auto bring = [&](int sequence, int token, int piece, int longest, int stage) {
    const std::byte* from = kListed ? nullptr : kv_key(a.kv, sequence, kv_head, piece * kPiece);
    const int64_t row_bytes = a.kv.layout.key_row_bytes();
    const int last = min(kPiece, longest - piece * kPiece) - 1;  // those behind were never written
    uint8_t* to = memory + at.keys + stage * kPiece * at.pitch;
#pragma unroll 2
    for (int r = warp; r < kPiece; r += kLatentWarps) {
      TakenKey key;
      if constexpr (kListed) {
        key = taken_key(a, token, sequence, kv_head, piece * kPiece + min(r, last));
      } else {
        key = {from + min(r, last) * row_bytes, kType};
      }
      for (int c = lane; c < chunks; c += 32) {
        if (kType == KvType::F16 || (kListed && key.type == KvType::F16)) {
          copy_async16(to + r * at.pitch + 16 * c, key.row + 16 * c, true);
        } else {
          uint32_t v[4];
          kv_halves<kType, 8>(key.row, 8 * c, v);
          *reinterpret_cast<uint4*>(to + r * at.pitch + 16 * c) = {v[0], v[1], v[2], v[3]};
        }
      }
    }
  };
  const bool quads = a.q_stride % 4 == 0 && reinterpret_cast<uint64_t>(a.q) % 16 == 0;
  const auto put_queries = [&] {
    constexpr int kBatch = 3;  // on their way at once
    for (int first = thread; first < kRows * chunks; first += kBatch * kLatentThreads) {
      alignas(16) float v[kBatch][8] = {};
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kLatentThreads, r = i / chunks, c = i - r * chunks;
        if (i >= kRows * chunks || rows.head(r) < 0) continue;
        const float* x = a.q + rows.token(r) * a.q_stride +
                         (kv_head * group + rows.head(r)) * int64_t{key_dim} + 8 * c;
        if (quads) {
          reinterpret_cast<float4*>(v[b])[0] = reinterpret_cast<const float4*>(x)[0];
          reinterpret_cast<float4*>(v[b])[1] = reinterpret_cast<const float4*>(x)[1];
        } else {
#pragma unroll
          for (int k = 0; k < 8; ++k) v[b][k] = x[k];
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kLatentThreads, r = i / chunks, c = i - r * chunks;
        if (i >= kRows * chunks) continue;
        uint32_t h[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          h[k] = pack_halves(v[b][2 * k] * a.attrs.scale, v[b][2 * k + 1] * a.attrs.scale);
        }
        *reinterpret_cast<uint4*>(q + r * at.pitch + 16 * c) = {h[0], h[1], h[2], h[3]};
      }
    }
  };

  // This thread's row in the softmax, and what that has seen.
  const int own_row = thread / kOfRow, part = thread % kOfRow;
  const int own_token = rows.head(own_row) >= 0 ? rows.token(own_row) : -1;
  const int own_positions = own_token >= 0 ? taken_positions(a, own_token) : 0;
  const int own_first = own_token >= 0 ? first_taken(a, own_token) : 0;
  float largest = -INFINITY, total = 0;
  float values[kTiles][kOwn][4] = {};

  // A walk for each run of tokens of one sequence.
  for (int begin = 0; begin < rows.tokens;) {
    const int sequence = a.kv.sequence[rows.first_token + begin];
    int end = begin, lowest = INT_MAX, longest = 0;
    for (; end < rows.tokens && a.kv.sequence[rows.first_token + end] == sequence; ++end) {
      lowest = min(lowest, first_taken(a, rows.first_token + end));
      longest = max(longest, taken_positions(a, rows.first_token + end));
    }
    const int number = own_token - rows.first_token;
    const int seen = own_token >= 0 && number >= begin && number < end ? own_positions : 0;
    const PieceRange range = piece_range(lowest, longest, parts.splits, split);
    for (int i = 0; i < stages; ++i) {
      if (range.begin + i < range.end)
        bring(sequence, rows.first_token, range.begin + i, longest, i);
      commit_async();
    }
    if (begin == 0) put_queries();
    int stage = 0;
    for (int piece = range.begin; piece < range.end; ++piece) {
      if (stages > 1) {
        wait_async<1>();
      } else {
        wait_async<0>();
      }
      __syncthreads();
      const uint8_t* keys = memory + at.keys + stage * kPiece * at.pitch;

      // Scores. One tile: a warp has 8 positions, and two steps an ldmatrix; two: 16 positions of
      // one.
      constexpr int kColumns = kTiles;  // products of 8 positions
      const int tile = kTiles == 2 ? warp % 2 : 0;
      const int position = kTiles == 2 ? 16 * (warp / 2) : 8 * warp;
      const uint8_t* q_at = q + (16 * tile + lane % 16) * at.pitch + lane / 16 * 16;
      const uint8_t* key_at =
          kTiles == 2 ? keys + (position + lane % 8 + lane / 16 * 8) * at.pitch + lane / 8 % 2 * 16
                      : keys + (position + lane % 8) * at.pitch + lane / 8 * 16;
      float score[2][kColumns][4] = {};  // even and odd steps
#pragma unroll 3
      for (int c = 0; c < key_dim / 32; ++c) {
        uint32_t x[2][4], k[2][4];
        load_matrices(x[0], q_at + 64 * c);
        load_matrices(x[1], q_at + 64 * c + 32);
        load_matrices(k[0], key_at + 64 * c);
        if constexpr (kTiles == 2) {
          load_matrices(k[1], key_at + 64 * c + 32);
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            mma_f16(score[s][0], x[s], k[s][0], k[s][1]);
            mma_f16(score[s][1], x[s], k[s][2], k[s][3]);
          }
        } else {
          mma_f16(score[0][0], x[0], k[0][0], k[0][1]);
          mma_f16(score[1][0], x[1], k[0][2], k[0][3]);
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int row = 16 * tile + lane / 4 + v / 2 * 8;
          const int column = position + 8 * n + lane % 4 * 2 + v % 2;
          scores[row * kScorePitch + column] = score[0][n][v] + score[1][n][v];
        }
      }
      __syncthreads();

      // Softmax.
      float w[kShare], most = largest;
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        const int column = part * kShare + i, number = piece * kPiece + column;
        w[i] = number >= own_first && number < seen ? scores[own_row * kScorePitch + column]
                                                    : -INFINITY;
        most = fmaxf(most, w[i]);
      }
#pragma unroll
      for (int o = 1; o < kOfRow; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
      const float base = most == -INFINITY ? 0 : most;
      const float shrink = __expf(largest - base);
      largest = most;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kShare; ++i) sum += w[i] = __expf(w[i] - base);
#pragma unroll
      for (int o = 1; o < kOfRow; o *= 2) sum += __shfl_xor_sync(~0u, sum, o);
      total = total * shrink + sum;
      uint32_t* to = reinterpret_cast<uint32_t*>(weights + own_row * kWeightPitch + part * kShare);
#pragma unroll
      for (int i = 0; i < kShare; i += 2) to[i / 2] = pack_halves(w[i], w[i + 1]);
      if (part == 0) shrinks[own_row] = shrink;
      __syncthreads();

      // Values.
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const float first = shrinks[16 * m + lane / 4], second = shrinks[16 * m + lane / 4 + 8];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          values[m][i][0] *= first, values[m][i][1] *= first;
          values[m][i][2] *= second, values[m][i][3] *= second;
        }
      }
      const uint8_t* value_at =
          keys + (lane % 16) * at.pitch + (warp * kOwn * 8 + lane / 16 * 8) * 2;
#pragma unroll
      for (int s = 0; s < kPiece / 16; ++s) {
        uint32_t x[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          load_matrices(x[m],
                        weights + (16 * m + lane % 16) * kWeightPitch + 16 * s + lane / 16 * 8);
        }
#pragma unroll
        for (int i = 0; i < kOwn; i += 2) {
          uint32_t v[4];
          load_transposed(v, value_at + 16 * s * at.pitch + 16 * i);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            mma_f16(values[m][i], x[m], v[0], v[1]);
            mma_f16(values[m][i + 1], x[m], v[2], v[3]);
          }
        }
      }
      __syncthreads();  // all are done with this stage
      if (piece + stages < range.end)
        bring(sequence, rows.first_token, piece + stages, longest, stage);
      commit_async();
      if (++stage == stages) stage = 0;
    }
    begin = end;
  }

  if (own_token >= 0 && part == 0 && parts.splits > 1) {
    const int64_t head = kv_head * group + rows.head(own_row);
    parts.sums[(own_token * int64_t{a.attrs.heads} + head) * parts.splits + split] = {largest,
                                                                                      total};
  }
  if (part == 0 && own_token >= 0) {
    factors[own_row] =
        softmax_factor(a.sinks, kv_head * group + rows.head(own_row), largest, total);
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 16 * m + lane / 4 + 8 * r;
      if (rows.head(row) < 0) continue;
      const int64_t token = rows.token(row), head = kv_head * group + rows.head(row);
      float* out = a.y + token * a.y_stride + head * a.attrs.value_dim;
      float factor = factors[row];
      if (parts.splits > 1) {
        out = parts.values +
              ((token * a.attrs.heads + head) * parts.splits + split) * a.attrs.value_dim;
        factor = 1;
      }
      out += warp * kOwn * 8 + lane % 4 * 2;
      const bool pairs = reinterpret_cast<uint64_t>(out) % 8 == 0;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float2 v = {values[m][i][2 * r] * factor, values[m][i][2 * r + 1] * factor};
        if (pairs) {
          *reinterpret_cast<float2*>(out + 8 * i) = v;
        } else {
          out[8 * i] = v.x, out[8 * i + 1] = v.y;
        }
      }
    }
  }
}

}  // namespace ktx::kernels
