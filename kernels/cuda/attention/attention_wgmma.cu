// Attention of many rows by Hopper's products (wgmma): F16 caches, heads of 64 to 256 (the table at
// the end).
//
// A block takes 64 rows a warpgroup, (token, head) pairs that read the same KV head: some tokens
// side by side times the heads of a group. It walks the positions that its rows see, kPages pieces
// of 64 a step. One warp of the last warpgroup, which gives its registers to the others, asks for
// keys and values ahead by tensor maps of the cache, whose copies arrive swizzled; all meet at
// barriers of the stages only. Tokens of other sequences among the rows are masked and get their
// turn in a walk of their own.
//
//   scores   q (shared memory, F16, scaled) . keys          of step i + 1
//   values   weights (registers, F16) . values              of step i
//
// A warpgroup asks for both at once, and weighs the scores while the values are summed and the
// other warpgroup's products run. Sums are scaled anew only where a largest score has grown by more
// than kSlack: weights stay below 2^kSlack.
//
// Roofline: the tensor cores; 1024 cycles a piece for 128 rows of heads of 128, beside 512 of
// exponentials.
#include <cuda.h>

#include "kernels/cuda/attention/attention_rows.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace ktx::kernels {
namespace {

constexpr int kPanelPiece = kPiece * kPanelRow;

// By the width of a head: pieces of a step, and steps whose keys and values stand in shared memory,
// of blocks of 128 rows and of 64.
struct Tiles {
  int dim, pages, stages, few_stages;
};
constexpr Tiles kTiles[] = {
    {64, 2, 4, 6}, {72, 2, 2, 3}, {80, 2, 2, 3}, {96, 2, 2, 3}, {128, 2, 2, 3}, {256, 1, 2, 2},
};
constexpr const Tiles* tiles_of(int dim) {
  for (const Tiles& tiles : kTiles) {
    if (tiles.dim == dim) return &tiles;
  }
  return nullptr;
}

template <int kDim, int kGroups>
struct WgmmaShape {
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kPanels = (kDim + 63) / 64;
  static constexpr int kPages = tiles_of(kDim)->pages;
  static constexpr int kPositions = kPages * kPiece;
  static constexpr int kPanelBytes = kPositions * kPanelRow;  // of keys or values
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kQueryBytes = kRows * kPanels * kPanelRow;
  static constexpr int kStages = kGroups == 1 ? tiles_of(kDim)->few_stages : tiles_of(kDim)->stages;
  static constexpr int kBytes = kQueryBytes + 2 * kStages * kTileBytes + 1024;
};

__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, int column, int row,
                                         int block, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(shared_address(shared)),
      "l"(map), "r"(column), "r"(row), "r"(block), "r"(shared_address(barrier))
      : "memory");
}

