// Weights in panels of 16 rows times BF16 activations with matrix tiles (AMX): the bits of
// matmul_panel_tile_bf16_loop.h, whose sums a tile keeps by itself over all columns.
//
//   sums[16 tokens][16 rows] += x[16][32 columns] . w[16 pairs of columns][16 rows][2]
//
// A panel is unpacked 32 columns at a time, to a tile of pairs, and meets up to 64 tokens at
// once, four tiles of sums. Vectors unpack while tiles multiply: what was unpacked is
// multiplied some blocks later, when its stores have gone by. With 64 tokens both take about the
// same time (Sapphire Rapids: 64 cycles for four products), with fewer unpacking does; one
// token meets its weights in registers (matmul_panel_tile_bf16_one.h).
//
// More than 64 tokens whose activations follow each other meet two panels, 512 columns at a
// time, which are unpacked once for up to 256 tokens. All eight panels of an item meet the same
// columns before the next ones, so that the activations of these, 256 KiB, stay in the
// second cache. The tiles of sums wait in memory meanwhile.
//
// Rows of activations that follow each other and fill their tiles are read where they lie;
// others are copied side by side, as tiles. Ops does a product: Bf16AmxTiles, or
// EmulatedBf16Tiles for tests.
//
// Included by matmul_panel_tile_bf16_amx.cc and matmul_panel_emulated_avx512.cc only.
#pragma once

#include <algorithm>

#include "kernels/matmul/panel_vec_avx512.h"
// (the policy first: the loops use its macros)
#include "kernels/matmul/matmul_panel_tile_bf16_loop.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kTileTokens = 16;
constexpr int64_t kMostTileTokens = 4 * kTileTokens;
static_assert(kMostTileTokens == kBf16TileTokens);

template <DType kType>
using Bf16WordsAhead = WordsAhead<PanelAvx512, Bf16Codes16<PanelAvx512, kType>, true>;

// The tiles of a call's tokens: 64 bytes of a token for each 32 columns, stride() apart.
// Copied ones stand together.
class ActTiles {
 public:
  ActTiles(const MatmulArgs& a, int64_t i, int64_t tokens)
      : tiles_((tokens + kTileTokens - 1) / kTileTokens) {
    const bool copies = a.index || a.x_div != 1 || tokens % kTileTokens != 0;
    from_ = reinterpret_cast<const uint8_t*>(copies ? a.scratch : a.xq + i * a.xq_stride);
    stride_ = copies ? 64 : a.xq_stride;
    block_bytes_ = copies ? tiles_ * kTileTokens * 64 : 64;
    const bool kept = a.x_kept && a.tokens <= kMostTileTokens;
    if (copies && !kept) copy(a, i, tokens, reinterpret_cast<uint8_t*>(a.scratch));
  }
  int64_t tiles() const { return tiles_; }
  int64_t stride() const { return stride_; }
  KTX_ALWAYS_INLINE const uint8_t* block(int64_t b) const { return from_ + b * block_bytes_; }

 private:
  // Row by row, as the hardware follows streams, the next one asked for meanwhile. Tokens that
  // fill up a tile stay as they are: their sums are not looked at.
  void copy(const MatmulArgs& a, int64_t i, int64_t tokens, uint8_t* out) const {
    for (int64_t t = 0; t < tokens; ++t) {
      const uint16_t* row = bf16_row(a, i + t);
      const uint16_t* next = t + 1 < tokens ? bf16_row(a, i + t + 1) : row;
      for (int64_t k = 0; k < a.w.cols; k += 32) {
        PanelAvx512::prefetch(next + k);
        PanelAvx512::store64(out + k / 32 * block_bytes_ + 64 * t, PanelAvx512::load64(row + k));
      }
    }
  }

  int64_t tiles_, stride_, block_bytes_;
  const uint8_t* from_;
};

// Words of the upper half of `low` below that of `high`, with one shuffle: unpacking is 1.5 times
// as fast (Emerald Rapids, 16 threads; Zen 4: 2.4) as with a store of `high` and one of `low` over
// it, two bytes off, which crosses lines.
KTX_INLINE void store_upper_halves(uint8_t* out, __m512 low, __m512 high) {
  const __m512i up_to_low =
      _mm512_broadcast_i32x4(_mm_setr_epi8(2, 3, 2, 3, 6, 7, 6, 7, 10, 11, 10, 11, 14, 15, 14, 15));
  constexpr __mmask64 kLowHalves = 0x3333333333333333;
  _mm512_store_si512(out, _mm512_mask_shuffle_epi8(_mm512_castps_si512(high), kLowHalves,
                                                   _mm512_castps_si512(low), up_to_low));
}

