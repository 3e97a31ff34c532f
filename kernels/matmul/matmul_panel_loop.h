// Weights in panels of 16 rows (panel16.h) times int8 activations, over a vector policy.
//
// A lane is a row, and an output has one sum. For each 32 columns in rising order
//
//   dot = sum of code * q over the group                         (an exact int)
//   v   = weight scale * dot                    [two groups of 16: fma(s1, dot1, s0 * dot0)]
//   sum = fma(activation scale, v, sum)
//   sum = sum - min * (activation scale * sum of q), one rounding     [formats with a min;
//                                             two groups of 16: the first's, then the second's]
//
// so that nothing is ever summed across lanes, and tokens, ranges and instruction sets
// change no bit. With up to 16 tokens the words go straight into registers. With more,
// the codes of up to 8 panels are unpacked, 1024 columns at a time, to bytes that stay
// in the second cache, and meet the tokens in register tiles; the activations of a tile
// are copied side by side first, so that the innermost loop has one pointer. Meanwhile
// the next tile's activations, this one's outputs and the next weights are asked for.
//
// Included by matmul_panel_<isa>.cc only.
#pragma once

#include "kernels/matmul/matmul_store.h"
#include "kernels/matmul/panel_codes.h"
#include "kernels/matmul/panel_scratch.h"
#include "lib/formats/act_q8.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

// A quantised activation row.
struct PanelActRow {
  const int8_t* q;
  const float* scale;
  const int16_t* sum;

  KTX_ALWAYS_INLINE PanelActRow(const MatmulArgs& a, int64_t i) {
    const std::byte* row = a.xq + x_row(a, i) * a.xq_stride;
    q = reinterpret_cast<const int8_t*>(row);
    scale = reinterpret_cast<const float*>(row + act_q8_scale_offset(a.w.cols));
    sum = reinterpret_cast<const int16_t*>(row + act_q8_sum_offset(a.w.cols));
  }
};

// What a token brings to a group besides q: with a minimum, scale * sum of q; with an
// offset, what the offset adds to the integer sum, to be taken off.
union ActPart {
  float sum;
  int32_t offset;
};

template <class Codes>
constexpr int kPartsOf = 32 / Codes::kGroup;

// Sums of products start at the bits of 1.5 * 2^23: then they are, read as a float, that
// number plus the sum, for sums below 2^22; and
//
//   scale * sum == fma(sum read as a float, scale, -1.5 * 2^23 * scale)
//
// to the bit, because a scale's 19 bits and these two fit in a float. It saves turning
// every sum into a float. A scale above 2^104, as no model has, gives NaN.
constexpr int32_t kSumBits = 0x4B400000;

template <class V>
KTX_INLINE typename V::F sum_offset(typename V::F scale) {
  return V::mul(scale, V::set1(-12582912.0f));
}
template <class V>
KTX_INLINE typename V::F scaled_sum(typename V::I sum, typename V::F scale, typename V::F offset) {
  return V::fma(V::as_float(sum), scale, offset);
}

template <class Codes>
KTX_ALWAYS_INLINE inline void act_parts(const PanelActRow& x, int64_t block, ActPart* out) {
  const int32_t first = x.sum[2 * block], second = x.sum[2 * block + 1];
  if constexpr (Codes::kHasMin && Codes::kGroup == 16) {
    out[0].sum = x.scale[block] * static_cast<float>(first);
    out[1].sum = x.scale[block] * static_cast<float>(second);
  } else if constexpr (Codes::kHasMin) {
    out[0].sum = x.scale[block] * static_cast<float>(first + second);
  } else if constexpr (Codes::kGroup == 32) {
    out[0].offset = kSumBits - Codes::kOffset * (first + second);
  } else {
    out[0].offset = kSumBits - Codes::kOffset * first;
    out[1].offset = -Codes::kOffset * second;
  }
}

