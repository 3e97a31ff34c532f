// Many tokens meet panels in matrix tiles of int8 (AMX): 16 tokens times 16 rows over the
// 32 columns that share a scale, then the scaling of matmul_panel_loop.h in registers.
//
//   dots[16 tokens][16 rows] = q[16][32 bytes] . codes[8 words][16 rows][4]
//
// Codes are signed here, without their offset, so that the sums are those that other
// variants have after they took it off: the same bits. Formats with two scales in 32
// columns take two products of 16.
//
// Every product has to go through memory, as activations change their scale every 32
// columns. A store directly behind its product makes all later tile instructions wait (37
// cycles a tile on Sapphire Rapids); three products later it costs 20. Products and the
// scaling of their sums do not overlap there, so that a batch of blocks is multiplied and
// then scaled, two panels at once to share what a token brings.
//
// Ops is what does a product: AmxTiles on machines that have it; EmulatedTiles elsewhere,
// so that this loop is tested everywhere.
//
// Included by matmul_panel_amx.cc and matmul_panel_emulated_avx512.cc only.
#pragma once

#include "kernels/matmul/panel_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_loop.h"

namespace ktx::kernels {
namespace {

// Fewer tokens do not fill a tile well enough to pay for it.
constexpr int64_t kFewestTileTokens = 5;

// Products between one and the store of its sums, and the tiles that hold them.
constexpr int kStoreDelay = 3, kSumTiles = 4;

template <class Ops, class Codes>
struct MatrixTiles {
  static constexpr int kMost = 16;
  static constexpr int64_t kFewTokens = kFewestTileTokens - 1;
  static constexpr bool kSigned = true;
  static constexpr int kParts = kPartsOf<Codes>;
  // Blocks multiplied before they are scaled: those that share a scale. 8 or 16 KiB of sums,
  // which stay in the first cache.
  static constexpr int kBatch = kSharedBlocks;
  using V = PanelAvx512;
  using Act = ActTile<kMost>;

  KTX_INLINE void begin() { Ops::template begin<Codes::kGroup>(); }
  KTX_INLINE void end() { Ops::end(); }

