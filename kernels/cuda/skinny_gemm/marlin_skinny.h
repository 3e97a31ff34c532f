// Products of a batch of 2 to 32 tokens with marlin weights (sm_90): what the kernel
// (marlin_skinny.cuh) is asked.
//
//   BatchProduct p;                          // q, k and v of the normalised x
//   p.cols = 4096, p.tokens = 16, p.x = records (skinny_x.h), p.norm = true, p.eps = 1e-5f;
//   p.parts = 3, p.rows[0] = {DType::Q4_K, {q}}, ...
//   KTX_TRY(launch_marlin_skinny(p, stream));
#pragma once

#include <cstddef>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/gpu/gpu_limits.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// Rows of one matrix, or of gate and up: then y = glu(gate . x, up . x).
struct BatchRows {
  DType dtype = DType::Q4_K;
  const uint8_t* w[2] = {};  // the second: up; all parts of a product have it, or none
  int64_t strip_bytes = 0;
  int row_count = 0;
  float* y = nullptr;  // [tokens, row_count]
  int64_t y_stride = 0;
  const float* bias = nullptr;  // of one matrix
  GluAttrs glu;
  bool accumulate = false;

  __host__ __device__ int strips() const { return (row_count + 15) / 16; }
};

struct BatchProduct {
  BatchRows rows[kLaunchProducts];
  int parts = 1;  // of at most two formats that go together (batch_formats)
  int cols = 0;
  int tokens = 0;                // 2 to 32
  const std::byte* x = nullptr;  // of launch_batch_x
  bool norm = false;             // x came through a norm's weight: the factor is put to the sums
  float eps = 0;
  // For launch_skinny_bytes, instead of x and norm: [tokens, cols], and [cols] or null; both
  // 16-byte aligned, with a stride that is a multiple of 4.
  const float* plain_x = nullptr;
  int64_t x_stride = 0;
  const float* norm_weight = nullptr;
};

Status launch_marlin_skinny(const BatchProduct& product, CudaStream stream);

// 2 to 8 tokens, activations as they are (marlin_skinny_bytes.cuh); takes() says whether it does.
bool skinny_bytes_takes(const BatchProduct& product);
Status launch_skinny_bytes(const BatchProduct& product, CudaStream stream);

// Whether this GPU has the kernel, and whether one launch takes products of these formats.
bool marlin_skinny_runs();
bool batch_formats(DType a, DType b);

}  // namespace ktx::kernels
