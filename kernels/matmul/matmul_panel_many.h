// Panels times many tokens: the codes of two panels, 512 columns at a time, are unpacked to
// bytes in the first cache, and meet all tokens in register tiles; the activations of a tile
// are copied side by side first, so that the innermost loop has one pointer, and wait in the
// second cache. Meanwhile the next words and activations are asked for.
// Included by matmul_panel_loop.h only.
#pragma once

#include "kernels/matmul/matmul_panel_skinny.h"
#include "kernels/matmul/panel_ahead.h"
#include "kernels/matmul/panel_unpack.h"

namespace ktx::kernels {
namespace {

// Sums of a register tile.
template <class V, int kPanels, int kTokens>
struct TileSums {
  typename V::F at[kPanels][kTokens];
};
template <class V, int kPanels, int kTokens>
struct TileDots {
  typename V::I at[kPanels][kTokens];
};
// f(panel, token), token by token.
template <int kPanels, int kTokens, class Fn>
KTX_ALWAYS_INLINE inline void each_sum(Fn f) {
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int p = 0; p < kPanels; ++p) f(p, t);
  }
}

// What a register tile sees of a format once it is unpacked: formats that are alike in this have
// one tile, which g++ compiles once.
template <int kEach, bool kHasOffset, PanelMin kMinimum, int kEachStep, bool kWide>
struct TileCodes {
  static constexpr int kGroup = kEach, kOffset = kHasOffset, kStepBlocks = kEachStep;
  static constexpr int kLargest = kWide ? 255 : 127;
  static constexpr PanelMin kMin = kMinimum;
};
template <class V, class Codes>
using TileCodesOf = TileCodes<Codes::kGroup, Codes::kOffset != 0, Codes::kMin,
                              GroupSteps<V, Codes>::kBlocks, (Codes::kLargest > 127)>;

// A register tile of the first kPanels panels of the scratch and kTokens tokens over `count`
// blocks; the sums of token t and panel p are at sums + t * stride + 16 * p. (Zen 4 multiplies in
// two pipes, in which 32 columns are eight dot products and one FMA or two; the subtraction goes
// beside them.) Codes: TileCodes.
template <class V, class Codes, class Act, int kPanels, int kTokens>
void panel_tile(const PanelScratch& scratch, const Act& x, int64_t count, float* sums,
                int64_t stride, Ahead& ahead) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kParts = kPartsOf<Codes>;
  constexpr int kSteps = 8 / kParts;
  Ahead next = ahead;
  for (int64_t first = 0; first < count; first += kSharedBlocks) {
    const auto group = [&](int p)
                           KTX_ALWAYS_INLINE { return PanelGroup<Codes>(scratch.panel(p), first); };
    const int64_t blocks = count - first < kSharedBlocks ? count - first : kSharedBlocks;
    TileSums<V, kPanels, kTokens> sum;
    each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE { sum.at[p][t] = V::zero(); });
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t b = first + k;
      next.step<V>();
      each<kParts>([&](auto part) KTX_ALWAYS_INLINE {
        constexpr int g = decltype(part)::value;
        TileDots<V, kPanels, kTokens> dots;
        KTX_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          const I start = V::load_same(sum_start_at<Codes, g>(x.token(t), b));
          KTX_UNROLL
          for (int p = 0; p < kPanels; ++p) dots.at[p][t] = start;
        }
        each<kSteps>([&](auto step) KTX_ALWAYS_INLINE {
          constexpr int w = g * kSteps + decltype(step)::value;
          I four[kPanels];
          KTX_UNROLL
          for (int p = 0; p < kPanels; ++p) {
            four[p] = V::load64(group(p).codes + 512 * k + 64 * w);
          }
          each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
            dots.at[p][t] =
                V::template dot<Codes::kLargest>(dots.at[p][t], four[p], x.q[b][t] + 4 * w);
          });
        });
        F s[kPanels];
        KTX_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          s[p] = V::load(group(p).scales + kPanelRows * (kParts * k + g));
        }
        each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
          const F v = V::sub(V::as_float(dots.at[p][t]), V::set1(x.center[t][b]));
          sum.at[p][t] = V::fma(v, s[p], sum.at[p][t]);
        });
      });
      if constexpr (Codes::kMin == PanelMin::Float) {
        each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
          const F m = V::load(group(p).mins + kPanelRows * k);
          sum.at[p][t] = V::fnma(m, V::set1(x.part[0][t][b].sum), sum.at[p][t]);
        });
      }
    }
    if constexpr (Codes::kMin == PanelMin::Steps) {
      constexpr int kPairs = kSharedBlocks / Codes::kStepBlocks;
      TileDots<V, kPanels, kTokens> dots;
      each_sum<kPanels, kTokens>([&](int p, int t)
                                     KTX_ALWAYS_INLINE { dots.at[p][t] = V::zero_i(); });
      each<kPairs>([&](auto pair) KTX_ALWAYS_INLINE {
        const int64_t index = first / Codes::kStepBlocks + pair.value;
        each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
          const I two = V::load64(group(p).mins + kPanelRows * pair.value);
          dots.at[p][t] = V::dot_pair(dots.at[p][t], two, step_pair(x.token(t), index));
        });
      });
      each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
        const F step = V::load(group(p).step);
        sum.at[p][t] = V::fnma(step, V::to_float(dots.at[p][t]), sum.at[p][t]);
      });
    }
    // Sums of all columns stay in memory meanwhile: there are no registers for them.
    asm volatile("" ::: "memory");
    each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
      const F shared = V::set1(x.shared[t][first / kSharedBlocks]);
      float* at = sums + t * stride + kPanelRows * p;
      V::store(at, V::fma(shared, sum.at[p][t], V::load(at)));
    });
    asm volatile("" ::: "memory");
  }
  ahead = next;
}