  // Panels [p, p + panels) times tokens [i, i + tokens), at most kChunkPanels and kChunkTokens: all
  // panels are unpacked, 1024 columns at a time, to the second cache, and meet one tile of tokens
  // after the other. Meanwhile the next tile's activations, this one's outputs and the next words
  // are asked for.
  static void block(const MatmulArgs& a, int64_t p, int64_t panels, int64_t i, int64_t tokens) {
    const PanelScratch scratch(a.scratch);
    auto& act = *reinterpret_cast<Act*>(scratch.activations);
    static_assert(sizeof(Act) <= PanelScratch::kActivations);
    constexpr int64_t kStride = kChunkPanels * kPanelRows;
    const int64_t blocks = a.w.cols / 32;
    const int64_t tiles = (tokens + kMost - 1) / kMost;
    __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * kStride) * sizeof(float));
    for (int64_t first = 0; first < blocks; first += kChunkBlocks) {
      const int64_t count = blocks - first < kChunkBlocks ? blocks - first : kChunkBlocks;
      for (int64_t r = 0; r < panels; ++r) {
        const PanelPlace<Codes> panel(a, p + r);
        unpack_panel<V, Codes, kSigned>(panel, first, count, scratch.panel(r));
      }
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t begin = tokens * tile / tiles, size = tokens * (tile + 1) / tiles - begin;
        copy_activations<Codes>(a, i + begin, size, first, count, act);
        Ahead ahead(scratch.lines);
        const int64_t after = tokens * (tile + 2) / tiles;  // of the tile that follows
        if (tile + 1 < tiles) {
          const int64_t next = i + begin + size;
          ask_for_activations<Codes>(a, next, after - begin - size, first, count, ahead);
        }
        const bool last = first + count == blocks;
        if (last) ask_for_outputs(a, p, panels, i + begin, size, ahead);
        ask_for_next_words<Codes>(a, p, panels, first + kChunkBlocks, kChunkBlocks, tile, tiles,
                                  ahead);
        ahead.spread(panels * count);
        multiply(size, scratch, panels, act, count, scratch.sums + begin * kStride, kStride, ahead);
        for (int64_t t = begin; last && t < begin + size; ++t) {
          for (int64_t r = 0; r < panels; ++r) {
            store_rows<V>(a, i + t, p + r, V::load(scratch.sums + t * kStride + r * kPanelRows));
          }
        }
      }
    }
  }

 private:
  static void multiply(int64_t tokens, const PanelScratch& scratch, int64_t panels, const Act& x,
                       int64_t count, float* sums, int64_t stride, Ahead& ahead) {
    for (int64_t r = 0; r < panels; r += 2, sums += 2 * kPanelRows) {
      const int pair = r + 1 < panels ? 2 : 1;
      const PanelChunk w[2] = {scratch.panel(r), scratch.panel(r + pair - 1)};
      for (int64_t b = 0; b < count;) {
        const int64_t batch = b + kBatch <= count ? kBatch : count - b;
        for (int64_t step = 0; step < batch * pair; ++step) ahead.template step<V>();
        batch_up_to<kBatch>(batch, tokens, w, pair, x, b, sums, stride);
        b += batch;
      }
    }
  }

  // Integer sums of a batch, for two panels.
  struct alignas(64) Dots {
    int32_t at[kBatch][kParts][2][kMost][kPanelRows];
    KTX_ALWAYS_INLINE int32_t* product(int j) { return at[0][0][0][0] + j * kMost * kPanelRows; }
  };

  template <int n>
  static void batch_up_to(int64_t batch, int64_t tokens, const PanelChunk (&w)[2], int pair,
                          const Act& x, int64_t b, float* sums, int64_t stride) {
    if (batch == n) return batch_of<n>(tokens, w, pair, x, b, sums, stride);
    if constexpr (n > 1 && Codes::kUnit == 32) {
      batch_up_to<n - 1>(batch, tokens, w, pair, x, b, sums, stride);
    }
  }

  // Blocks [b, b + n) of both panels (of the last one twice, when there is but one).
  template <int n>
  static void batch_of(int64_t tokens, const PanelChunk (&w)[2], int pair, const Act& x, int64_t b,
                       float* sums, int64_t stride) {
    constexpr int kProducts = n * kParts * 2;
    constexpr int kDelay = kStoreDelay < kProducts ? kStoreDelay : kProducts;
    Dots dots;
    each<kProducts>([&](auto product) KTX_ALWAYS_INLINE {
      constexpr int j = decltype(product)::value, p = j % 2, g = j / 2 % kParts, k = j / 2 / kParts;
      if constexpr (p == 0) Ops::template tokens<j / 2 % 2>(x.q[b + k][0] + 16 * g);
      Ops::template multiply<j % kSumTiles, j / 2 % 2, p, Codes::kGroup>(w[p].codes +
                                                                         512 * (b + k) + 256 * g);
      if constexpr (j >= kDelay) {
        Ops::template store<(j - kDelay) % kSumTiles>(dots.product(j - kDelay));
      }
    });
    each<kDelay>([&](auto left) KTX_ALWAYS_INLINE {
      constexpr int j = kProducts - kDelay + decltype(left)::value;
      Ops::template store<j % kSumTiles>(dots.product(j));
    });
    for (int64_t first = 0; first < tokens; first += 8) {
      const int64_t some = tokens - first;
      float* at = sums + first * stride;
      if (pair == 2 && some > 4) scale<n, 8, 2>(some, w, x, b, first, dots, at, stride);
      if (pair == 2 && some <= 4) scale<n, 4, 2>(some, w, x, b, first, dots, at, stride);
      if (pair == 1) scale<n, 8, 1>(some, w, x, b, first, dots, at, stride);
    }
  }

  // Adds the scaled sums of tokens [first, first + kTokens), of which `some` are there.
  template <int n, int kTokens, int kPair>
  static void scale(int64_t some, const PanelChunk (&w)[2], const Act& x, int64_t b, int64_t first,
                    const Dots& dots, float* sums, int64_t stride) {
    typename V::F sum[kPair][kTokens];
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      KTX_UNROLL
      for (int p = 0; p < kPair; ++p) sum[p][t] = V::zero();
    }
    for (int64_t k = 0; k < n; ++k) {
      typename V::F s[kPair][kParts], m[kPair];
      KTX_UNROLL
      for (int p = 0; p < kPair; ++p) {
        KTX_UNROLL
        for (int g = 0; g < kParts; ++g) {
          s[p][g] = V::load(w[p].scales + kPanelRows * ((b + k) * kParts + g));
        }
        if constexpr (Codes::kMin == PanelMin::Float) {
          m[p] = V::load(w[p].mins + kPanelRows * (b + k));
        }
      }
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const float center = x.center[first + t][b + k];
        const typename V::I start = V::set1_i(std::bit_cast<int32_t>(center));
        KTX_UNROLL
        for (int p = 0; p < kPair; ++p) {
          KTX_UNROLL
          for (int g = 0; g < kParts; ++g) {
            const typename V::I dot = V::add_i(V::load64(dots.at[k][g][p][first + t]), start);
            const typename V::F v = V::sub(V::as_float(dot), V::set1(center));
            sum[p][t] = V::fma(v, s[p][g], sum[p][t]);
          }
          if constexpr (Codes::kMin == PanelMin::Float) {
            sum[p][t] = V::fnma(m[p], V::set1(x.part[0][first + t][b + k].sum), sum[p][t]);
          }
        }
      }
    }
    KTX_UNROLL
    for (int p = 0; p < kPair; ++p) {
      if constexpr (Codes::kMin == PanelMin::Steps) {
        take_minima(PanelGroup<Codes>(w[p], b), x, first, b, sum[p]);
      }
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if (t >= some) break;
        const typename V::F shared = V::set1(x.shared[first + t][b / kSharedBlocks]);
        float* at = sums + t * stride + p * kPanelRows;
        V::store(at, V::fma(shared, sum[p][t], V::load(at)));
      }
    }
  }

  // Minima in steps of the batch from block b on.
  template <int kTokens>
  KTX_INLINE void take_minima(const PanelGroup<Codes>& group, const Act& x, int64_t first,
                              int64_t b, typename V::F (&sum)[kTokens]) {
    constexpr int kPairs = kBatch / Codes::kStepBlocks;
    typename V::I two[kPairs];
    KTX_UNROLL
    for (int i = 0; i < kPairs; ++i) two[i] = V::load64(group.mins + kPanelRows * i);
    const typename V::F step = V::load(group.step);
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      typename V::I all = V::zero_i();
      KTX_UNROLL
      for (int i = 0; i < kPairs; ++i) {
        const int64_t index = b / Codes::kStepBlocks + i;
        all = V::dot_pair(all, two[i], step_pair(x.token(first + t), index));
      }
      sum[t] = V::fnma(step, V::to_float(all), sum[t]);
    }
  }
};

template <class Ops, DType kType>
void panel_product_tiles(const MatmulArgs& a) {
  using Codes = PanelCodes<PanelAvx512, kType>;
  if (a.tokens < kFewestTileTokens) return panel_product<PanelAvx512, Codes>(a);
  panel_product<PanelAvx512, Codes, MatrixTiles<Ops, Codes>>(a);
}

template <class Ops>
MatmulFn panel_tiles_of(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return panel_product_tiles<Ops, DType::id>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace ktx::kernels