// Four columns of 16 rows, to their two lines of a tile of pairs.
template <int w>
KTX_INLINE void store_pairs(uint8_t* tile, __m512 f0, __m512 f1, __m512 f2, __m512 f3) {
  store_upper_halves(tile + 128 * w, f0, f1);
  store_upper_halves(tile + 128 * w + 64, f2, f3);
}

// A ring of tiles: each block is multiplied kDelay blocks after it was unpacked, when its stores
// have gone by; of two that are unpacked side by side, the second in the middle (both before them:
// 0.92 of the speed of an experts' prompt).
// multiply(b, tile) does a product.
template <class Multiply>
struct TileRing {
  static constexpr int64_t kDelay = 4, kRing = 2 * kDelay;
  const Multiply& multiply;
  uint8_t (*tiles)[16 * 64];
  int64_t first = 0;     // block of the unit
  uint8_t* out[2] = {};  // the tiles of the blocks in work

  KTX_ALWAYS_INLINE TileRing(const Multiply& product, uint8_t (*ring)[16 * 64])
      : multiply(product), tiles(ring) {}
  KTX_ALWAYS_INLINE uint8_t* tile(int64_t b) const { return tiles[b % kRing]; }
  KTX_ALWAYS_INLINE void multiply_before(int64_t b) {
    if (b >= kDelay) multiply(b - kDelay, tile(b - kDelay));
  }
  template <int kCount>
  KTX_ALWAYS_INLINE void begin(int block) {
    multiply_before(first + block);
    for (int slot = 0; slot < kCount; ++slot) out[slot] = tile(first + block + slot);
  }
  template <int slot, int w>
  KTX_ALWAYS_INLINE void take(int block, __m512 f0, __m512 f1, __m512 f2, __m512 f3) {
    store_pairs<w>(out[slot], f0, f1, f2, f3);
    if constexpr (slot == 1 && w == 3) multiply_before(first + block + 1);
  }
  template <int kCount>
  KTX_ALWAYS_INLINE void end(int /*block*/) {}
};

// Blocks of tiles that stand side by side.
struct TileBlocks {
  uint8_t (*tiles)[16 * 64];
  template <int kCount>
  KTX_ALWAYS_INLINE void begin(int /*block*/) {}
  template <int slot, int w>
  KTX_ALWAYS_INLINE void take(int block, __m512 f0, __m512 f1, __m512 f2, __m512 f3) {
    store_pairs<w>(tiles[block + slot], f0, f1, f2, f3);
  }
  template <int kCount>
  KTX_ALWAYS_INLINE void end(int /*block*/) {}
};

// The sums of a panel with the tokens of x, in the tiles of Ops.
template <class Ops, DType kType>
void sum_panel(const MatmulArgs& a, int64_t p, const ActTiles& x, Bf16WordsAhead<kType>& ahead) {
  using V = PanelAvx512;
  using Codes = Bf16Codes16<V, kType>;
  const int64_t blocks = a.w.cols / 32, panel_bytes = kPanelRows * a.w.row_bytes;
  const int64_t tiles = x.tiles(), stride = x.stride();
  const auto multiply = [&](int64_t b, const uint8_t* weights) KTX_ALWAYS_INLINE {
    Ops::weights(weights);
    const uint8_t* at = x.block(b);
    Ops::template multiply<0>(at, stride);
    if (tiles > 1) Ops::template multiply<1>(at + kTileTokens * stride, stride);
    if (tiles > 2) Ops::template multiply<2>(at + 2 * kTileTokens * stride, stride);
    if (tiles > 3) Ops::template multiply<3>(at + 3 * kTileTokens * stride, stride);
  };
  using Ring = TileRing<decltype(multiply)>;
  alignas(64) uint8_t weights[Ring::kRing][16 * 64];
  Ring ring(multiply, weights);
  const PanelPlace<Codes> panel(a, p);
  const uint8_t* words = panel.words;
  const uint8_t* rest = panel.rest;
  Ops::clear();
  for (; ring.first < blocks; ring.first += Codes::kUnit / 32) {
    if constexpr (Codes::kRest > 0) V::prefetch(rest + panel_bytes);
    ahead.ask(words);
    bf16_unit<V, kType>(words, rest, ring);
    words += Codes::kWords * 64;
    rest += Codes::kRest;
  }
  for (int64_t b = std::max<int64_t>(0, blocks - Ring::kDelay); b < blocks; ++b) {
    multiply(b, ring.tile(b));
  }
}

// ---- many tokens

