// Products of one token (of experts: of few) with marlin weights: what marlin_gemv_*.cuh are asked.
//
//   OneProduct p;                              // q, k and v of the normalised x
//   p.cols = 4096, p.x = x, p.norm = weight, p.eps = 1e-5f;
//   p.parts = 3, p.rows[0] = {DType::Q4_K, {q}}, ...
//   KTX_TRY(launch_marlin_gemv(p, stream));
//
// x may be taken through an RMS norm first: the factor of the row is applied to the sums, so
// no block waits for it. What is done how often (`work`):
//
//   Heads    `count` times: head h has matrix h, x + h * x_stride, y + h * y_stride
//   Pairs    `count` pairs (token, expert) in the order of group_experts: x row pair / x_div,
//            y row pair
//   Choices  `count` tokens: the top_k experts of each, which every block chooses itself from
//            the logits (router); x row t, y row t * top_k + k for choice k of token t
//   Sum      `count` tokens: y row t = sum over the choices of token t, in rising expert number,
//            of their weight times the product of x row t * top_k + k
//
// A shared expert is a further choice of each token, the last one of its sum (OneShared).
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_limits.h"

namespace ktx::kernels {

// Rows of one matrix, or of gate and up: then y = glu(gate . x, up . x).
struct OneRows {
  DType dtype = DType::Q4_K;
  const uint8_t* w[2] = {};  // the second: up
  int64_t matrix_bytes = 0;  // from one head or expert to the next
  int64_t strip_bytes = 0;
  int row_begin = 0, row_count = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  const float* bias[2] = {};  // of each matrix of w, or null
  int64_t bias_stride = 0;    // elements from one expert's to the next
  GluAttrs glu;
  bool accumulate = false;

  __host__ __device__ int strip_begin() const { return row_begin / 16; }
  __host__ __device__ int strips() const {
    return (row_begin + row_count + 15) / 16 - strip_begin();
  }
};

enum class OneWork { Heads, Pairs, Choices, Sum };

// An expert of every token, of the format and shape of the others.
struct OneShared {
  const uint8_t* w[2] = {};  // as in OneRows; null: there is none
  float* h = nullptr;        // [tokens, its rows]: what Choices writes and Sum reads
  int64_t h_stride = 0;
  // Its weight is the sigmoid of gate . x; null: 1. Choices writes the score, Sum reads it.
  const float* gate = nullptr;  // [cols of Choices], 16-byte aligned
  float* score = nullptr;
  int64_t score_stride = 0;
};

struct OneProduct {
  OneRows rows[kLaunchProducts];
  int parts = 1;  // of at most two formats that go together (one_formats)
  int cols = 0;
  const float* x = nullptr;  // 16-byte aligned, x_stride a multiple of 4
  int64_t x_stride = 0;
  const float* norm = nullptr;  // [cols], 16-byte aligned, or null; Heads with count 1 only
  float eps = 0;
  OneWork work = OneWork::Heads;
  int count = 1;
  // Pairs
  const int32_t* order = nullptr;
  const int32_t* offsets = nullptr;
  int32_t* places = nullptr;  // where each pair stands in order; or null
  int experts = 0, x_div = 1;
  // Choices: logits, bias, attrs, and where ids and weights go. Sum: ids, weights, attrs.
  CudaRouterArgs router;
  // Sum: the kernel ahead is that of Choices which writes ids and weights; it does so before it
  // lets this one start, so that weights are asked for while it still runs.
  bool ids_ahead = false;
  OneShared shared;
  // Choices of a token, with the shared expert.
  __host__ __device__ int choices() const {
    return static_cast<int>(router.attrs.top_k) + (shared.w[0] != nullptr);
  }
};

Status launch_marlin_gemv(const OneProduct& product, CudaStream stream);

// Whether x of `rows` rows fits in shared memory beside tiles of the format.
bool marlin_gemv_fits(DType dtype, int64_t cols, int rows);
// Whether one launch takes products of these formats.
bool one_formats(DType a, DType b);

}  // namespace ktx::kernels