// Bytes of a unit's words, and of the scales that stand before them in Panel16Stream.
template <class Codes>
constexpr bool kStreamed = requires {
  Codes::kHead;
};
template <class Codes>
constexpr int64_t kUnitBytes = [] {
  if constexpr (kStreamed<Codes>) return Codes::kHead + 64 * Codes::kWords;
  return 64 * Codes::kWords;
}();

template <class Codes>
struct PanelPlace {
  const uint8_t* words;
  const uint8_t* rest;

  KTX_ALWAYS_INLINE PanelPlace(const MatmulArgs& a, int64_t p) {
    words = reinterpret_cast<const uint8_t*>(a.w.data) + p * kPanelRows * a.w.row_bytes;
    rest = words + a.w.cols / Codes::kUnit * kUnitBytes<Codes>;
  }
};

// ---- one or two tokens

// The dot products of 32 columns: codes of the 16 rows; q and parts of the token.
template <class V, class Codes>
KTX_ALWAYS_INLINE inline void block_dots(typename V::I (&dots)[2], const typename V::I (&codes)[8],
                                         const int8_t* q, const ActPart* part) {
  constexpr int kParts = kPartsOf<Codes>;
  for (int g = 0; g < 2; ++g) {
    dots[g] = V::set1_i(Codes::kOffset != 0 && g < kParts ? part[g].offset : g == 0 ? kSumBits : 0);
  }
  each<8>([&](auto w) KTX_ALWAYS_INLINE {
    constexpr int g = kParts == 1 ? 0 : decltype(w)::value / 4;
    dots[g] = V::template dot<Codes::kLargest>(dots[g], codes[w.value], q + 4 * w.value);
  });
}

// A token's sum after 32 columns more: their dot products, scales and minima of the 16 rows;
// scale and parts of the token.
template <class V, class Codes>
KTX_ALWAYS_INLINE inline typename V::F add_dots(typename V::F sum, const typename V::I (&dots)[2],
                                                typename V::F s0, typename V::F s1, typename V::F m,
                                                typename V::F m1, float scale,
                                                const ActPart* part) {
  constexpr int kParts = kPartsOf<Codes>;
  typename V::F v = scaled_sum<V>(dots[0], s0, sum_offset<V>(s0));
  if constexpr (kParts == 2) v = V::fma(V::to_float(dots[1]), s1, v);
  sum = V::fma(V::set1(scale), v, sum);
  if constexpr (Codes::kHasMin) {
    sum = V::fnma(m, V::set1(part[0].sum), sum);
    if constexpr (kParts == 2) sum = V::fnma(m1, V::set1(part[1].sum), sum);
  }
  return sum;
}

// What the hardware does not fetch by itself, as it follows a stream only to the end of a
// page: the first lines of the page that comes next, and of the rows that come after these.
// Asked for into the second cache: the first has room for some 20 lines on their way, which
// is less than memory needs to be kept busy (Zen 4: 14 of 22 GB/s). Unit by unit: a branch
// in each 32 columns costs Q4_K a fifth in small pages.
template <class V, class Codes>
class PageAhead {
 public:
  KTX_ALWAYS_INLINE explicit PageAhead(const MatmulArgs& a) {
    const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows * kPanelRows;
    end_ = reinterpret_cast<const uint8_t*>(a.w.data) + end * a.w.row_bytes;
    next_ = a.next ? reinterpret_cast<const uint8_t*>(a.next) : end_;
  }
  // While the unit at `words` is in work.
  KTX_ALWAYS_INLINE void ask(const uint8_t* words) const {
    const int64_t left = end_ - words;
    if (left > kPage && kFollowed) return;
    const auto in_page = static_cast<int64_t>(reinterpret_cast<uintptr_t>(words) % kPage);
    const uint8_t* next_page = words + (kPage - in_page) + (in_page >> kShift);
    const uint8_t* line = left > kPage ? next_page : next_ + ((kPage - left) >> kShift);
    each<kLines>([&](auto i) KTX_ALWAYS_INLINE { V::prefetch_second(line + 64 * i.value); });
  }

