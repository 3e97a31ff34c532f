// Products of activations with packed weights, the bulk of all work.
//
//   for i in [0, tokens), n in [row_begin, row_end):
//     v = sum over k of x[x_row(i)][k] * w[n][k]
//     if (bias)        v += bias[n]
//     if (token_scale) v *= token_scale[pair(i)]
//     y[y_row(i)][n] = accumulate ? y[y_row(i)][n] + v : v
//
//   pair(i)  = index ? index[i] : i
//   x_row(i) = pair(i) / x_div        y_row(i) = pair(i) / y_div
//
// Index and divisors serve experts: a pair number is token * top_k + choice, so
// gate and up read x_row = pair / top_k and write y_row = pair, and down reads
// x_row = pair and adds to y_row = pair / top_k. When several i of one call have
// the same y_row they are done in rising i.
//
// Families (names stored in plans; no instruction set in them):
//   matmul_rows_f32  float activations, every dtype. Weights are decoded exactly to
//                    F32 and multiplied in F32.
//   matmul_rows_bf16 BF16 weights; activations are rounded to BF16 (to nearest even) and
//                    multiplied in pairs, sums in F32.
//   matmul_rows_q8   int8 activations (lib/formats/act_q8.h), quantised dtypes.
//   matmul_panel16_* the same of weights in layout panel16, matmul_panel16s_* in panel16s.
//   matmul_panel16_tile_bf16  weights rounded to BF16 (panel_bf16_weights.h) and BF16
//                    activations (lib/formats/act_bf16.h), sums in F32 in the order of
//                    TDPBF16PS (matmul_panel_tile_bf16_loop.h): all variants, also the scalar
//                    one, have the same bits. For the formats of panel16.def.
//
// Numerics: the order of accumulation of an output depends on its weight row and K
// alone: never on tokens, index, row range, thread or the values of other rows.
// So a token gets the same bits alone and among others. The vector variants agree
// with each other bit for bit (kernels/simd/README.md); the scalar one accumulates
// in double.
//
// Preconditions (the compiler and the runtime see to them): cols > 0 is a multiple
// of the dtype's block; y overlaps no input but itself; x and y are 4-byte aligned,
// xq and scratch 64-byte aligned; weights need no alignment. Bytes of weights may
// be anything. Kernels do not allocate, lock, log or fail, and any number of
// threads may run on disjoint row ranges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/ops/step_ops.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

// A matrix of rows x cols weights: row r starts at data + r * row_bytes.
struct WeightMatrix {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  Layout layout = Layout::Rows;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;
};

struct MatmulArgs {
  WeightMatrix w;
  const float* x = nullptr;       // rows_f32: activation rows
  int64_t x_stride = 0;           // elements between rows of x
  const std::byte* xq = nullptr;  // rows_q8, tile_bf16: activation rows in that form
  int64_t xq_stride = 0;          // bytes between rows of xq
  int64_t tokens = 0;             // number of products i
  const int32_t* index = nullptr;
  int32_t x_div = 1;
  int32_t y_div = 1;
  float* y = nullptr;
  int64_t y_stride = 0;                // elements between rows of y
  const float* bias = nullptr;         // [rows] or null
  const float* token_scale = nullptr;  // by pair number, or null
  bool accumulate = false;
  bool compact_y = false;  // output (i, n) goes to y[i * y_stride + n - row_begin]
  int64_t row_begin = 0;   // of w, and columns of y
  int64_t row_end = 0;
  // Rows like [row_begin, row_end) that a call soon will read, or null: a hint.
  const std::byte* next = nullptr;
  std::byte* scratch = nullptr;  // matmul_scratch_bytes(cols) bytes, one per thread
  // The call before on this scratch was of the same kernel with the same activations and tokens:
  // what it made of them there may be used again.
  bool x_kept = false;
};

// A kernel for a range of numbers of tokens (matmul.def).
using MatmulFn = void (*)(const MatmulArgs&);
inline constexpr int64_t kAnyTokens = INT64_MAX;

// The kernels of a family for a dtype, one for each range of tokens:
//
//   const MatmulKernel kernel = KTX_TRY(find_matmul("matmul_panel16_q8", DType::Q4_K, isa));
//   kernel.describe()   // "1: matmul_panel16_q8_gemv_avx512, 2: ..., 17-: ..."
//   kernel(args)        // the one for args.tokens, which may be 0
//
// Plain data, safe to copy and to call from any number of threads.
class MatmulKernel {
 public:
  struct Range {
    int64_t least = 0;
    int64_t most = 0;
    MatmulFn run = nullptr;
    std::string_view name;  // of the selector
  };
  static constexpr size_t kMostRanges = 6;

  MatmulKernel() = default;
  // Ranges that rise from 1 token to kAnyTokens without a gap, at most kMostRanges.
  explicit MatmulKernel(std::span<const Range> ranges);

  std::span<const Range> ranges() const { return {ranges_.data(), count_}; }
  MatmulFn of(int64_t tokens) const;
  void operator()(const MatmulArgs& args) const;
  std::string describe() const;

 private:
  std::array<Range, kMostRanges> ranges_{};
  size_t count_ = 0;
};

// The transposed product (MLA with an unsplit attn_kv_b, whose quant blocks lie
// along n):
//
//   y[i][n] = sum over k in rising order of x[i][k] * w[row_begin + k][n]
//             for k in [0, row_count), n in [col_begin, col_end)
//
// One F32 accumulator per output. col_begin is a multiple of kTransposedCols, and
// col_end too or equal to cols.
struct MatmulTransposedArgs {
  WeightMatrix w;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;  // elements
  int64_t tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;  // elements
  int64_t col_begin = 0;
  int64_t col_end = 0;
  std::byte* scratch = nullptr;  // matmul_scratch_bytes(cols) bytes
};
using MatmulTransposedFn = void (*)(const MatmulTransposedArgs&);
inline constexpr int64_t kTransposedCols = 256;

// Rows per work item that make good use of one call: a multiple of 16, about 64 KiB
// of weights for few tokens, less for many (so that threads share evenly). Any
// range is right; this one is fast.
int64_t matmul_chunk_rows(const WeightMatrix& w, int64_t tokens);

// For at most so many tokens a product is a stream of weights, whose items the runtime makes
// longer (lib/runtime/cpu/ops/row_runs.h).
inline constexpr int64_t kStreamTokens = 2;

// Tokens per work item: a kernel that unpacks weights does so once for each item, or, with
// BF16 activations (`input`), for each 64 tokens.
int64_t matmul_chunk_tokens(const WeightMatrix& w, int64_t tokens, ValueType input = ValueType::Q8);

// Asks for the first lines of rows from `row` on, a product of which comes next.
void prefetch_rows(const WeightMatrix& w, int64_t row);

// Scratch per thread for any family and dtype.
int64_t matmul_scratch_bytes(int64_t cols);

// The best variant of `family` for `dtype` that `isa` can run. Fails when the
// family is unknown or has no variant for the dtype.
Result<MatmulKernel> find_matmul(std::string_view family, DType dtype, Isa isa);
Result<MatmulTransposedFn> find_matmul_transposed(std::string_view family, DType dtype, Isa isa);

// Whether matmul_rows_q8 takes this dtype (every block format; not F32, F16, BF16).
bool matmul_q8_takes(DType dtype);

}  // namespace ktx::kernels
