// The activations of 2 to 32 tokens as the products of a batch (marlin_skinny.cuh) take them:
// made once by a small kernel, not by every block of every product.
//
// A record per 256 columns, in one piece, so that a block brings it by one bulk copy:
//
//   halves   [chunk of 32 columns][8 tokens of columns][lane] 16 bytes: B fragments of
//            mma.m16n8k16, a power of two per token and record taken out, so no value overflows
//   sums     [8 tokens of columns][lane] 8 bytes: of the halves of each chunk, as two halves
//            (the sum, and what it lost), B fragments too: for the minima of Q4_K and Q5_K
//   scales   a float per token
//
// Behind the records, the sums of squares of the plain x: [record][32 tokens], where a norm is
// taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/cuda_stream.h"
#include "lib/support/result.h"

namespace ktx::kernels {

constexpr int kBatchTokens = 32;

// columns: groups of eight tokens, 1, 2 or 4.
constexpr int batch_columns(int64_t tokens) {
  return tokens > 16 ? 4 : tokens > 8 ? 2 : 1;
}
constexpr int batch_record_bytes(int columns) {
  return columns * (4096 + 256 + 32);
}
constexpr int64_t batch_squares_offset(int64_t tokens, int64_t cols) {
  return (cols + 255) / 256 * batch_record_bytes(batch_columns(tokens));
}
constexpr int64_t skinny_x_bytes(int64_t tokens, int64_t cols) {
  return (batch_squares_offset(tokens, cols) + (cols + 255) / 256 * kBatchTokens * 4 + 255) / 256 *
         256;
}

struct BatchXArgs {
  const float* x = nullptr;  // [tokens, cols], 16-byte aligned, stride a multiple of 4
  int64_t x_stride = 0;
  int64_t tokens = 0;
  int64_t cols = 0;             // a multiple of 4
  const float* norm = nullptr;  // [cols], 16-byte aligned: x times it is taken; or null
  std::byte* out = nullptr;     // skinny_x_bytes(tokens, cols), 16-byte aligned
};
Status launch_batch_x(const BatchXArgs& args, CudaStream stream);

}  // namespace ktx::kernels