 private:
  static constexpr int64_t kPage = 4096;
  static constexpr int kShift = 3;
  static constexpr int kLines = (kUnitBytes<Codes> + (64 << kShift) - 1) / (64 << kShift);
  // Q4_K's loads, each once a unit, are followed across pages: asking costs it 3 to 8 %.
  static constexpr bool kFollowed = Codes::kUnit == 256 && Codes::kWords == 36;
  const uint8_t* end_;
  const uint8_t* next_;
};

// Whether a format's scales are all in the rest, which stands behind all words of a panel.
// Then dot products wait until it is reached, and memory is read in one stream: beside the
// words it would be a second one, a line of which serves a page of them. (One Zen 4 core, Q4_0
// and IQ4_NL: 12 and 14 GB/s so, 23 in one stream. Q6_K and Q3_K would keep two sums and the
// scales of 16 columns for later: 13 instead of 20.)
template <class Codes>
constexpr bool kScalesLater = Codes::kRest > 0 && Codes::kGroup == 32;

// sums[t] += the products of a unit whose words meet each of their blocks at once.
template <class V, class Codes, int kTokens>
KTX_ALWAYS_INLINE inline void add_unit_by_words(const uint8_t* words, int64_t first,
                                                const int8_t* const (&q)[kTokens],
                                                const float* const (&scale)[kTokens],
                                                const ActPart* const (&part)[kTokens],
                                                typename V::F (&sums)[kTokens]) {
  static_assert(kPartsOf<Codes> == 2 && !Codes::kHasMin);
  typename V::I dots[kTokens][4][2];
  const auto dot = [&](auto block, auto word, typename V::I codes) KTX_ALWAYS_INLINE {
    constexpr int b = decltype(block)::value, w = decltype(word)::value, g = w / 4;
    for (int t = 0; t < kTokens; ++t) {
      typename V::I& sum = dots[t][b % 4][g];
      if constexpr (w % 4 == 0) sum = V::set1_i(part[t][2 * (first + b) + g].offset);
      sum = V::template dot<Codes::kLargest>(sum, codes, q[t] + 32 * (first + b) + 4 * w);
    }
  };
  const auto done = [&](auto block, typename V::F s0, typename V::F s1) KTX_ALWAYS_INLINE {
    constexpr int b = decltype(block)::value;
    for (int t = 0; t < kTokens; ++t) {
      sums[t] = add_dots<V, Codes>(sums[t], dots[t][b % 4], s0, s1, s0, s0, scale[t][first + b],
                                   part[t] + 2 * (first + b));
    }
  };
  Codes::by_words(words, dot, done);
}

// sums[t] += a panel's products with one or two tokens. `dots` has room for them all where
// scales come later.
template <class V, class Codes, int kTokens>
KTX_ALWAYS_INLINE inline void add_panel(const PanelPlace<Codes>& panel, int64_t panel_bytes,
                                        int64_t blocks, const PageAhead<V, Codes>& ahead,
                                        const int8_t* const (&q)[kTokens],
                                        const float* const (&scale)[kTokens],
                                        const ActPart* const (&part)[kTokens], std::byte* dots,
                                        typename V::F (&sums)[kTokens]) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kParts = kPartsOf<Codes>;
  constexpr bool kLater = kScalesLater<Codes>;
  const uint8_t* words = panel.words;
  const uint8_t* rest = panel.rest;
  for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
    // The hardware follows the words; the rest is a second stream, a line now and then.
    if constexpr (Codes::kRest > 0 && !kLater) V::prefetch(rest + panel_bytes);
    ahead.ask(words);
    if constexpr (kStreamed<Codes>) {
      add_unit_by_words<V, Codes, kTokens>(words, first, q, scale, part, sums);
      words += kUnitBytes<Codes>;
      continue;
    }
    const auto add = [&](int block, const I(&codes)[8], F s0, F s1, F m,
                         F m1 = V::zero()) KTX_ALWAYS_INLINE {
      const int64_t b = first + block;
      for (int t = 0; t < kTokens; ++t) {
        I found[2];
        block_dots<V, Codes>(found, codes, q[t] + 32 * b, part[t] + b * kParts);
        if constexpr (kLater) {
          V::store64(dots + (t * blocks + b) * 64, found[0]);
        } else {
          sums[t] =
              add_dots<V, Codes>(sums[t], found, s0, s1, m, m1, scale[t][b], part[t] + b * kParts);
        }
      }
    };
    Codes::unit(words, rest, add);
    words += kUnitBytes<Codes>;
    if constexpr (!kLater) rest += Codes::kRest;
  }
  if constexpr (kLater) {
    for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
      const auto add = [&](int block, const I(&)[8], F s0, F s1, F m,
                           F m1 = V::zero()) KTX_ALWAYS_INLINE {
        const int64_t b = first + block;
        for (int t = 0; t < kTokens; ++t) {
          const I found[2] = {V::load64(dots + (t * blocks + b) * 64), V::zero_i()};
          sums[t] =
              add_dots<V, Codes>(sums[t], found, s0, s1, m, m1, scale[t][b], part[t] + b * kParts);
        }
      };
      Codes::unit(panel.words, rest, add);  // of the words nothing is used
      rest += Codes::kRest;
    }
  }
}

