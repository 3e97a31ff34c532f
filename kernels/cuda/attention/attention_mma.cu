// Attention of many rows by mma, for F16 and Q8_0 caches, heads of 64 to 256 (the table below);
// what prompts take where attention_wgmma.cu does not.
//
// A block of four warps takes 16 or 32 rows a warp, (token, head) pairs that read the same KV head,
// and walks the positions that they see in pieces of 64. Keys and values of a piece stand in shared
// memory, in panels: values are on their way while scores are made, the next keys while scores
// become weights and values are summed. Tokens of other sequences among the rows are masked and get
// their turn in a walk of their own.
//
// Roofline: the tensor cores, and shared memory, of which a warp reads every piece whole: 32 rows a
// warp halve that.
#include "kernels/cuda/attention/attention_rows.cuh"
#include "kernels/cuda/common/matrix_loads.cuh"

namespace ktx::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// By the width of a head: times 16 rows of a warp, where shared memory holds two such blocks; once
// elsewhere.
struct Tiles {
  int dim, row_tiles;
};
constexpr Tiles kTiles[] = {{64, 2}, {72, 2}, {80, 2}, {96, 2}, {128, 2}, {256, 1}};
constexpr const Tiles* tiles_of(int dim) {
  for (const Tiles& tiles : kTiles) {
    if (tiles.dim == dim) return &tiles;
  }
  return nullptr;
}
constexpr int panels_of(int dim) {
  return (dim + 63) / 64;
}
constexpr int shared_bytes(int dim, int row_tiles) {
  return panels_of(dim) * (kWarps * row_tiles * 16 + 2 * kPiece) * kPanelRow;
}

// Keys or values of positions [first, first + left) of a piece into panels, zeros behind them.
template <KvType kType, int kDim>
__device__ __forceinline__ void ask_piece(const std::byte* rows, int64_t row_bytes, int left,
                                          uint8_t* panels, int thread) {
  constexpr int kParts = whole_steps(kDim) / 8;
#pragma unroll 4
  for (int i = thread; i < kPiece * kParts; i += kThreads) {
    const int r = i / kParts, part = i % kParts;
    uint8_t* to = panels + (part / 8 * kPiece + r) * kPanelRow + ((part % 8) ^ (r % 8)) * 16;
    const bool live = r < left && part < kDim / 8;
    const std::byte* row = rows + (live ? r : 0) * row_bytes;
    const int column = live ? 8 * part : 0;
    if constexpr (kType == KvType::F16) {
      copy_async16(to, row + 2 * column, live);
    } else {
      uint32_t halves[4];
      kv_halves<kType, 8>(row, column, halves);
      *reinterpret_cast<uint4*>(to) = {live ? halves[0] : 0, live ? halves[1] : 0,
                                       live ? halves[2] : 0, live ? halves[3] : 0};
    }
  }
}

template <KvType kType, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kThreads, kRowTiles == 2 || kDim > 128 ? 2 : 3)
    attention_mma(CudaAttentionArgs a, AttentionParts parts) {
  begin_kernel();
  constexpr int kRows = kWarps * kRowTiles * 16, kPanels = panels_of(kDim);
  constexpr int kWide = whole_steps(kDim);
  extern __shared__ __align__(128) uint8_t many_rows_shared[];
  __shared__ BlockTokens<kRows> own;
  uint8_t* const queries = many_rows_shared;
  uint8_t* const keys = queries + kPanels * kRows * kPanelRow;
  uint8_t* const values = keys + kPanels * kPiece * kPanelRow;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int group = a.attrs.heads / a.attrs.kv_heads;
  // The longest first.
  const BlockRows block(row_shape(group, kRows, false),
                        static_cast<int>(gridDim.z - 1 - blockIdx.z), kRows, group,
                        static_cast<int>(a.tokens));
  const int tokens = block.tokens;
  for (int t = thread; t < tokens; t += kThreads) {
    own.sequence[t] = a.kv.sequence[block.first_token + t];
    own.position[t] = a.kv.position[block.first_token + t];
  }
  put_rows<kDim>(a, block, kv_head, 0, kRows, queries, thread);
  __syncthreads();

  const auto row_of = [&](int tile, int r) {
    return (warp * kRowTiles + tile) * 16 + lane / 4 + 8 * r;
  };
  // Where this lane's row of four matrices begins: of queries, and of values transposed, the rows
  // come first, of keys the columns. Columns 16 * k on stand at step(k) from there.
  const auto at = [&](const uint8_t* panels, int row, int part) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(panels)) + row * kPanelRow +
           (part ^ (row % 8)) * 16;
  };
  const uint32_t own_queries = at(queries, warp * kRowTiles * 16 + lane % 16, lane / 16);
  const uint32_t own_values = at(values, lane % 16, lane / 16);
  const uint32_t own_keys = at(keys, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  const auto step = [](uint32_t from, int k, int height) {
    return (from ^ (k % 4 * 32)) + k / 4 * height * kPanelRow;
  };
  RowWeights<kPiece> rows[kRowTiles];
  float sums[kRowTiles][kWide / 8][4] = {};

  for (int begin = 0; begin < tokens;) {
    const Run run = run_from(own, tokens, begin, a.attrs, lane);
    const PieceRange range = piece_range(run.lowest, run.longest, parts.splits, split);
    const int end = min(run.longest, range.end * kPiece);  // of the positions of this split
    const int sequence = own.sequence[begin];
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = row_of(tile, r), token = row / block.heads;
        const bool sees = block.head(row) >= 0 && token >= run.begin && token < run.end;
        const int position = sees ? own.position[token] : -1;
        rows[tile].see(r, position < 0 ? 0 : first_seen(a.attrs, position), min(position + 1, end));
      }
      rows[tile].seen_all();
    }
    const auto ask_keys = [&](int piece) {
      const int first = piece * kPiece;
      ask_piece<kType, kDim>(kv_key(a.kv, sequence, kv_head, first), a.kv.layout.key_row_bytes(),
                             end - first, keys, thread);
      commit_async();
    };
    const auto ask_values = [&](int piece) {
      const int first = piece * kPiece;
      ask_piece<kType, kDim>(kv_value(a.kv, sequence, kv_head, first),
                             a.kv.layout.value_row_bytes(), end - first, values, thread);
      commit_async();
    };
    if (range.begin < range.end) ask_keys(range.begin);
    for (int piece = range.begin; piece < range.end; ++piece) {
      wait_async<0>();
      __syncthreads();
      ask_values(piece);
      float s[kRowTiles][kPiece / 8][4] = {};
#pragma unroll
      for (int k = 0; k < kWide / 16; ++k) {
        uint32_t q[kRowTiles][4];
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          load_matrices(q[tile], step(own_queries, k, kRows) + tile * 16 * kPanelRow);
        }
#pragma unroll
        for (int j = 0; j < kPiece / 16; ++j) {
          uint32_t b[4];
          load_matrices(b, step(own_keys, k, kPiece) + j * 16 * kPanelRow);
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            mma_f16(s[tile][2 * j], q[tile], b[0], b[1]);
            mma_f16(s[tile][2 * j + 1], q[tile], b[2], b[3]);
          }
        }
      }
      wait_async<0>();
      __syncthreads();
      if (piece + 1 < range.end) ask_keys(piece + 1);
      uint32_t weights[kRowTiles][kPiece / 16][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        rows[tile].weigh(s[tile], piece * kPiece, a.attrs.softcap, lane % 4 * 2);
        if (rows[tile].shrinks) {
#pragma unroll
          for (int j = 0; j < kWide / 8; ++j) {
#pragma unroll
            for (int v = 0; v < 4; ++v) sums[tile][j][v] *= rows[tile].shrink[v / 2];
          }
        }
        pack_weights(s[tile], weights[tile]);
      }