constexpr int64_t kPairBlocks = 16;  // of 32 columns: what is unpacked at once, of two panels
constexpr int64_t kPairTiles = 16;   // of tokens that meet them
constexpr int64_t kPairPanels = 8;   // whose sums wait in memory

struct PairScratch {
  using Sums = float[kPairTiles][2][kTileTokens][kPanelRows];
  alignas(64) uint8_t weights[2][kPairBlocks][16 * 64];
  alignas(64) Sums sums[kPairPanels / 2];
};
static_assert(sizeof(PairScratch) <= PanelScratch::kBytes);

// The words of two panels that are unpacked next, which the tiles in work ask for bit by bit.
struct NextWords {
  const uint8_t* panel[2];
  int64_t lines;  // of each, for one pair of token tiles
  KTX_ALWAYS_INLINE void ask(int64_t pair, int64_t b, int64_t count) const {
    for (int64_t line = pair * lines + b; line < (pair + 1) * lines; line += count) {
      PanelAvx512::prefetch_second(panel[0] + 64 * line);
      PanelAvx512::prefetch_second(panel[1] + 64 * line);
    }
  }
};

// Where the words of blocks from `first` on stand in panel p.
template <class Codes>
const uint8_t* words_at(const MatmulArgs& a, int64_t p, int64_t first) {
  return PanelPlace<Codes>(a, p).words + first / (Codes::kUnit / 32) * Codes::kWords * 64;
}

// Blocks [first, first + count) of panel p, whole units.
template <DType kType>
void unpack_blocks(const MatmulArgs& a, int64_t p, int64_t first, int64_t count,
                   uint8_t (&out)[kPairBlocks][16 * 64]) {
  using V = PanelAvx512;
  using Codes = Bf16Codes16<V, kType>;
  constexpr int64_t kBlocks = Codes::kUnit / 32;
  const uint8_t* words = words_at<Codes>(a, p, first);
  const uint8_t* rest = PanelPlace<Codes>(a, p).rest + first / kBlocks * Codes::kRest;
  for (int64_t b = 0; b < count; b += kBlocks, words += Codes::kWords * 64, rest += Codes::kRest) {
    TileBlocks tiles = {out + b};
    bf16_unit<V, kType>(words, rest, tiles);
  }
}

// Pair number `pair` of token tiles, at x, `stride` bytes a token (the second of them absent if
// !both), times `count` blocks of two panels, added to sums, or from zero.
template <class Ops>
void multiply_pair(const PairScratch& s, const uint8_t* x, int64_t stride, bool both, int64_t count,
                   bool from_zero, const NextWords& next, int64_t pair, PairScratch::Sums& all) {
  float(*sums)[2][kTileTokens][kPanelRows] = all + 2 * pair;
  if (from_zero) {
    Ops::clear();
  } else {
    Ops::template load_sums<0>(sums[0][0][0]);
    Ops::template load_sums<2>(sums[0][1][0]);
    if (both) Ops::template load_sums<1>(sums[1][0][0]);
    if (both) Ops::template load_sums<3>(sums[1][1][0]);
  }
  for (int64_t b = 0; b < count; ++b, x += 64) {
    Ops::template load_weights<0>(s.weights[0][b]);
    Ops::template load_tokens<0>(x, stride);
    Ops::template product<0, 0>();
    Ops::template load_weights<1>(s.weights[1][b]);
    Ops::template product<0, 1>();
    next.ask(pair, b, count);
    if (!both) continue;
    Ops::template load_tokens<1>(x + kTileTokens * stride, stride);
    Ops::template product<1, 0>();
    Ops::template product<1, 1>();
  }
  Ops::template store<0>(sums[0][0][0]);
  Ops::template store<2>(sums[0][1][0]);
  if (both) Ops::template store<1>(sums[1][0][0]);
  if (both) Ops::template store<3>(sums[1][1][0]);
}