template <class V, class Codes, int kTokens>
void panel_direct(const MatmulArgs& a, int64_t i) {
  constexpr int kParts = kPartsOf<Codes>;
  const int64_t blocks = a.w.cols / 32;
  const int8_t* q[kTokens];
  const float* scale[kTokens];
  const ActPart* part[kTokens];
  ActPart* parts = reinterpret_cast<ActPart*>(a.scratch);
  for (int t = 0; t < kTokens; ++t) {
    const PanelActRow x(a, i + t);
    q[t] = x.q;
    scale[t] = x.scale;
    part[t] = parts + t * blocks * kParts;
    for (int64_t b = 0; b < blocks; ++b) {
      act_parts<Codes>(x, b, parts + (t * blocks + b) * kParts);
    }
  }
  const int64_t part_bytes = kTokens * blocks * kParts * static_cast<int64_t>(sizeof(ActPart));
  std::byte* dots = a.scratch + (part_bytes + 63) / 64 * 64;
  const PageAhead<V, Codes> ahead(a);
  if constexpr (Codes::kRest > 0 && !kScalesLater<Codes>) {
    const PanelPlace<Codes> begin(a, a.row_begin / kPanelRows);
    for (int64_t at = 0; at < blocks * 32 / Codes::kUnit * Codes::kRest; at += 64) {
      V::prefetch(begin.rest + at);
    }
  }
  for (int64_t p = a.row_begin / kPanelRows; p * kPanelRows < a.row_end; ++p) {
    typename V::F sums[kTokens];
    for (int t = 0; t < kTokens; ++t) sums[t] = V::zero();
    add_panel<V, Codes, kTokens>(PanelPlace<Codes>(a, p), kPanelRows * a.w.row_bytes, blocks, ahead,
                                 q, scale, part, dots, sums);
    for (int t = 0; t < kTokens; ++t) store_rows<V>(a, i + t, p, sums[t]);
  }
}

// ---- a few tokens

constexpr int64_t kMostFewTokens = 16;
// Units between words that are asked for and those in work: some more than the time that
// memory takes while all cores read (1, 2 and 4 measure alike).
constexpr int64_t kUnitsAhead = 2;