// Register tiles of V, by the number of their tokens. The codes of a tile's panels, 512 columns
// of them, stay in the first cache while all tokens meet them.
template <class V, class Codes>
struct VectorTiles {
  static constexpr int kMost = V::kTileTokens, kPanels = V::kTilePanels;
  static constexpr int64_t kBlocks = kChunkBlocks;
  using Act = ActTile<kMost, kBlocks>;

  // Panels [p, p + panels) times tokens [i, i + tokens), at most kChunkPanels and kChunkTokens.
  static void block(const MatmulArgs& a, int64_t p, int64_t panels, int64_t i, int64_t tokens) {
    const PanelScratch scratch(a.scratch);
    const int64_t blocks = a.w.cols / 32, tiles = (tokens + kMost - 1) / kMost;
    __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * kStride) * sizeof(float));
    for (int64_t first = 0; first < blocks; first += kBlocks) {
      const Columns columns = {first, blocks - first < kBlocks ? blocks - first : kBlocks, blocks};
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = tokens * tile / tiles, end = tokens * (tile + 1) / tiles;
        copy_activations<Codes>(a, i + begin, end - begin, first, columns.count,
                                activations(scratch)[tile]);
      }
      for (int64_t r = 0; r < panels; r += kPanels) {
        // A tile's panels are all there: the last one twice, if need be.
        for (int64_t n = 0; n < kPanels; ++n) {
          const PanelPlace<Codes> panel(a, p + (r + n < panels ? r + n : panels - 1));
          unpack_panel<V, Codes>(panel, first, columns.count, scratch.panel(n));
        }
        Ahead ahead(scratch.lines);
        ask_ahead(a, p, panels, r, i, tokens, columns, ahead);
        ahead.spread(tiles * columns.count);
        all_tiles(a, scratch, p, panels, r, i, tokens, columns, ahead);
      }
    }
  }

 private:
  static constexpr int64_t kStride = kChunkPanels * kPanelRows;  // between the sums of two tokens
  static_assert(kChunkPanels % kPanels == 0 && kPanels <= PanelScratch::kPanels);
  static_assert(sizeof(Act) * ((kChunkTokens + kMost - 1) / kMost) <= PanelScratch::kActivations);

  struct Columns {  // in blocks
    int64_t first, count, all;
    bool last() const { return first + count == all; }
  };

  static Act* activations(const PanelScratch& scratch) {
    return reinterpret_cast<Act*>(scratch.activations);
  }

  // What follows panel r: these columns of the next panels, or the next columns of the first ones;
  // and a part of the next columns of activations.
  static void ask_ahead(const MatmulArgs& a, int64_t p, int64_t panels, int64_t r, int64_t i,
                        int64_t tokens, const Columns& columns, Ahead& ahead) {
    const int64_t next = r + kPanels < panels ? r + kPanels : panels;
    const int64_t left = next < panels ? panels - next : panels;
    const int64_t together = left < kPanels ? left : int64_t{kPanels};
    const int64_t after = columns.first + columns.count;
    ask_for_next_words<Codes>(a, next < panels ? p + next : p, together,
                              next < panels ? columns.first : after, kBlocks, ahead);
    if (columns.last()) return;
    const int64_t begin = tokens * r / panels, end = tokens * next / panels;
    const int64_t count = columns.all - after < kBlocks ? columns.all - after : kBlocks;
    ask_for_activations<Codes>(a, i + begin, end - begin, after, count, ahead);
  }

  // All tokens times panels [p + r, p + r + kPanels), which stand in scratch.
  static void all_tiles(const MatmulArgs& a, const PanelScratch& scratch, int64_t p, int64_t panels,
                        int64_t r, int64_t i, int64_t tokens, const Columns& columns,
                        Ahead& ahead) {
    const int64_t tiles = (tokens + kMost - 1) / kMost;
    const int64_t there = panels - r < kPanels ? panels - r : int64_t{kPanels};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of almost the same size: 32 tokens are 5 + 5 + 6 + 5 + 5 + 6.
      const int64_t begin = tokens * tile / tiles, end = tokens * (tile + 1) / tiles;
      float* sums = scratch.sums + begin * kStride + r * kPanelRows;
      for (int64_t t = begin; columns.last() && t < end; ++t) {
        for (int64_t n = 0; n < there; ++n) V::prefetch(first_output(a, i + t, p + r + n));
      }
      of<kMost>(end - begin, scratch, activations(scratch)[tile], columns.count, sums, ahead);
      for (int64_t t = begin; columns.last() && t < end; ++t, sums += kStride) {
        for (int64_t n = 0; n < there; ++n) {
          store_rows<V>(a, i + t, p + r + n, V::load(sums + n * kPanelRows));
        }
      }
    }
  }
  static float* first_output(const MatmulArgs& a, int64_t i, int64_t panel) {
    const int64_t row = panel * kPanelRows;
    return output(a, i, row > a.row_begin ? row : a.row_begin);
  }

  template <int kTokens>
  static void of(int64_t tokens, const PanelScratch& scratch, const Act& x, int64_t count,
                 float* sums, Ahead& ahead) {
    if (tokens == kTokens) {
      return panel_tile<V, TileCodesOf<V, Codes>, Act, kPanels, kTokens>(scratch, x, count, sums,
                                                                         kStride, ahead);
    }
    if constexpr (kTokens > 1) of<kTokens - 1>(tokens, scratch, x, count, sums, ahead);
  }
};

}  // namespace
}  // namespace ktx::kernels
