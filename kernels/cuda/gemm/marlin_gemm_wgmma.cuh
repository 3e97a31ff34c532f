// GEMM: products of many tokens with marlin weights on Hopper: wgmma, weights decoded in
// registers as its A operand.
//
// A block takes 16 strips (256 rows; or 8 strips of gate and the same of up), kTokens tokens and a
// range of columns; the other ranges are with the other blocks of its cluster (split-K), whose sums
// meet at the end (wide_sums.cuh). Warps decode two strips each (wide_multiply.cuh). Others bring
// what they multiply (wide_work.cuh): weights 256 columns at a time, activations 128, in F16
// (half_rows, for wgmma: the columns of every 32 in the order in which marlin fragments have them),
// in bulk copies (rows of experts, which are gathered: cp.async). No barrier of the block stands
// between the first columns and the last. Where items are not split a block takes one behind
// another, and the stages of the next fill while sums leave.
//
// Roofline: compute. A product of 64 rows, 128 tokens and 16 columns keeps the tensor cores busy
// for 64 cycles; beside it a warp issues about 25 instructions of decoding. With few tokens: the
// decoding, then the bytes of the weights. L2: 25 bytes a cycle and SM at 128 tokens. Shared
// memory: up to six stages of kTokens * 256 bytes, two to four of 16 tiles.
#pragma once

#include <atomic>
#include <cmath>

#include "kernels/cuda/gemm/wide_multiply.cuh"
#include "kernels/cuda/marlin/marlin_write.cuh"