#pragma unroll
      for (int k = 0; k < kPiece / 16; ++k) {
#pragma unroll
        for (int j = 0; j < kWide / 16; ++j) {
          uint32_t b[4];
          load_transposed(b, step(own_values, j, kPiece) + k * 16 * kPanelRow);
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            mma_f16(sums[tile][2 * j], weights[tile][k], b[0], b[1]);
            mma_f16(sums[tile][2 * j + 1], weights[tile][k], b[2], b[3]);
          }
        }
      }
    }
    begin = run.end;
    if (begin < tokens) __syncthreads();  // keys may still be on their way to a warp's products
  }

#pragma unroll
  for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      write_row<kDim>(a, parts, block, kv_head, split, row_of(tile, r), rows[tile], r, sums[tile],
                      lane);
    }
  }
}

// Row tiles of a warp: the table's number where shared memory holds two such blocks, otherwise one.
int row_tiles(const CudaAttentionArgs& a) {
  const int dim = a.attrs.key_dim, most = tiles_of(dim)->row_tiles;
  return 2 * (shared_bytes(dim, most) + 3 * 1024) <= shared_memory_limit() ? most : 1;
}
int block_rows(const CudaAttentionArgs& a) {
  return kWarps * 16 * row_tiles(a);
}

template <KvType kType, int kDim>
Status run(const CudaAttentionArgs& a, const AttentionParts& parts, cudaStream_t stream) {
  const int tiles = row_tiles(a);
  const dim3 grid(static_cast<unsigned>(a.attrs.kv_heads), static_cast<unsigned>(parts.splits),
                  static_cast<unsigned>(attention_mma_blocks(a) / a.attrs.kv_heads));
  const auto run = [&](auto kernel) {
    return launch("attention", kernel, grid, kThreads, shared_bytes(kDim, tiles), stream, a, parts);
  };
  if constexpr (tiles_of(kDim)->row_tiles > 1) {
    if (tiles > 1) return run(attention_mma<kType, kDim, 2>);
  }
  return run(attention_mma<kType, kDim, 1>);
}

}  // namespace

bool attention_mma_takes(const CudaAttentionArgs& a) {
  return many_rows(a) && a.kv.layout.type != KvType::F32 && tiles_of(a.attrs.key_dim) &&
         shared_bytes(a.attrs.key_dim, 1) + 3 * 1024 <= shared_memory_limit();
}

int64_t attention_mma_blocks(const CudaAttentionArgs& a) {
  const int group = a.attrs.heads / a.attrs.kv_heads;
  return row_shape(group, block_rows(a), false).blocks(a.tokens) * a.attrs.kv_heads;
}

Status launch_attention_mma(const CudaAttentionArgs& a, const AttentionParts& parts,
                            cudaStream_t stream) {
  const bool halves = a.kv.layout.type == KvType::F16;
  switch (a.attrs.key_dim) {
#define KTX_MMA_HEADS(dim)                                  \
  case dim:                                                 \
    return halves ? run<KvType::F16, dim>(a, parts, stream) \
                  : run<KvType::Q8_0, dim>(a, parts, stream);
    KTX_MMA_HEADS(64)
    KTX_MMA_HEADS(72)
    KTX_MMA_HEADS(80)
    KTX_MMA_HEADS(96)
    KTX_MMA_HEADS(128)
    KTX_MMA_HEADS(256)
#undef KTX_MMA_HEADS
    default:
      return Error{"attention: no mma kernel for heads of " + std::to_string(a.attrs.key_dim)};
  }
}

}  // namespace ktx::kernels
