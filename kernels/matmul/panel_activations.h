// What a token brings to products with panels: codes as they lie (lib/formats/act_q8.h), and,
// made ready from its scales and sums of codes,
//
//   center[b]  what a sum of products starts at: the bits of 1.5 * 2^(23 - n) for a group of 32
//              columns b whose scale is shared * 2^-n. Sums of products are added to these
//              bits, and then, read as a float, they are that number plus sum * 2^-n, exactly
//              for sums below 2^22: a scale for 32 columns, for one subtraction.
//   shared[g]  of 128 columns
//   part       what goes with the minimum, or what an offset of the codes adds to a sum
//
// A copy of 32 columns of all tokens of a tile side by side is an ActTile.
// Included by matmul_panel_loop.h only.
#pragma once

#include <bit>

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

// Groups of 32 columns that share a scale.
constexpr int64_t kSharedBlocks = kActQ8Shared / kActQ8Group;

// Sums of products in 32 columns: with two scales there are two.
template <class Codes>
constexpr int kPartsOf = 32 / Codes::kGroup;

// For 32 columns. With a float as minimum: 2^-n * sum of q. With a minimum in steps: two values
// 8 * 2^-n * sum of q (of each half, or of two groups of 32 in every second part), rounded to
// whole numbers. They are whole up to n = 3, and an eighth of the largest scale is little beside
// its roundings. With an offset: where sums start that the offset adds to.
union ActPart {
  float sum;
  int16_t sums[2];
  int32_t start;
};

struct ActParts {
  float* center;
  float* shared;
  ActPart* part[2];
};

// Where sums of part g of group b start, as bits: where they stand, and they.
template <class Codes, int g, class Parts>
KTX_ALWAYS_INLINE inline const void* sum_start_at(const Parts& x, int64_t b) {
  if constexpr (Codes::kOffset != 0) return &x.part[g][b];
  return x.center + b;
}
template <class Codes, int g, class Parts>
KTX_ALWAYS_INLINE inline int32_t sum_start(const Parts& x, int64_t b) {
  int32_t bits;
  __builtin_memcpy(&bits, sum_start_at<Codes, g>(x, b), sizeof bits);
  return bits;
}
// The two numbers that meet steps `index` of the minima.
template <class Parts>
KTX_ALWAYS_INLINE inline int32_t step_pair(const Parts& x, int64_t index) {
  return std::bit_cast<int32_t>(x.part[0][index]);
}

// Rows are padded to so many groups of 32, and made ready by so many: twice four that share a
// scale.
constexpr int64_t kReadyBlocks = 8;
typedef int32_t Int8 __attribute__((vector_size(32)));
typedef float Float8 __attribute__((vector_size(32)));
typedef int16_t Short8 __attribute__((vector_size(16)));

// Lane i is lane i ^ kBit of x. (g++ 11 has no __builtin_shufflevector, clang no
// __builtin_shuffle.)
template <int kBit>
KTX_ALWAYS_INLINE inline Int8 swap_lanes(Int8 x) {
#ifdef __clang__
  return __builtin_shufflevector(x, x, 0 ^ kBit, 1 ^ kBit, 2 ^ kBit, 3 ^ kBit, 4 ^ kBit, 5 ^ kBit,
                                 6 ^ kBit, 7 ^ kBit);
#else
  return __builtin_shuffle(x, Int8{0, 1, 2, 3, 4, 5, 6, 7} ^ kBit);
#endif
}

template <class Eight>
KTX_ALWAYS_INLINE inline void put(void* out, Eight eight) {
  __builtin_memcpy(out, &eight, sizeof eight);
}

// Groups [first, first + count) of a row, in eights (whose last ones may be the row's padding);
// first is a multiple of eight.
template <class Codes>
KTX_ALWAYS_INLINE inline void act_parts(const PanelActRow& x, int64_t first, int64_t count,
                                        const ActParts& out) {
  constexpr bool kHalves = Codes::kGroup == 16;
  for (int64_t b = 0; b < count; b += kReadyBlocks) {
    Int8 scale, sums;
    __builtin_memcpy(&scale, x.scale + first + b, sizeof scale);
    __builtin_memcpy(&sums, x.sum + 2 * (first + b), sizeof sums);
    // Among numbers that are all at least 0, or all NaN, the largest has the largest bits.
    const Int8 beside = swap_lanes<1>(scale);
    const Int8 twos = scale > beside ? scale : beside;
    const Int8 others = swap_lanes<2>(twos);
    const Int8 shared = twos > others ? twos : others;
    const Int8 down = shared - scale;  // n, in the exponent's place
    const Int8 center = 0x4B400000 - down;
    put(out.center + b, center);
    put(out.shared + b / kSharedBlocks, shared[0]);
    put(out.shared + b / kSharedBlocks + 1, shared[4]);
    const Int8 begin = sums << 16 >> 16, end = sums >> 16;  // sums of 16 columns each
    if constexpr (Codes::kMin == PanelMin::Float) {
      const Float8 power = reinterpret_cast<Float8>(0x3F800000 - down);
      put(out.part[0] + b, power * __builtin_convertvector(begin + end, Float8));
    } else if constexpr (Codes::kMin == PanelMin::Steps) {
      // Masked, so that bits of any kind are no harm.
      const Int8 n = down >> 23 & kActQ8MostPower, half = (1 << n) >> 1;
      if constexpr (kHalves) {
        put(out.part[0] + b, ((8 * begin + half) >> n & 0xFFFF) | (8 * end + half) >> n << 16);
      } else {
        const Int8 both = (8 * (begin + end) + half) >> n;
        put(out.part[0] + b / 2, __builtin_convertvector(both, Short8));
      }
    } else if constexpr (kHalves && Codes::kOffset != 0) {
      put(out.part[0] + b, center - Codes::kOffset * begin);
      put(out.part[1] + b, center - Codes::kOffset * end);
    } else if constexpr (Codes::kOffset != 0) {
      put(out.part[0] + b, center - Codes::kOffset * (begin + end));
    }
  }
}

// A chunk of columns of a tile's tokens: 32 columns of all tokens stand together.
template <int kMost, int kBlocks>
struct ActTile {
  int8_t q[kBlocks][kMost][32];
  float center[kMost][kBlocks];
  float shared[kMost][kBlocks / kSharedBlocks];
  ActPart part[2][kMost][kBlocks];

  struct Token {
    const float* center;
    const float* shared;
    const ActPart* part[2];
  };
  KTX_ALWAYS_INLINE Token token(int64_t t) const {
    return {center[t], shared[t], {part[0][t], part[1][t]}};
  }
};

// Blocks [first, first + count) of tokens [i, i + tokens); the others stay as they were.
template <class Codes, int kMost, int kBlocks>
void copy_activations(const MatmulArgs& a, int64_t i, int64_t tokens, int64_t first, int64_t count,
                      ActTile<kMost, kBlocks>& out) {
  for (int64_t t = 0; t < tokens; ++t) {
    const PanelActRow x(a, i + t);
    const int8_t* q = x.q + 32 * first;
    for (int64_t b = 0; b < count; ++b) __builtin_memcpy(out.q[b][t], q + 32 * b, 32);
    act_parts<Codes>(x, first, count,
                     {out.center[t], out.shared[t], {out.part[0][t], out.part[1][t]}});
  }
}

}  // namespace
}  // namespace ktx::kernels