template <int kDim, int kGroups>
__global__ void __launch_bounds__(WgmmaShape<kDim, kGroups>::kThreads, 1)
    attention_wgmma(CudaAttentionArgs a, AttentionParts parts,
                    const __grid_constant__ CUtensorMap key_map,
                    const __grid_constant__ CUtensorMap value_map) {
  using Shape = WgmmaShape<kDim, kGroups>;
  constexpr int kRows = Shape::kRows, kPages = Shape::kPages, kPositions = Shape::kPositions;
  constexpr int kPanels = Shape::kPanels, kPanelBytes = Shape::kPanelBytes;
  constexpr int kStages = Shape::kStages, kTileBytes = Shape::kTileBytes;
  constexpr int kWide = whole_steps(kDim);
  begin_kernel();
  extern __shared__ uint8_t attention_shared[];
  __shared__ uint64_t full_keys[kStages], full_values[kStages], raw_values;
  __shared__ uint64_t free_keys[kStages], free_values[kStages];
  __shared__ BlockTokens<kRows> own;
  uint8_t* const queries = attention_shared + (-shared_address(attention_shared) & 1023);
  uint8_t* const keys = queries + Shape::kQueryBytes;
  uint8_t* const values = keys + kStages * kTileBytes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.x), split = static_cast<int>(blockIdx.y);
  const int group = a.attrs.heads / a.attrs.kv_heads;
  // The longest first.
  const BlockRows block(row_shape(group, kRows, a.one_token_per_sequence),
                        static_cast<int>(gridDim.z - 1 - blockIdx.z), kRows, group,
                        static_cast<int>(a.tokens));
  const int tokens = block.tokens;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      start_barrier(&full_keys[i]);
      start_barrier(&full_values[i]);
      start_barrier(&free_keys[i], 4 * kGroups);
      start_barrier(&free_values[i], 4 * kGroups);
    }
    start_barrier(&raw_values);
  }
  for (int t = thread; t < tokens; t += Shape::kThreads) {
    own.sequence[t] = a.kv.sequence[block.first_token + t];
    own.position[t] = a.kv.position[block.first_token + t];
  }
  __syncthreads();
  const auto steps_of = [&](const PieceRange& range) {
    return (range.end - range.begin + kPages - 1) / kPages;
  };
  // The end of the positions of a run that this split takes.
  const auto end_of = [&](const Run& run, const PieceRange& range) {
    return min(run.longest, range.end * kPiece);
  };

  if (warp >= 4 * kGroups) {
    if constexpr (kGroups > 1) give_registers<24>();
    if (warp > 4 * kGroups) return;
    const int block_tokens = static_cast<int>(a.kv.layout.block_tokens);
    int done = 0;  // steps of the runs before
    uint32_t raw_phase = 0;
    for (int begin = 0; begin < tokens;) {
      const Run run = run_from(own, tokens, begin, a.attrs, lane);
      const PieceRange range = piece_range(run.lowest, run.longest, parts.splits, split);
      const int steps = steps_of(range);
      const int32_t* table = a.kv.table + own.sequence[begin] * a.kv.table_stride;
      const auto pages_of = [&](int i) {
        return min(kPages, range.end - range.begin - i * kPages);
      };
      const auto ask = [&](const CUtensorMap& map, int i, uint8_t* to, uint64_t* barrier) {
        const int pages = pages_of(i);
        bytes_to_come(barrier, pages * kPanels * kPanelPiece);
        for (int page = 0; page < pages; ++page) {
          const int position = (range.begin + i * kPages + page) * kPiece;
          const int number = table[position / block_tokens];
          const int row = kv_head * block_tokens + position % block_tokens;
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel) {
            copy_box(to + panel * kPanelBytes + page * kPanelPiece, &map, 64 * panel, row, number,
                     barrier);
          }
        }
      };
      for (int i = 0; i <= steps; ++i) {
        if (i < steps) {
          const int step = done + i, stage = step % kStages;
          if (step >= kStages) wait_phase(&free_keys[stage], (step / kStages - 1) % 2);
          if (lane == 0) ask(key_map, i, keys + stage * kTileBytes, &full_keys[stage]);
        }
        if (i == 0) continue;
        const int step = done + i - 1, stage = step % kStages;
        uint8_t* const to = values + stage * kTileBytes;
        if (step >= kStages) wait_phase(&free_values[stage], (step / kStages - 1) % 2);
        const int left = end_of(run, range) - (range.begin + (i - 1) * kPages) * kPiece;
        if (left >= kPositions) {
          if (lane == 0) ask(value_map, i - 1, to, &full_values[stage]);
          continue;
        }
        // Zeros where nothing was written: weights of 0 do not make them 0.
        if (lane == 0) ask(value_map, i - 1, to, &raw_values);
        wait_phase(&raw_values, raw_phase);
        raw_phase ^= 1;
        for (int panel = 0; panel < kPanels; ++panel) {
          for (int b = left * kPanelRow + lane * 16; b < kPanelBytes; b += 512) {
            *reinterpret_cast<uint4*>(to + panel * kPanelBytes + b) = {0, 0, 0, 0};
          }
        }
        show_to_wgmma();
        __syncwarp();
        if (lane == 0) arrive(&full_values[stage]);
      }
      done += steps;
      begin = run.end;
    }
    return;
  }

  if constexpr (kGroups > 1) get_registers<240>();
  const int group_of_warps = warp / 4, column = lane % 4 * 2;
  uint8_t* const q = queries + group_of_warps * 64 * kPanels * kPanelRow;
  put_rows<kDim>(a, block, kv_head, 64 * group_of_warps, 64, q, thread % 128);
  show_to_wgmma();
  meet_at(1 + group_of_warps, 128);

  float s[kPositions / 8][4], sums[kWide / 8][4] = {};
  uint32_t weights[kPositions / 16][4];
  RowWeights<kPositions> rows;
  const auto row_of = [&](int r) { return 64 * group_of_warps + warp % 4 * 16 + lane / 4 + 8 * r; };
  const auto ask_scores = [&](int step) {
    const int stage = step % kStages;
    wait_phase(&full_keys[stage], step / kStages % 2);
    const uint8_t* k = keys + stage * kTileBytes;
    fence_wgmma();
#pragma unroll
    for (int i = 0; i < kWide / 16; ++i) {
      wgmma_f16(s, wgmma_rows(q + i / 4 * 64 * kPanelRow, i % 4),
                wgmma_rows(k + i / 4 * kPanelBytes, i % 4), i > 0);
    }
    commit_wgmma();
  };
  const auto ask_values = [&](int step) {
    const int stage = step % kStages;
    wait_phase(&full_values[stage], step / kStages % 2);
    const uint8_t* v = values + stage * kTileBytes;
    fence_wgmma();
#pragma unroll
    for (int i = 0; i < kPositions / 16; ++i) {
      wgmma_f16_columns(sums, weights[i], wgmma_columns(v, i, kPanelBytes));
    }
    commit_wgmma();
  };
  const auto release = [&](uint64_t* barriers, int step) {
    if (lane == 0) arrive(&barriers[step % kStages]);
  };
  int done = 0;
  for (int begin = 0; begin < tokens;) {
    const Run run = run_from(own, tokens, begin, a.attrs, lane);
    const PieceRange range = piece_range(run.lowest, run.longest, parts.splits, split);
    const int steps = steps_of(range), first = range.begin * kPiece;
    const float softcap = a.attrs.softcap;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = row_of(r) / block.heads;
      const bool sees = block.head(row_of(r)) >= 0 && token >= run.begin && token < run.end;
      const int position = sees ? own.position[token] : -1;
      rows.see(r, position < 0 ? 0 : first_seen(a.attrs, position),
               min(position + 1, end_of(run, range)));
    }
    rows.seen_all();
    const auto scale_sums = [&] {
      if (!rows.shrinks) return;
#pragma unroll
      for (int j = 0; j < kWide / 8; ++j) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[j][v] *= rows.shrink[v / 2];
      }
    };
    if (steps > 0) {
      ask_scores(done);
      wait_wgmma<0>();
      ready(s);
      release(free_keys, done);
      rows.weigh(s, first, softcap, column);
      scale_sums();
      pack_weights(s, weights);
      for (int i = done + 1; i < done + steps; ++i) {
        ask_scores(i);
        ask_values(i - 1);
        wait_wgmma<1>();
        ready(s);
        release(free_keys, i);
        rows.weigh(s, first + (i - done) * kPositions, softcap, column);
        wait_wgmma<0>();
        ready(sums);
        ready(weights);
        release(free_values, i - 1);
        scale_sums();
        pack_weights(s, weights);
      }
      ask_values(done + steps - 1);
      wait_wgmma<0>();
      ready(sums);
      ready(weights);
      release(free_values, done + steps - 1);
    }
    done += steps;
    begin = run.end;
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    write_row<kDim>(a, parts, block, kv_head, split, row_of(r), rows, r, sums, lane);
  }
}

