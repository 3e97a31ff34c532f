// Many tokens meet panels in matrix tiles of int8 (AMX): 16 tokens times 16 rows over the
// 32 columns that share a scale, then the scaling of matmul_panel_loop.h in registers.
//
//   dots[16 tokens][16 rows] = q[16][32 bytes] . codes[8 words][16 rows][4]
//
// Codes are signed here, without their offset, so that the sums are those that other
// variants have after they took it off: the same bits. Formats with two scales in 32
// columns take two products of 16. Ops is what does a product: AmxTiles on machines that
// have it; EmulatedTiles elsewhere, so that this loop is tested everywhere.
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

// Blocks whose products are under way while those of the batch before are scaled: the
// tiles' results go through memory, and take long to come back.
constexpr int kTileBatch = 4;

template <class Ops, class Codes>
struct MatrixTiles {
  static constexpr int kMost = 16;
  static constexpr bool kSigned = true;
  static constexpr int kParts = kPartsOf<Codes>;
  using V = PanelAvx512;
  using Act = ActTile<kMost, kParts>;

  KTX_INLINE void begin() { Ops::template begin<Codes::kGroup>(); }
  KTX_INLINE void end() { Ops::end(); }

  static void tile(int64_t tokens, const PanelScratch& scratch, int64_t panels, const Act& x,
                   int64_t count, float* sums, int64_t stride, Ahead&) {
    for (int64_t r = 0; r < panels; r += 2, sums += 2 * kPanelRows) {
      const PanelChunk w[2] = {scratch.panel(r), scratch.panel(r + 1 < panels ? r + 1 : r)};
      const int pair = r + 1 < panels ? 2 : 1;
      if (tokens > 12)
        rows_of<16>(tokens, w, pair, x, count, sums, stride);
      else if (tokens > 8)
        rows_of<12>(tokens, w, pair, x, count, sums, stride);
      else if (tokens > 4)
        rows_of<8>(tokens, w, pair, x, count, sums, stride);
      else
        rows_of<4>(tokens, w, pair, x, count, sums, stride);
    }
  }

 private:
  // Integer sums of a batch, for two panels.
  struct alignas(64) Dots {
    int32_t at[kTileBatch][2][kParts][kMost][kPanelRows];
  };

  // Block b of both panels (of the first alone twice, when there is but one).
  template <int k>
  KTX_INLINE void dots_of(const PanelChunk (&w)[2], const Act& x, int64_t b, Dots& out) {
    each<kParts>([&](auto part) KTX_ALWAYS_INLINE {
      constexpr int g = decltype(part)::value;
      Ops::template dots<k % 2, Codes::kGroup>(x.q[b][0] + 16 * g, w[0].codes + 512 * b + 256 * g,
                                               w[1].codes + 512 * b + 256 * g, out.at[k][0][g][0],
                                               out.at[k][1][g][0]);
    });
  }

  template <int kTokens>
  KTX_INLINE void add_block(const PanelChunk& w, const Act& x, int64_t b,
                            const int32_t (&dots)[kParts][kMost][kPanelRows],
                            typename V::F (&sum)[kTokens]) {
    const typename V::F s0 = V::load(w.scales + kPanelRows * b * kParts);
    const typename V::F s1 = V::load(w.scales + kPanelRows * (b * kParts + kParts - 1));
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      typename V::F v = V::mul(V::to_float(V::load64(dots[0][t])), s0);
      if constexpr (kParts == 2) v = V::fma(V::to_float(V::load64(dots[1][t])), s1, v);
      sum[t] = V::fma(V::set1(x.scale[t][b]), v, sum[t]);
    }
    if constexpr (Codes::kHasMin) {
      const typename V::F m = V::load(w.mins + kPanelRows * b);
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) sum[t] = V::fnma(m, V::set1(x.part[0][t][b].sum), sum[t]);
    }
  }

  // kTokens: `tokens` rounded up to a multiple of four.
  template <int kTokens>
  static void rows_of(int64_t tokens, const PanelChunk (&w)[2], int pair, const Act& x,
                      int64_t count, float* sums, int64_t stride) {
    Dots dots[2];
    each<kTileBatch>([&](auto k) KTX_ALWAYS_INLINE {
      if (k.value < count) dots_of<k.value>(w, x, k.value, dots[0]);
    });
    for (int64_t first = 0, set = 0; first < count; first += kTileBatch, set ^= 1) {
      for (int p = 0; p < pair; ++p) {
        float* at = sums + p * kPanelRows;
        typename V::F sum[kTokens];
        for (int t = 0; t < kTokens; ++t) {
          sum[t] = t < tokens ? V::load(at + t * stride) : V::zero();
        }
        each<kTileBatch>([&](auto k) KTX_ALWAYS_INLINE {
          const int64_t b = first + k.value, next = b + kTileBatch;
          if (p == 0 && next < count) dots_of<k.value>(w, x, next, dots[set ^ 1]);
          if (b < count) add_block<kTokens>(w[p], x, b, dots[set].at[k.value][p], sum);
        });
        for (int t = 0; t < kTokens; ++t) {
          if (t < tokens) V::store(at + t * stride, sum[t]);
        }
      }
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
