// Panels times many tokens: the codes of up to 8 panels are unpacked, 1024 columns at a time,
// to bytes that stay in the second cache, and meet the tokens in register tiles; the
// activations of a tile are copied side by side first, so that the innermost loop has one
// pointer. Meanwhile the next tile's activations, this one's outputs and the next weights are
// asked for.
// Included by matmul_panel_loop.h only.
#pragma once

#include "kernels/matmul/matmul_panel_few.h"

namespace ktx::kernels {
namespace {

// Blocks [first, first + count) of a panel as bytes, scales and minima. Codes are as
// they are multiplied by V::dot; `kSigned` ones without the offset.
template <class V, class Codes, bool kSigned>
void unpack_panel(const PanelPlace<Codes>& panel, int64_t first, int64_t count,
                  const PanelChunk& out) {
  constexpr int64_t kBlocks = Codes::kUnit / 32;
  const uint8_t* words = panel.words + first / kBlocks * kUnitBytes<Codes>;
  const uint8_t* rest = panel.rest + first / kBlocks * Codes::kRest;
  for (int64_t begin = 0; begin < count; begin += kBlocks) {
    Codes::unit(words, rest,
                [&](int block, const typename V::I(&codes)[8], typename V::F s0, typename V::F s1,
                    typename V::F m, typename V::I steps = V::zero_i(),
                    typename V::F step = V::zero()) KTX_ALWAYS_INLINE {
                  const int64_t b = begin + block;
                  each<8>([&](auto w) KTX_ALWAYS_INLINE {
                    typename V::I c = codes[w.value];
                    if constexpr (kSigned && Codes::kOffset != 0) c = V::sub8(c, Codes::kOffset);
                    V::store64(out.codes + 512 * b + 64 * w.value, c);
                  });
                  V::store(out.scales + kPanelRows * b * kPartsOf<Codes>, s0);
                  if constexpr (Codes::kGroup == 16) {
                    V::store(out.scales + kPanelRows * (2 * b + 1), s1);
                  }
                  if constexpr (Codes::kMin == PanelMin::Float) {
                    V::store(out.mins + kPanelRows * b, m);
                  } else if constexpr (Codes::kMin == PanelMin::Steps) {
                    constexpr int kEach = Codes::kStepBlocks;
                    if (block % kEach == kEach - 1) {
                      V::store64(out.mins + kPanelRows * (b / kEach), steps);
                    }
                    if (block % kSharedBlocks == kSharedBlocks - 1) {
                      V::store(out.step + kPanelRows * (b / kSharedBlocks), step);
                    }
                  }
                });
    words += kUnitBytes<Codes>;
    rest += Codes::kRest;
  }
}

// Lines that are needed next, asked for a few at a time while a tile multiplies: a burst
// of them would find memory busy, and the multiplier idle.
class Ahead {
 public:
  KTX_ALWAYS_INLINE explicit Ahead(const std::byte** lines) : lines_(lines) {}
  void add(const void* begin, int64_t bytes) {
    const auto* line = static_cast<const std::byte*>(begin);
    for (; bytes > 0 && count_ < PanelScratch::kLines; bytes -= 64, line += 64) {
      lines_[count_++] = line;
    }
  }
  // Shares them out over so many steps. Lines that fill up the last ones are harmless.
  void spread(int64_t steps) {
    per_step_ = (count_ + steps - 1) / steps;
    const std::byte* last = count_ > 0 ? lines_[count_ - 1] : nullptr;
    while (count_ < per_step_ * steps) lines_[count_++] = last;
  }
  template <class V>
  KTX_ALWAYS_INLINE void step() {
    for (int64_t i = 0; i < per_step_; ++i) V::prefetch(*lines_++);
  }

 private:
  const std::byte** lines_;
  int64_t count_ = 0, per_step_ = 0;
};

// What 16 rows of a chunk bring to the blocks that share a scale, from block b on.
template <class Codes>
struct PanelGroup {
  const uint8_t* codes;
  const float* scales;
  const float* mins;
  const float* step;