// Rows of keys or values of all blocks, in boxes of 64 elements of 64 positions. Elements behind a
// row's end come as zeros.
Status map_rows(const CudaKvView& kv, int64_t offset, int64_t dim, CUtensorMap* map) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                   const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                   CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    return error == cudaSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  if (!encode) return Error{"attention: the NVIDIA driver has no tensor maps; update it"};
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(dim),
                              static_cast<cuuint64_t>(kv.layout.kv_heads * kv.layout.block_tokens),
                              uint64_t{1} << 31};  // as many blocks as the table names
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(dim * 2),
                                 static_cast<cuuint64_t>(kv.block_bytes)};
  const cuuint32_t box[3] = {64, kPiece, 1}, each[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, kv.pool + kv.slot_offset + offset, dims,
             strides, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  return Error{"attention: no tensor map of this cache (CUDA error " + std::to_string(result) +
               ")"};
}

template <int kDim, int kGroups>
Status run(const CudaAttentionArgs& a, const AttentionParts& parts, cudaStream_t stream) {
  using Shape = WgmmaShape<kDim, kGroups>;
  CUtensorMap keys, values;
  KTX_TRY(map_rows(a.kv, 0, kDim, &keys));
  KTX_TRY(map_rows(a.kv, a.kv.layout.value_offset(0, 0), kDim, &values));
  const dim3 grid(static_cast<unsigned>(a.attrs.kv_heads), static_cast<unsigned>(parts.splits),
                  static_cast<unsigned>(attention_wgmma_blocks(a) / a.attrs.kv_heads));
  return launch("attention", attention_wgmma<kDim, kGroups>, grid, Shape::kThreads, Shape::kBytes,
                stream, a, parts, keys, values);
}

// Rows of a block: as many as 64 hold, or twice that.
int block_rows(const CudaAttentionArgs& a) {
  const int64_t tokens = a.one_token_per_sequence ? 1 : a.tokens;
  return tokens * (a.attrs.heads / a.attrs.kv_heads) <= 64 ? 64 : 128;
}

}  // namespace

bool attention_wgmma_takes(const CudaAttentionArgs& a) {
  return many_rows(a) && a.kv.layout.type == KvType::F16 && tiles_of(a.attrs.key_dim) &&
         compute_capability() == 90;
}

int64_t attention_wgmma_blocks(const CudaAttentionArgs& a) {
  const int group = a.attrs.heads / a.attrs.kv_heads;
  return row_shape(group, block_rows(a), a.one_token_per_sequence).blocks(a.tokens) *
         a.attrs.kv_heads;
}

Status launch_attention_wgmma(const CudaAttentionArgs& a, const AttentionParts& parts,
                              cudaStream_t stream) {
  const bool few = block_rows(a) == 64;
  switch (a.attrs.key_dim) {
#define KTX_WGMMA_HEADS(dim) \
  case dim:                  \
    return few ? run<dim, 1>(a, parts, stream) : run<dim, 2>(a, parts, stream);
    KTX_WGMMA_HEADS(64)
    KTX_WGMMA_HEADS(72)
    KTX_WGMMA_HEADS(80)
    KTX_WGMMA_HEADS(96)
    KTX_WGMMA_HEADS(128)
    KTX_WGMMA_HEADS(256)
#undef KTX_WGMMA_HEADS
    default:
      return Error{"attention: no wgmma kernel for heads of " + std::to_string(a.attrs.key_dim)};
  }
}

}  // namespace ktx::kernels
