// The ops on rows of activations: embedding, given rows, norms, rope, squares of rows and the row
// ops. Equations: kernels/embed, norm, rope, rows. Each output depends on its own row alone.
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/marlin/cuda_weight.h"
#include "kernels/norm/row_statistics.h"
#include "kernels/rows/rows.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// y[t] = table[ids[t]]; an id outside of [0, rows) gives zeros.
struct CudaEmbedArgs {
  CudaWeight table;
  const int32_t* ids = nullptr;  // [T]
  int64_t tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};
Status launch_embed(const CudaEmbedArgs& args, CudaStream stream);

// What comes with the pass: y[t] = rows[row[t]], or y[t] += where it adds; y[t] stays where
// row[t] < 0.
struct CudaGivenRowsArgs {
  const float* rows = nullptr;
  int64_t row_stride = 0;
  const int32_t* row = nullptr;  // [T]; null: row t is the t-th
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;
  int64_t tokens = 0;
  bool adds = false;
};
Status launch_given_rows(const CudaGivenRowsArgs& args, CudaStream stream);

// kernels/embed/embed_grid.h; a table in rows.
struct CudaEmbedGridArgs {
  CudaWeight table;
  int64_t side = 1;
  const int32_t* line = nullptr;    // [T]
  const int32_t* column = nullptr;  // [T]
  const int32_t* grid = nullptr;    // [2] columns and lines
  int64_t tokens = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};
Status launch_embed_grid(const CudaEmbedGridArgs& args, CudaStream stream);

// kernels/rows/pool_rows.h; first[t] < 0 is padding, which stays.
struct CudaPoolRowsArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t width = 0;               // of x
  const int32_t* first = nullptr;  // [R]
  const int32_t* grid = nullptr;   // columns
  int64_t tokens = 0;              // rows of y
  PoolRowsAttrs attrs;
};
Status launch_pool_rows(const CudaPoolRowsArgs& args, CudaStream stream);

struct CudaRmsNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* weight = nullptr;    // [width / groups]
  int64_t weight_step = 0;          // from a group's weights to the next one's, where they differ
  const float* residual = nullptr;  // y = residual + the norm of x; null: y = the norm of x
  int64_t residual_stride = 0;
  float* y = nullptr;  // may be x or the residual
  int64_t y_stride = 0;
  int64_t width = 0;  // all groups together
  int64_t tokens = 0;
  RmsNormAttrs attrs;
};
Status launch_rms_norm(const CudaRmsNormArgs& args, CudaStream stream);

struct CudaLayerNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [width / groups]
  int64_t weight_step = 0;        // likewise
  const float* bias = nullptr;    // [width / groups], or none
  float* y = nullptr;             // may be x
  int64_t y_stride = 0;
  int64_t width = 0;  // all groups together
  int64_t tokens = 0;
  LayerNormAttrs attrs;
};
Status launch_layer_norm(const CudaLayerNormArgs& args, CudaStream stream);

struct CudaRopeArgs {
  const float* x = nullptr;  // [T, heads * head_dim]
  int64_t x_stride = 0;
  float* y = nullptr;  // [T, heads * y_head_dim]; x, or no overlap
  int64_t y_stride = 0;
  const float* inv_freq = nullptr;  // [rotary_dim / 2]
  static constexpr int kMostPairs = 256;
  const int32_t* position[kTokenAxes] = {};  // [T] each, by TokenAxis; of a text the first alone
  uint8_t axis[kMostPairs] = {};             // by pair: which of them it turns by
  int64_t tokens = 0;
  RopeAttrs attrs;
};
Status launch_rope(const CudaRopeArgs& args, CudaStream stream);

// Arguments, with pointers to the GPU's memory: kernels/norm/row_statistics.h.
Status launch_match_rms(const MatchRmsArgs& args, CudaStream stream);
Status launch_gaussian_topk(const GaussianTopKArgs& args, CudaStream stream);

// The launcher of a row op (kernels/rows/row_ops.def); null: another op.
using LaunchRows = Status (*)(const RowsArgs&, CudaStream);
LaunchRows find_cuda_rows(StepOp op);

}  // namespace ktx::kernels