  KTX_ALWAYS_INLINE PanelGroup(const PanelChunk& w, int64_t b)
      : codes(w.codes + 512 * b),
        scales(w.scales + kPanelRows * b * kPartsOf<Codes>),
        mins(w.mins + kPanelRows * b),
        step(w.step + kPanelRows * (b / kSharedBlocks)) {
    if constexpr (Codes::kMin == PanelMin::Steps) {
      mins = w.mins + kPanelRows * (b / Codes::kStepBlocks);
    }
  }
};

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

// A register tile of kPanels times 16 rows and kTokens tokens over `count` blocks; the sums of
// token t and panel p are at sums + t * stride + 16 * p. (Zen 4 multiplies in two pipes, in
// which 32 columns are eight dot products and one FMA or two; the subtraction goes beside them.)
template <class V, class Codes, int kMost, int kPanels, int kTokens>
void panel_tile(const PanelScratch& scratch, int64_t panel, const ActTile<kMost>& x, int64_t count,
                float* sums, int64_t stride, Ahead& ahead) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kParts = kPartsOf<Codes>;
  constexpr int kSteps = 8 / kParts;
  Ahead next = ahead;
  for (int64_t first = 0; first < count; first += kSharedBlocks) {
    const auto group = [&](int p) KTX_ALWAYS_INLINE {
      return PanelGroup<Codes>(scratch.panel(panel + p), first);
    };
    const int64_t blocks = count - first < kSharedBlocks ? count - first : kSharedBlocks;
    TileSums<V, kPanels, kTokens> sum;
    each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE { sum.at[p][t] = V::zero(); });
    for (int64_t k = 0; k < blocks; ++k) {
      const int64_t b = first + k;
      next.step<V>();
      each<kParts>([&](auto part) KTX_ALWAYS_INLINE {
        constexpr int g = decltype(part)::value;
        TileDots<V, kPanels, kTokens> dots;
        each_sum<kPanels, kTokens>([&](int p, int t) KTX_ALWAYS_INLINE {
          dots.at[p][t] = V::set1_i(sum_start<Codes, g>(x.token(t), b));
        });
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

// Register tiles of V, by the number of their tokens.
template <class V, class Codes>
struct VectorTiles {
  static constexpr int kMost = V::kTileTokens, kPanels = V::kTilePanels;
  static constexpr int64_t kFewTokens = kMostFewTokens;  // that need no tiles
  static constexpr bool kSigned = false;
  using Act = ActTile<kMost>;

  KTX_INLINE void begin() {}
  KTX_INLINE void end() {}
  // Steps in which tile() asks for lines, for every block.
  static int64_t steps(int64_t panels) { return panels / kPanels; }
  // The tile's tokens times the first `panels` panels of the scratch, a multiple of kPanels; the
  // sums of token t and panel r are at sums + t * stride + 16 * r.
  static void tile(int64_t tokens, const PanelScratch& scratch, int64_t panels, const Act& x,
                   int64_t count, float* sums, int64_t stride, Ahead& ahead) {
    for (int64_t r = 0; r < panels; r += kPanels) {
      of<kMost>(tokens, scratch, r, x, count, sums + r * kPanelRows, stride, ahead);
    }
  }

 private:
  template <int kTokens>
  static void of(int64_t tokens, const PanelScratch& scratch, int64_t r, const Act& x,
                 int64_t count, float* sums, int64_t stride, Ahead& ahead) {
    if (tokens == kTokens) {
      return panel_tile<V, Codes, kMost, kPanels, kTokens>(scratch, r, x, count, sums, stride,
                                                           ahead);
    }
    if constexpr (kTokens > 1) {
      of<kTokens - 1>(tokens, scratch, r, x, count, sums, stride, ahead);
    }
  }
};

// Activations of tokens [i, i + tokens) that lie anywhere.
template <class Codes>
void ask_for_activations(const MatmulArgs& a, int64_t i, int64_t tokens, int64_t first,
                         int64_t count, Ahead& ahead) {
  for (int64_t t = i; t < i + tokens; ++t) {
    const PanelActRow x(a, t);
    ahead.add(x.q + 32 * first, 32 * count);
    ahead.add(x.scale + first, 4 * count);
    if constexpr (Codes::kMin != PanelMin::None || Codes::kOffset != 0)
      ahead.add(x.sum + 2 * first, 4 * count);
  }
}

// Outputs of tokens [i, i + tokens) and panels [p, p + panels), which are about to be stored.
inline void ask_for_outputs(const MatmulArgs& a, int64_t p, int64_t panels, int64_t i,
                            int64_t tokens, Ahead& ahead) {
  const int64_t first = p * kPanelRows, last = first + panels * kPanelRows;
  const int64_t begin = first > a.row_begin ? first : a.row_begin;
  const int64_t end = last < a.row_end ? last : a.row_end;
  for (int64_t t = i; t < i + tokens; ++t) ahead.add(output(a, t, begin), 4 * (end - begin));
}

// Words of the chunk that follows blocks [first, first + kChunkBlocks) of panels
// [p, p + panels), be it in this call or in the next one: part `part` of `parts`.
template <class Codes>
void ask_for_words(const MatmulArgs& a, int64_t p, int64_t panels, int64_t first, int64_t part,
                   int64_t parts, Ahead& ahead) {
  constexpr int64_t kBytes = kUnitBytes<Codes>, kUnits = kChunkBlocks * 32 / Codes::kUnit;
  const int64_t units = a.w.cols / Codes::kUnit, panel_bytes = kPanelRows * a.w.row_bytes;
  const std::byte* at = a.w.data + p * panel_bytes;
  int64_t unit = first * 32 / Codes::kUnit + kUnits;
  if (unit >= units) {
    if (!a.next) return;
    at = a.next + (p - a.row_begin / kPanelRows) * panel_bytes;
    unit = 0;
  }
  const int64_t bytes = (units - unit < kUnits ? units - unit : kUnits) * kBytes;
  const int64_t begin = bytes * part / parts, end = bytes * (part + 1) / parts;
  for (int64_t r = 0; r < panels; ++r) {
    ahead.add(at + r * panel_bytes + unit * kBytes + begin, end - begin);
  }
}

// Panels [p, p + panels) times tokens [i, i + tokens), at most kChunkPanels and
// kChunkTokens.
template <class V, class Codes, class Tiles>
void panel_block(const MatmulArgs& a, int64_t p, int64_t panels, int64_t i, int64_t tokens) {
  const PanelScratch scratch(a.scratch);
  auto& act = *reinterpret_cast<typename Tiles::Act*>(scratch.activations);
  static_assert(sizeof(typename Tiles::Act) <= PanelScratch::kActivations);
  constexpr int64_t kStride = kChunkPanels * kPanelRows;
  const int64_t blocks = a.w.cols / 32;
  const int64_t tiles = (tokens + Tiles::kMost - 1) / Tiles::kMost;
  // A tile's panels are all there: the last one twice, if need be.
  const int64_t full = (panels + Tiles::kPanels - 1) / Tiles::kPanels * Tiles::kPanels;
  static_assert(kChunkPanels % Tiles::kPanels == 0);
  __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * kStride) * sizeof(float));
  for (int64_t first = 0; first < blocks; first += kChunkBlocks) {
    const int64_t count = blocks - first < kChunkBlocks ? blocks - first : kChunkBlocks;
    for (int64_t r = 0; r < full; ++r) {
      const PanelPlace<Codes> panel(a, p + (r < panels ? r : panels - 1));
      unpack_panel<V, Codes, Tiles::kSigned>(panel, first, count, scratch.panel(r));
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of almost the same size: 32 tokens are 5 + 5 + 6 + 5 + 5 + 6.
      const int64_t begin = tokens * tile / tiles, size = tokens * (tile + 1) / tiles - begin;
      copy_activations<Codes>(a, i + begin, size, first, count, act);
      Ahead ahead(scratch.lines);
      const int64_t after = tokens * (tile + 2) / tiles;  // of the tile that follows
      if (tile + 1 < tiles) {
        ask_for_activations<Codes>(a, i + begin + size, after - begin - size, first, count, ahead);
      }
      const bool last = first + count == blocks;
      if (last) ask_for_outputs(a, p, panels, i + begin, size, ahead);
      ask_for_words<Codes>(a, p, panels, first, tile, tiles, ahead);
      ahead.spread(Tiles::steps(full) * count);
      Tiles::tile(size, scratch, full, act, count, scratch.sums + begin * kStride, kStride, ahead);
      for (int64_t t = begin; last && t < begin + size; ++t) {
        for (int64_t r = 0; r < panels; ++r) {
          store_rows<V>(a, i + t, p + r, V::load(scratch.sums + t * kStride + r * kPanelRows));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