// Panels [begin, end), at most kPairPanels of them, with tokens [i, i + tokens), whole tiles of
// them, that follow each other.
template <class Ops, DType kType>
void panel_pairs(const MatmulArgs& a, int64_t begin, int64_t end, int64_t i, int64_t tokens) {
  using Codes = Bf16Codes16<PanelAvx512, kType>;
  auto& s = *reinterpret_cast<PairScratch*>(a.scratch);
  const int64_t blocks = a.w.cols / 32, tiles = tokens / kTileTokens, pairs = (tiles + 1) / 2;
  for (int64_t first = 0; first < blocks; first += kPairBlocks) {
    const int64_t count = blocks - first < kPairBlocks ? blocks - first : kPairBlocks;
    for (int64_t p = begin; p < end; p += 2) {
      // An odd panel's partner is itself.
      const auto partner = [&](int64_t q) { return q + 1 < end ? q + 1 : q; };
      unpack_blocks<kType>(a, p, first, count, s.weights[0]);
      unpack_blocks<kType>(a, partner(p), first, count, s.weights[1]);
      const bool turns = p + 2 >= end;
      const int64_t q = turns ? begin : p + 2;
      int64_t at = turns ? first + kPairBlocks : first;
      const int64_t left =
          at < blocks ? (blocks - at < kPairBlocks ? blocks - at : kPairBlocks) : 0;
      if (left == 0) at = first;
      const int64_t lines = left / (Codes::kUnit / 32) * Codes::kWords;
      const NextWords next = {{words_at<Codes>(a, q, at), words_at<Codes>(a, partner(q), at)},
                              (lines + pairs - 1) / pairs};
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const std::byte* x = a.xq + (i + 2 * pair * kTileTokens) * a.xq_stride + 64 * first;
        multiply_pair<Ops>(s, reinterpret_cast<const uint8_t*>(x), a.xq_stride,
                           2 * pair + 1 < tiles, count, first == 0, next, pair,
                           s.sums[(p - begin) / 2]);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t p = begin; p < end; ++p) {
      const auto& sums = s.sums[(p - begin) / 2][t / kTileTokens][(p - begin) % 2];
      store_rows<PanelAvx512>(a, i + t, p, PanelAvx512::load(sums[t % kTileTokens]));
    }
  }
}

// ---- kernels

// Tokens from i on, up to four tiles of them at a time.
template <class Ops, DType kType>
void tile_groups(const MatmulArgs& a, int64_t i) {
  using V = PanelAvx512;
  Bf16WordsAhead<kType> ahead(a);
  alignas(64) float sums[kMostTileTokens][kPanelRows];
  const int64_t begin = a.row_begin / kPanelRows;
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (; i < a.tokens; i += kMostTileTokens) {
    const int64_t tokens = a.tokens - i < kMostTileTokens ? a.tokens - i : kMostTileTokens;
    const ActTiles x(a, i, tokens);
    for (int64_t p = begin; p < end; ++p) {
      sum_panel<Ops, kType>(a, p, x, ahead);
      Ops::template store<0>(sums[0]);
      if (x.tiles() > 1) Ops::template store<1>(sums[kTileTokens]);
      if (x.tiles() > 2) Ops::template store<2>(sums[2 * kTileTokens]);
      if (x.tiles() > 3) Ops::template store<3>(sums[3 * kTileTokens]);
      for (int64_t t = 0; t < tokens; ++t) store_rows<V>(a, i + t, p, V::load(sums[t]));
    }
  }
}

template <class Ops, DType kType>
void bf16_tiles_skinny(const MatmulArgs& a) {
  const FlushSubnormals flush(true);  // of what unpacks: tiles always flush
  Ops::begin(a.tokens < kTileTokens ? a.tokens : kTileTokens);
  tile_groups<Ops, kType>(a, 0);
  Ops::end();
}

// Tokens that follow each other meet pairs of panels, as many as make whole tiles; the rest, and
// those of experts, go in groups.
template <class Ops, DType kType>
void bf16_tiles_gemm(const MatmulArgs& a) {
  const FlushSubnormals flush(true);
  Ops::begin(a.tokens < kTileTokens ? a.tokens : kTileTokens);
  const int64_t begin = a.row_begin / kPanelRows;
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  int64_t i = 0;
  while (!a.index && a.x_div == 1 && a.tokens - i > kMostTileTokens) {
    const int64_t left = (a.tokens - i) / kTileTokens * kTileTokens;
    constexpr int64_t kMost = kPairTiles * kTileTokens;
    const int64_t tokens = left < kMost ? left : kMost;
    for (int64_t p = begin; p < end; p += kPairPanels) {
      panel_pairs<Ops, kType>(a, p, p + kPairPanels < end ? p + kPairPanels : end, i, tokens);
    }
    i += tokens;
  }
  tile_groups<Ops, kType>(a, i);
  Ops::end();
}

template <class Ops>
MatmulFn bf16_tiles_skinny_of(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return bf16_tiles_skinny<Ops, DType::id>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}
template <class Ops>
MatmulFn bf16_tiles_gemm_of(DType dtype) {
  switch (dtype) {
#define KTX_PANEL16(id, rest_begin, rest_bytes) \
  case DType::id:                               \
    return bf16_tiles_gemm<Ops, DType::id>;
#include "lib/formats/panel16.def"
#undef KTX_PANEL16
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace ktx::kernels
