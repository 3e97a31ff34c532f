// GEMV and skinny GEMM (decode): packed panels times 1 or 2 tokens (accumulators in registers)
// or some more (accumulators in memory). Each packed word is loaded once and used for all tokens.
// Included by matmul_panel_loop.h only.
#pragma once

#include "kernels/matmul/panel_activations.h"
#include "lib/target/stream_prefetch.h"

namespace ktx::kernels {
namespace {

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

// A token's row and what is made ready of it, in scratch.
template <class Codes>
struct SkinnyToken {
  const int8_t* q;
  ActParts parts;
  static constexpr int64_t kArrays = 1 + kPartsOf<Codes>;  // of a number for each block

  SkinnyToken() = default;
  SkinnyToken(const MatmulArgs& a, int64_t i, std::byte* scratch) {
    const int64_t blocks = a.w.cols / 32, ready = ready_blocks(blocks);
    float* numbers = reinterpret_cast<float*>(scratch);
    ActPart* part = reinterpret_cast<ActPart*>(numbers + ready);
    parts = {numbers, numbers + kArrays * ready, {part, part + (kArrays - 2) * ready}};
    const PanelActRow x(a, i);
    q = x.q;
    act_parts<Codes>(x, 0, blocks, parts);
  }
  static int64_t bytes(int64_t blocks) {
    const int64_t ready = ready_blocks(blocks);
    return (4 * (kArrays * ready + ready / kSharedBlocks) + 63) / 64 * 64;
  }

 private:
  static int64_t ready_blocks(int64_t blocks) {
    return (blocks + kReadyBlocks - 1) / kReadyBlocks * kReadyBlocks;
  }
};

// The dot products of block b of a token with the codes of 16 rows.
template <class V, class Codes>
KTX_ALWAYS_INLINE inline void block_dots(typename V::I (&dots)[2], const typename V::I (&codes)[8],
                                         const SkinnyToken<Codes>& x, int64_t b) {
  constexpr int kParts = kPartsOf<Codes>;
  dots[0] = V::set1_i(sum_start<Codes, 0>(x.parts, b));
  dots[1] = kParts == 1 ? dots[0] : V::set1_i(sum_start<Codes, kParts - 1>(x.parts, b));
  each<8>([&](auto w) KTX_ALWAYS_INLINE {
    constexpr int g = kParts == 1 ? 0 : decltype(w)::value / 4;
    dots[g] = V::template dot<Codes::kLargest>(dots[g], codes[w.value], x.q + 32 * b + 4 * w.value);
  });
}

// A token's sum over the groups that share a scale so far, after block b more: its dot
// products, and scales and minima of the 16 rows.
template <class V, class Codes>
KTX_ALWAYS_INLINE inline typename V::F add_dots(typename V::F sum, const typename V::I (&dots)[2],
                                                typename V::F s0, typename V::F s1, typename V::F m,
                                                const SkinnyToken<Codes>& x, int64_t b) {
  const typename V::F center = V::set1(x.parts.center[b]);
  sum = V::fma(V::sub(V::as_float(dots[0]), center), s0, sum);
  if constexpr (kPartsOf<Codes> == 2) {
    sum = V::fma(V::sub(V::as_float(dots[1]), center), s1, sum);
  }
  if constexpr (Codes::kMin == PanelMin::Float) {
    sum = V::fnma(m, V::set1(x.parts.part[0][b].sum), sum);
  }
  return sum;
}

// Minima in steps of the groups that share a scale.
template <class V, class Codes>
struct GroupSteps {
  static constexpr bool kSteps = Codes::kMin == PanelMin::Steps;
  static constexpr int kBlocks = [] {
    if constexpr (kSteps) return Codes::kStepBlocks;
    return 1;
  }();
  static constexpr int kPairs = kSharedBlocks / kBlocks;
  typename V::I steps[kPairs];
  typename V::F step = V::zero();