// As panel_direct, with the sums in memory: codes in registers meet one token after the
// other. The chains of two tokens do not depend on each other, so that the processor works
// on several at once; and as it sees but a few tokens ahead, words are asked for early.
// Q4_K, 2048 columns, four Zen 4 cores, weights from memory, ns for 16 rows x 32 columns:
//
//   tokens                          1       4       8      16
//   panel_direct, then here        35      34      40      70
//   tiles behind unpacked codes         54-102   55-83   71-85
template <class V, class Codes>
void panel_few(const MatmulArgs& a, int64_t i, int64_t tokens) {
  constexpr int kParts = kPartsOf<Codes>;
  constexpr int64_t kLines = (kUnitBytes<Codes> / 2 + Codes::kUnit - 1) / Codes::kUnit;  // a block
  const int64_t blocks = a.w.cols / 32;
  struct Token {
    const int8_t* q;
    const float* scale;
    const ActPart* part;
  };
  Token token[kMostFewTokens];
  alignas(64) float sums[kMostFewTokens][kPanelRows];
  ActPart* parts = reinterpret_cast<ActPart*>(a.scratch);
  for (int64_t t = 0; t < tokens; ++t, parts += blocks * kParts) {
    const PanelActRow x(a, i + t);
    token[t] = {x.q, x.scale, parts};
    for (int64_t b = 0; b < blocks; ++b) act_parts<Codes>(x, b, parts + b * kParts);
  }
  for (int64_t p = a.row_begin / kPanelRows; p * kPanelRows < a.row_end; ++p) {
    const PanelPlace<Codes> panel(a, p);
    const uint8_t* words = panel.words;
    const uint8_t* rest = panel.rest;
    for (int64_t t = 0; t < tokens; ++t) V::store(sums[t], V::zero());
    for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
      const uint8_t* ahead = words + kUnitsAhead * kUnitBytes<Codes>;
      if constexpr (Codes::kRest > 0) V::prefetch(rest + kPanelRows * a.w.row_bytes);
      Codes::unit(words, rest,
                  [&](int block, const typename V::I(&codes)[8], typename V::F s0, typename V::F s1,
                      typename V::F m, typename V::F m1 = V::zero()) KTX_ALWAYS_INLINE {
                    const int64_t b = first + block;
                    each<kLines>([&](auto line) KTX_ALWAYS_INLINE {
                      V::prefetch(ahead + 64 * (block * kLines + line.value));
                    });
                    for (int64_t t = 0; t < tokens; ++t) {
                      typename V::I dots[2];
                      const ActPart* part = token[t].part + b * kParts;
                      block_dots<V, Codes>(dots, codes, token[t].q + 32 * b, part);
                      V::store(sums[t], add_dots<V, Codes>(V::load(sums[t]), dots, s0, s1, m, m1,
                                                           token[t].scale[b], part));
                    }
                  });
      words += kUnitBytes<Codes>;
      rest += Codes::kRest;
    }
    for (int64_t t = 0; t < tokens; ++t) store_rows<V>(a, i + t, p, V::load(sums[t]));
  }
}

// ---- more tokens

// A chunk of columns of a tile's tokens: 32 columns of all tokens stand together.
template <int kMost, int kParts>
struct ActTile {
  int8_t q[kChunkBlocks][kMost][32];
  float scale[kMost][kChunkBlocks];
  ActPart part[kParts][kMost][kChunkBlocks];
};