namespace ktx::kernels {

template <DType kType, int kTokens, bool kPaired>
__global__ void __launch_bounds__(kWideThreads, 1)
    marlin_gemm_wgmma(MarlinProduct p, const __grid_constant__ WideParts parts, int row_blocks,
                      int splits, bool loops, bool whole_quads) {
  let_next_kernel_start();
  if (p.offsets) wait_for_inputs();
  using Tile = MarlinTile<kType>;
  using Memory = WideMemory<kType, kTokens>;
  extern __shared__ uint8_t wide_shared[];
  __shared__ WideBlock<kType, kTokens> own;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int split = static_cast<int>(blockIdx.x) % splits;
  const bool gathered = p.panel_rows == 0;
  WideItems items = {ceil_div(p.tokens, kTokens), row_blocks, own.pieces_before};
  if (p.offsets) {
    count_pieces(p, kTokens, own.pieces_before);
    items.pieces = own.pieces_before[p.experts];
    forget_pairs_of_no_expert<kWideThreads>(p, thread);
  }
  if (thread == 0) {
    for (int i = 0; i < Memory::kXStages; ++i) {
      start_barrier(&own.x_there[i], gathered ? 32 * kGatherWarps : 1);
      start_barrier(&own.x_free[i], kWideWarps);
    }
    for (int i = 0; i < Memory::kWeightStages; ++i) {
      start_barrier(&own.weights_there[i]);
      start_barrier(&own.weights_free[i], kWideWarps);
    }
  }
  __syncthreads();
  const MarlinTiles<Tile> tiles(p.cols);
  const int begin = tiles.count * split / splits, end = tiles.count * (split + 1) / splits;
  uint8_t* xs = wide_shared + (-shared_address(wide_shared) & 1023);
  uint8_t* ws = xs + Memory::kXStages * Memory::kXBytes;
  const int first_item = static_cast<int>(blockIdx.x) / splits;
  const int step = loops ? static_cast<int>(gridDim.x) : items.count();
  // Calls work(product, item) for each item of this block.
  const auto for_each_item = [&](auto work) {
    for (int i = first_item; i < items.count(); i += step) {
      WideItem item = items.at<kTokens>(p, i);
      MarlinProduct part = p;
      item.row_block = take_part(part, parts, item.row_block);
      work(part, item);
    }
  };

  if (warp >= kWideWarps) {
    give_registers<kGiven>();
    if (warp == kWideWarps) {
      WideRing<Memory::kWeightStages> ring;
      for_each_item([&](const MarlinProduct& part, const WideItem& item) {
        bring_weights<kType, kTokens, kPaired>(part, item, own, ws, ring, begin, end);
      });
    } else if (gathered) {
      WideRing<Memory::kXStages> ring;
      for_each_item([&](const MarlinProduct& part, const WideItem& item) {
        gather_rows<kType, kTokens>(part, item, own, xs, ring, warp - kWideWarps - 1, begin, end);
      });
      wait_async<0>();
    } else if (warp == kWideWarps + 1) {
      WideRing<Memory::kXStages> ring;
      wait_for_inputs();
      for_each_item([&](const MarlinProduct& part, const WideItem& item) {
        bring_panels<kType, kTokens>(part, item, own, xs, ring, begin, end);
      });
    }
    return;
  }
  get_registers<kTaken>();

  WideReader<kType, kTokens> reader = {own, xs, ws, gathered, warp, lane};
  int parity = 0;
  for (int i = first_item; i < items.count(); i += step) {
    float sum[kWarpStrips][kTokens / 8][4];  // set by the first product
    if constexpr (kTokens == 16) {
      multiply_few(reader, tiles, begin, end, sum);
    } else {
      multiply_many(reader, tiles, begin, end, sum);
    }

    // Whose sums these are: known only now, so that no register holds it meanwhile.
    wait_for_inputs();
    WideItem item = items.at<kTokens>(p, i);
    MarlinProduct part = p;
    item.row_block = take_part(part, parts, item.row_block);
    if (thread < kTokens) {
      const int place = item.first + min(thread, item.tokens - 1);
      const int row = p.offsets ? p.order[place] : place;
      own.y_row[parity][thread] = part.y + row * part.y_stride;
      own.scale[parity][thread] = p.x_scale[row / p.x_div];
      const bool first = split == 0 && item.row_block == 0;
      if (p.places && first && thread < item.tokens) p.places[row] = place;
    }
    constexpr int kRowStrips = kPaired ? kWideStrips / 2 : kWideStrips;
    const auto out_of = [&](int strip, int quad) {
      return (part.strip_begin() + item.row_block * kRowStrips + strip) * 16 + 4 * quad -
             part.row_begin;
    };
    if (splits == 1 && writes_own_sums<kTokens, kPaired>(part)) {
      meet_at(1, 32 * kWideWarps);  // the places of tokens are there
      write_own_sums<kPaired>(part, sum, item.tokens,
                              out_of(kPaired ? warp : kWarpStrips * warp, 0), own.scale[parity],
                              own.y_row[parity], item.matrix, lane);
      parity ^= 1;
      continue;
    }
    const bool whole = !Memory::kBeside || splits > 1;
    float* sums = reinterpret_cast<float*>(whole ? xs : xs + Memory::kStages);
    WidePass pass = {whole ? log2_of(kTokens) : log2_of(Memory::kPassTokens), 0};
    for (; pass.begin < item.tokens; pass.begin += 1 << pass.log) {
      meet_at(1, 32 * kWideWarps);  // all have read what stands there
#pragma unroll
      for (int m = 0; m < kWarpStrips; ++m) {
        store_wide_sums(sum[m], sums, pass, kWarpStrips * warp + m, lane);
      }
      meet_at(1, 32 * kWideWarps);
      add_wide_sums<32 * kWideWarps, kPaired>(
          sums, pass, item.tokens, split, splits,
          [&](int token, int strip, int quad) {
            return read_quad(part, whole_quads, out_of(strip, quad), own.y_row[parity][token]);
          },
          [&](int token, int strip, int quad, float4 before, const auto& v) {
            write_quad<kPaired>(part, whole_quads, out_of(strip, quad), before, v,
                                own.scale[parity][token], own.y_row[parity][token], item.matrix);
          });
    }
    parity ^= 1;
  }
}

inline int wide_pieces(const MarlinProduct& p, int tokens) {
  return p.offsets ? expert_pieces(p.tokens, p.experts, tokens) : ceil_div(p.tokens, tokens);
}

// The expected number of pieces, where pairs choose their experts evenly.
inline float expected_pieces(const MarlinProduct& p, int tokens) {
  if (!p.offsets) return static_cast<float>(wide_pieces(p, tokens));
  const float pairs = static_cast<float>(p.tokens) / static_cast<float>(p.experts);
  const float filled = pairs / static_cast<float>(tokens) + 0.5f;
  return static_cast<float>(p.experts) * std::fmax(1 - std::exp(-pairs), filled);
}

// at_once: blocks that the GPU runs at a time.
template <DType kType, int kTokens>
Status launch_wide(const MarlinProduct& p, const WideParts& parts, int splits, int at_once,
                   cudaStream_t stream) {
  const auto quads = [](int64_t rows, int64_t y_stride, const float* y) {
    return rows % 4 == 0 && y_stride % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  };
  bool whole_quads =
      parts.count > 0 || (p.row_begin % 4 == 0 && quads(p.row_count, p.y_stride, p.y));
  for (int i = 0; i < parts.count; ++i) {
    const WidePart& part = parts.parts[i];
    whole_quads = whole_quads && quads(part.row_count, part.y_stride, part.y);
  }
  const int rows = wide_row_blocks(p, parts);
  const int items = wide_pieces(p, kTokens) * rows;
  const bool own = p.w[1] ? writes_own_sums<kTokens, true>(p) : writes_own_sums<kTokens, false>(p);
  const bool loops = splits == 1 && (own || WideMemory<kType, kTokens>::kBeside);
  const dim3 grid((loops && items > at_once ? at_once : items) * splits);
  constexpr int kShared = WideMemory<kType, kTokens>::kBytes;
  const auto kernel =
      p.w[1] ? marlin_gemm_wgmma<kType, kTokens, true> : marlin_gemm_wgmma<kType, kTokens, false>;
  return launch_clusters("many tokens times marlin weights, wgmma", kernel, grid, splits,
                         kWideThreads, kShared, stream, p, parts, rows, splits, loops, whole_quads);
}

// Tokens of a block and ranges of columns.
struct WideShape {
  int tokens, splits;
};

// The shape of least time by a count fitted to shapes of Q4_K and Q6_K (H200, us): start of a
// block, its tiles, the end of an item, meetings of a cluster. rows: blocks of rows; room(splits):
// clusters at once.
template <class Room>
WideShape wide_shape(const MarlinProduct& p, int rows, int most_tokens, Room room) {
  struct Cost {
    int tokens;
    float start, tile, end, experts_end;  // rows of experts stand apart
  };
  constexpr Cost kCosts[] = {{16, 3, 1.75f, 0.8f, 1.2f},
                             {32, 3, 1.95f, 1, 2.5f},
                             {64, 3.5f, 2.2f, 1.5f, 5},
                             {128, 6, 2.7f, 4, 0}};
  const int tiles = ceil_div(p.cols, 256);
  WideShape best = {};
  float least = 0;
  for (const Cost& cost : kCosts) {
    if (cost.tokens > (p.offsets ? kMostGathered : most_tokens)) break;
    const float items = static_cast<float>(rows) * expected_pieces(p, cost.tokens);
    const bool loops = p.offsets || p.w[1] || cost.tokens <= 64;
    const auto tokens = static_cast<float>(cost.tokens);
    for (int splits = 1; splits <= kMostSplits && splits <= tiles; ++splits) {
      float item = cost.tile * static_cast<float>(ceil_div(tiles, splits)) +
                   (p.offsets ? cost.experts_end : cost.end);
      if (splits > 1) item += 1 + 0.4f * static_cast<float>(splits) + 0.03f * tokens;
      const float rounds = std::ceil(items / static_cast<float>(room(splits)));
      const float time =
          loops && splits == 1 ? cost.start + rounds * item : rounds * (cost.start + item);
      if (least == 0 || time < least) least = time, best = {cost.tokens, splits};
    }
  }
  return best;
}

template <DType kType>
Status launch_wide_type(const MarlinProduct& p, const WideParts& parts, cudaStream_t stream) {
  constexpr int kMost = WideMemory<kType, 128>::kFits ? 128 : 64;
  // Clusters of each size that run at once: asked once, all GPUs of a machine being alike.
  static std::atomic<int> rooms[kMostSplits + 1];
  const auto room = [&](int splits) {
    if (rooms[splits] == 0) {
      rooms[splits] = clusters_at_once(marlin_gemm_wgmma<kType, kMost, false>, splits, kWideThreads,
                                       WideMemory<kType, kMost>::kBytes);
    }
    return rooms[splits].load();
  };
  const WideShape shape = wide_shape(p, wide_row_blocks(p, parts), kMost, room);
  const auto run = [&]<int kTokens>() {
    return launch_wide<kType, kTokens>(p, parts, shape.splits, room(1), stream);
  };
  switch (shape.tokens) {
    case 16:
      return run.template operator()<16>();
    case 32:
      return run.template operator()<32>();
    case 64:
      return run.template operator()<64>();
    default:
      return run.template operator()<kMost>();
  }
}

}  // namespace ktx::kernels