  KTX_ALWAYS_INLINE GroupSteps() {
    for (int i = 0; i < kPairs; ++i) steps[i] = V::zero_i();
  }
  // What block `block` of a unit brings.
  KTX_ALWAYS_INLINE void keep(int block, typename V::I found, typename V::F each_step) {
    if constexpr (kSteps) {
      if (block % kBlocks == kBlocks - 1) steps[block % kSharedBlocks / kBlocks] = found;
      step = each_step;
    }
  }
  // A token's sum, after that of the groups up to block b.
  KTX_ALWAYS_INLINE typename V::F close(typename V::F sum, typename V::F group,
                                        const SkinnyToken<Codes>& x, int64_t b) const {
    const int64_t shared = b / kSharedBlocks;
    if constexpr (kSteps) {
      typename V::I all = V::zero_i();
      each<kPairs>([&](auto pair) KTX_ALWAYS_INLINE {
        all = V::dot_pair(all, steps[pair.value], step_pair(x.parts, kPairs * shared + pair.value));
      });
      group = V::fnma(step, V::to_float(all), group);
    }
    return V::fma(V::set1(x.parts.shared[shared]), group, sum);
  }
};

// Whether a unit's block is the last that shares a scale with those before it. (A constant
// where a unit has many.)
template <class Codes>
KTX_ALWAYS_INLINE inline bool closes_group(int64_t first, int block, int64_t blocks) {
  if constexpr (Codes::kUnit > 32) return block % kSharedBlocks == kSharedBlocks - 1;
  return first % kSharedBlocks == kSharedBlocks - 1 || first + 1 == blocks;
}

// What is asked for while a unit's words are in work.
//
// Where prefetchers follow a stream (stream_prefetch.h), what they do not fetch by themselves, as
// they follow it only to the end of a page: the first lines of the page that comes next, and of
// the rows that come after these. Asked for into the second cache: the first has room for some
// 20 lines on their way, which is less than memory needs to be kept busy (Zen 4: 14 of 22 GB/s).
// Unit by unit: a branch in each 32 columns costs Q4_K a fifth in small pages.
// kAlways: also of what the hardware follows across pages, which pays where a word takes long.
//
// Elsewhere every line, a fixed distance ahead, in bursts: one Zen 5 core that reads 36 GB/s has 35
// of Q4_K and Q6_K in bursts of 2 KiB, 31 where the burst is unrolled and 25 where a unit's blocks
// share it out.
template <class V, class Codes, bool kAlways = false>
class WordsAhead {
 public:
  KTX_ALWAYS_INLINE explicit WordsAhead(const MatmulArgs& a) : distance_(stream_prefetch_bytes()) {
    const int64_t end = (a.row_end + kPanelRows - 1) / kPanelRows * kPanelRows;
    end_ = reinterpret_cast<const uint8_t*>(a.w.data) + end * a.w.row_bytes;
    next_ = a.next ? reinterpret_cast<const uint8_t*>(a.next) : end_;
  }
  // While the unit at `words` is in work.
  KTX_ALWAYS_INLINE void ask(const uint8_t* words) {
    if (kPacked && distance_ > 0) {
      if (words >= due_) ask_for_all(words);
      return;
    }
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
  static constexpr int64_t kUnit = kUnitBytes<Codes>;
  static constexpr int kLines = (kUnit + (64 << kShift) - 1) / (64 << kShift);
  static constexpr int64_t kBurst = (2048 + kUnit - 1) / kUnit * kUnit;
  // Q4_K's loads, each once a unit, are followed across pages: asking costs it 3 to 8 %.
  static constexpr bool kFollowed = !kAlways && Codes::kUnit == 256 && Codes::kWords == 36;
  // Codes of a byte are loaded so fast that the processor itself sees far enough ahead (Q8_0).
  static constexpr bool kPacked = 64 * Codes::kWords < kPanelRows * Codes::kUnit;

  KTX_ALWAYS_INLINE void ask_for_all(const uint8_t* words) {
    const int64_t left = end_ - words;
    const uint8_t* line = left > distance_ ? words + distance_ : next_ + (distance_ - left);
    for (int64_t i = 0; i < kBurst; i += 64) V::prefetch(line + i);
    due_ = words + kBurst;
  }

  const int64_t distance_;
  const uint8_t* due_ = nullptr;  // the next burst
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

// sums[t] += the products of a unit whose words meet each of their blocks at once: a half of
// it, whose four blocks share an activation scale, after the other.
template <class V, class Codes, int kTokens>
KTX_ALWAYS_INLINE inline void add_unit_by_words(const uint8_t* words, int64_t first,
                                                const SkinnyToken<Codes> (&token)[kTokens],
                                                typename V::F (&sums)[kTokens]) {
  static_assert(kPartsOf<Codes> == 2 && Codes::kMin == PanelMin::None && kSharedBlocks == 4);
  typename V::I dots[kTokens][4][2];
  typename V::F group[kTokens];
  const auto dot = [&](auto block, auto word, typename V::I codes) KTX_ALWAYS_INLINE {
    constexpr int b = decltype(block)::value, w = decltype(word)::value, g = w / 4;
    for (int t = 0; t < kTokens; ++t) {
      const SkinnyToken<Codes>& x = token[t];
      typename V::I& sum = dots[t][b % 4][g];
      if constexpr (w % 4 == 0) sum = V::set1_i(sum_start<Codes, g>(x.parts, first + b));
      sum = V::template dot<Codes::kLargest>(sum, codes, x.q + 32 * (first + b) + 4 * w);
    }
  };
  const auto done = [&](auto block, typename V::F s0, typename V::F s1) KTX_ALWAYS_INLINE {
    constexpr int b = decltype(block)::value;
    for (int t = 0; t < kTokens; ++t) {
      const SkinnyToken<Codes>& x = token[t];
      if constexpr (b % 4 == 0) group[t] = V::zero();
      group[t] = add_dots<V, Codes>(group[t], dots[t][b % 4], s0, s1, s0, x, first + b);
      if constexpr (b % 4 == 3) {
        sums[t] = V::fma(V::set1(x.parts.shared[(first + b) / kSharedBlocks]), group[t], sums[t]);
      }
    }
  };
  Codes::by_words(words, dot, done);
}

// sums[t] += a panel's products with one or two tokens. `dots` has room for them all where
// scales come later.
template <class V, class Codes, int kTokens>
KTX_ALWAYS_INLINE inline void add_panel(const PanelPlace<Codes>& panel, int64_t panel_bytes,
                                        int64_t blocks, WordsAhead<V, Codes>& ahead,
                                        const SkinnyToken<Codes> (&token)[kTokens], std::byte* dots,
                                        typename V::F (&sums)[kTokens]) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr bool kLater = kScalesLater<Codes>;
  F group[kTokens];
  for (int t = 0; t < kTokens; ++t) group[t] = V::zero();
  GroupSteps<V, Codes> steps;
  const auto add_token = [&](int t, int64_t first, int block, const I(&found)[2], F s0, F s1,
                             F m) KTX_ALWAYS_INLINE {
    const int64_t b = first + block;
    group[t] = add_dots<V, Codes>(group[t], found, s0, s1, m, token[t], b);
    if (!closes_group<Codes>(first, block, blocks)) return;
    sums[t] = steps.close(sums[t], group[t], token[t], b);
    group[t] = V::zero();
  };
  const uint8_t* words = panel.words;
  const uint8_t* rest = panel.rest;
  for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
    // The hardware follows the words; the rest is a second stream, a line now and then.
    if constexpr (Codes::kRest > 0 && !kLater) V::prefetch(rest + panel_bytes);
    ahead.ask(words);
    if constexpr (kStreamed<Codes>) {
      add_unit_by_words<V, Codes, kTokens>(words, first, token, sums);
      words += kUnitBytes<Codes>;
      continue;
    }
    const auto add = [&](int block, const I(&codes)[8], F s0, F s1, F m,
                         I found_steps = V::zero_i(), F step = V::zero()) KTX_ALWAYS_INLINE {
      const int64_t b = first + block;
      steps.keep(block, found_steps, step);
      for (int t = 0; t < kTokens; ++t) {
        I found[2];
        block_dots<V, Codes>(found, codes, token[t], b);
        if constexpr (kLater) {
          V::store64(dots + (t * blocks + b) * 64, found[0]);
        } else {
          add_token(t, first, block, found, s0, s1, m);
        }
      }
    };
    Codes::unit(words, rest, add);
    words += kUnitBytes<Codes>;
    if constexpr (!kLater) rest += Codes::kRest;
  }
  if constexpr (kLater) {
    for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
      const auto add = [&](int block, const I(&)[8], F s0, F s1, F m) KTX_ALWAYS_INLINE {
        const int64_t b = first + block;
        for (int t = 0; t < kTokens; ++t) {
          const I found[2] = {V::load64(dots + (t * blocks + b) * 64), V::zero_i()};
          add_token(t, first, block, found, s0, s1, m);
        }
      };
      Codes::unit(panel.words, rest, add);  // of the words nothing is used
      rest += Codes::kRest;
    }
  }
}

template <class V, class Codes, int kTokens>
void panel_direct(const MatmulArgs& a) {
  const int64_t blocks = a.w.cols / 32, token_bytes = SkinnyToken<Codes>::bytes(blocks);
  SkinnyToken<Codes> token[kTokens];
  for (int t = 0; t < kTokens; ++t) token[t] = {a, t, a.scratch + t * token_bytes};
  std::byte* dots = a.scratch + kTokens * token_bytes;
  WordsAhead<V, Codes> ahead(a);
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
                                 token, dots, sums);
    for (int t = 0; t < kTokens; ++t) store_rows<V>(a, t, p, sums[t]);
  }
}