// Blocks [first, first + count) of tokens [i, i + tokens); the others stay as they were.
template <class Codes, int kMost>
void copy_activations(const MatmulArgs& a, int64_t i, int64_t tokens, int64_t first, int64_t count,
                      ActTile<kMost, kPartsOf<Codes>>& out) {
  for (int64_t t = 0; t < tokens; ++t) {
    const PanelActRow x(a, i + t);
    const int8_t* q = x.q + 32 * first;
    const int16_t* sum = x.sum + 2 * first;
    const float* scale = x.scale + first;
    for (int64_t b = 0; b < count; ++b) __builtin_memcpy(out.q[b][t], q + 32 * b, 32);
    for (int64_t b = 0; b < count; ++b) out.scale[t][b] = scale[b];
    if constexpr (Codes::kHasMin && Codes::kGroup == 16) {
      for (int64_t b = 0; b < count; ++b) {
        out.part[0][t][b].sum = scale[b] * static_cast<float>(sum[2 * b]);
        out.part[1][t][b].sum = scale[b] * static_cast<float>(sum[2 * b + 1]);
      }
    } else if constexpr (Codes::kHasMin) {
      for (int64_t b = 0; b < count; ++b) {
        out.part[0][t][b].sum = scale[b] * static_cast<float>(sum[2 * b] + sum[2 * b + 1]);
      }
    } else if constexpr (Codes::kGroup == 32) {
      for (int64_t b = 0; b < count; ++b) {
        out.part[0][t][b].offset = kSumBits - Codes::kOffset * (sum[2 * b] + sum[2 * b + 1]);
      }
    } else {
      for (int64_t b = 0; b < count; ++b) {
        out.part[0][t][b].offset = kSumBits - Codes::kOffset * sum[2 * b];
        out.part[1][t][b].offset = -Codes::kOffset * sum[2 * b + 1];
      }
    }
  }
}

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
                    typename V::F m, typename V::F m1 = V::zero()) KTX_ALWAYS_INLINE {
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
                  if constexpr (Codes::kHasMin) {
                    float* mins = out.mins + kPanelRows * b * kPartsOf<Codes>;
                    V::store(mins, m);
                    if constexpr (Codes::kGroup == 16) V::store(mins + kPanelRows, m1);
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

// A register tile of 16 rows times kTokens tokens over `count` blocks; the sums of
// token t are at sums + t * stride.
template <class V, class Codes, int kMost, int kTokens>
void panel_tile(const PanelChunk& w, const ActTile<kMost, kPartsOf<Codes>>& x, int64_t count,
                float* sums, int64_t stride, Ahead& ahead) {
  constexpr int kParts = kPartsOf<Codes>;
  constexpr int kSteps = 8 / kParts;
  typename V::F sum[kTokens];
  for (int t = 0; t < kTokens; ++t) sum[t] = V::load(sums + t * stride);
  const uint8_t* codes = w.codes;
  const float* scales = w.scales;
  const float* mins = w.mins;
  Ahead next = ahead;
  for (int64_t b = 0; b < count; ++b) {
    next.step<V>();
    typename V::F v[kTokens];
    each<kParts>([&](auto group) KTX_ALWAYS_INLINE {
      constexpr int g = decltype(group)::value;
      typename V::I dots[kTokens];
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        dots[t] = V::set1_i(Codes::kOffset != 0 ? x.part[g][t][b].offset : g == 0 ? kSumBits : 0);
      }
      each<kSteps>([&](auto step) KTX_ALWAYS_INLINE {
        constexpr int w = g * kSteps + decltype(step)::value;
        const typename V::I four = V::load64(codes + 64 * w);
        KTX_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          dots[t] = V::template dot<Codes::kLargest>(dots[t], four, x.q[b][t] + 4 * w);
        }
      });
      const typename V::F s = V::load(scales + kPanelRows * g), offset = sum_offset<V>(s);
      KTX_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if constexpr (g == 0) v[t] = scaled_sum<V>(dots[t], s, offset);
        if constexpr (g != 0) v[t] = V::fma(V::to_float(dots[t]), s, v[t]);
      }
    });
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) sum[t] = V::fma(V::set1(x.scale[t][b]), v[t], sum[t]);
    if constexpr (Codes::kHasMin) {
      each<kParts>([&](auto group) KTX_ALWAYS_INLINE {
        constexpr int g = decltype(group)::value;
        const typename V::F m = V::load(mins + kPanelRows * g);
        KTX_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          sum[t] = V::fnma(m, V::set1(x.part[g][t][b].sum), sum[t]);
        }
      });
    }
    codes += 512;
    scales += kPanelRows * kParts;
    mins += kPanelRows * kParts;
  }
  for (int t = 0; t < kTokens; ++t) V::store(sums + t * stride, sum[t]);
  ahead = next;
}

// Register tiles of V, by the number of their tokens.
template <class V, class Codes>
struct VectorTiles {
  static constexpr int kMost = Codes::kGroup == 32 ? V::kTileTokens32 : V::kTileTokens16;
  static constexpr int64_t kFewTokens = kMostFewTokens;  // that need no tiles
  static constexpr bool kSigned = false;
  using Act = ActTile<kMost, kPartsOf<Codes>>;