// ---- a few tokens

// Room for their rows and sums. No row of matmul.def may give more: matmul_test.cc calls each
// kernel with the most of its row.
constexpr int64_t kSkinnyTokensRoom = 16;
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
//
// A function of its own: inlined, its loops are laid out otherwise, and Q3_K takes 1.15 times as
// long with 16 tokens (Zen 4, g++ 12).
template <class V, class Codes>
__attribute__((noinline)) void panel_skinny(const MatmulArgs& a, int64_t i, int64_t tokens) {
  constexpr int64_t kLines = (kUnitBytes<Codes> / 2 + Codes::kUnit - 1) / Codes::kUnit;  // a block
  const int64_t blocks = a.w.cols / 32, token_bytes = SkinnyToken<Codes>::bytes(blocks);
  SkinnyToken<Codes> token[kSkinnyTokensRoom];
  struct alignas(64) Sum {
    float all[kPanelRows], group[kPanelRows];
  } sums[kSkinnyTokensRoom];
  for (int64_t t = 0; t < tokens; ++t) token[t] = {a, i + t, a.scratch + t * token_bytes};
  for (int64_t p = a.row_begin / kPanelRows; p * kPanelRows < a.row_end; ++p) {
    const PanelPlace<Codes> panel(a, p);
    const uint8_t* words = panel.words;
    const uint8_t* rest = panel.rest;
    for (int64_t t = 0; t < tokens; ++t) {
      V::store(sums[t].all, V::zero());
      V::store(sums[t].group, V::zero());
    }
    GroupSteps<V, Codes> steps;
    for (int64_t first = 0; first < blocks; first += Codes::kUnit / 32) {
      const uint8_t* ahead = words + kUnitsAhead * kUnitBytes<Codes>;
      if constexpr (Codes::kRest > 0) V::prefetch(rest + kPanelRows * a.w.row_bytes);
      Codes::unit(words, rest,
                  [&](int block, const typename V::I(&codes)[8], typename V::F s0, typename V::F s1,
                      typename V::F m, typename V::I found_steps = V::zero_i(),
                      typename V::F step = V::zero()) KTX_ALWAYS_INLINE {
                    const int64_t b = first + block;
                    each<kLines>([&](auto line) KTX_ALWAYS_INLINE {
                      V::prefetch(ahead + 64 * (block * kLines + line.value));
                    });
                    steps.keep(block, found_steps, step);
                    for (int64_t t = 0; t < tokens; ++t) {
                      typename V::I dots[2];
                      block_dots<V, Codes>(dots, codes, token[t], b);
                      typename V::F group = V::load(sums[t].group);
                      group = add_dots<V, Codes>(group, dots, s0, s1, m, token[t], b);
                      if (closes_group<Codes>(first, block, blocks)) {
                        const typename V::F all = V::load(sums[t].all);
                        V::store(sums[t].all, steps.close(all, group, token[t], b));
                        group = V::zero();
                      }
                      V::store(sums[t].group, group);
                    }
                  });
      words += kUnitBytes<Codes>;
      rest += Codes::kRest;
    }
    for (int64_t t = 0; t < tokens; ++t) store_rows<V>(a, i + t, p, V::load(sums[t].all));
  }
}

}  // namespace
}  // namespace ktx::kernels