  KTX_INLINE void begin() {}
  KTX_INLINE void end() {}
  // The tile's tokens times the first `panels` panels of the scratch; the sums of token
  // t and panel r are at sums + t * stride + 16 * r.
  static void tile(int64_t tokens, const PanelScratch& scratch, int64_t panels, const Act& x,
                   int64_t count, float* sums, int64_t stride, Ahead& ahead) {
    for (int64_t r = 0; r < panels; ++r) {
      one<kMost>(tokens, scratch.panel(r), x, count, sums + r * kPanelRows, stride, ahead);
    }
  }

 private:
  template <int kTokens>
  static void one(int64_t tokens, const PanelChunk& w, const Act& x, int64_t count, float* sums,
                  int64_t stride, Ahead& ahead) {
    if (tokens == kTokens) {
      return panel_tile<V, Codes, kMost, kTokens>(w, x, count, sums, stride, ahead);
    }
    if constexpr (kTokens > 1) one<kTokens - 1>(tokens, w, x, count, sums, stride, ahead);
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
    if constexpr (Codes::kHasMin || Codes::kOffset != 0) ahead.add(x.sum + 2 * first, 4 * count);
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
  __builtin_memset(scratch.sums, 0, static_cast<size_t>(tokens * kStride) * sizeof(float));
  for (int64_t first = 0; first < blocks; first += kChunkBlocks) {
    const int64_t count = blocks - first < kChunkBlocks ? blocks - first : kChunkBlocks;
    for (int64_t r = 0; r < panels; ++r) {
      unpack_panel<V, Codes, Tiles::kSigned>(PanelPlace<Codes>(a, p + r), first, count,
                                             scratch.panel(r));
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of almost the same size: 32 tokens are 11 + 11 + 10.
      const int64_t begin = tokens * tile / tiles, size = tokens * (tile + 1) / tiles - begin;
      copy_activations<Codes, Tiles::kMost>(a, i + begin, size, first, count, act);
      Ahead ahead(scratch.lines);
      const int64_t after = tokens * (tile + 2) / tiles;  // of the tile that follows
      if (tile + 1 < tiles) {
        ask_for_activations<Codes>(a, i + begin + size, after - begin - size, first, count, ahead);
      }
      const bool last = first + count == blocks;
      if (last) ask_for_outputs(a, p, panels, i + begin, size, ahead);
      ask_for_words<Codes>(a, p, panels, first, tile, tiles, ahead);
      ahead.spread(panels * count);
      Tiles::tile(size, scratch, panels, act, count, scratch.sums + begin * kStride, kStride,
                  ahead);
      for (int64_t t = begin; last && t < begin + size; ++t) {
        for (int64_t r = 0; r < panels; ++r) {
          store_rows<V>(a, i + t, p + r, V::load(scratch.sums + t * kStride + r * kPanelRows));
        }
      }
    }
  }
}

template <class V, class Codes, class Tiles = VectorTiles<V, Codes>>
void panel_product(const MatmulArgs& a) {
  if (a.tokens == 0 || a.row_begin >= a.row_end) return;
  if (a.tokens == 1) return panel_direct<V, Codes, 1>(a, 0);
  if (a.tokens == 2) return panel_direct<V, Codes, 2>(a, 0);
  if (a.tokens <= Tiles::kFewTokens) return panel_few<V, Codes>(a, 0, a.tokens);
  Tiles::begin();
  const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows;
  for (int64_t i = 0; i < a.tokens; i += kChunkTokens) {
    const int64_t tokens = a.tokens - i < kChunkTokens ? a.tokens - i : kChunkTokens;
    for (int64_t p = a.row_begin / kPanelRows; p < end; p += kChunkPanels) {
      const int64_t panels = end - p < kChunkPanels ? end - p : kChunkPanels;
      panel_block<V, Codes, Tiles>(a, p, panels, i, tokens);
    }
  }
  Tiles::end();
}

}  // namespace
}  // namespace ktx::kernels
