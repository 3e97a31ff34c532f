// The products of a mixture-of-experts layer, made of matmul calls.
//
// `order` and `offsets` come from group_experts: the pairs of expert e are
// order[offsets[e], offsets[e + 1]), rising.
//
//   experts_gate_up: h[pair] = act(gate_e . x[pair / top_k] * gate_factor_e + gate_bias_e)
//                              * (up_e . x[pair / top_k] * up_factor_e + up_bias_e)  (GluAttrs)
//   experts_down:    y[pair / top_k] (+)= weights[pair] * (down_e . h[pair] + bias_e),
//                    in rising e: a fixed order of the sum for every token
//                    by_pair: y[pair] = the same terms, each in a row of its own
//
// Work items: gate_up (expert with pairs) x (range of rows); down a range of rows,
// all experts. Disjoint items may run at once.
#pragma once

#include "kernels/matmul/matmul.h"
#include "kernels/rows/rows.h"

namespace ktx::kernels {

struct ExpertsArgs {
  int64_t tokens = 0;  // T
  int32_t top_k = 0;
  int32_t experts = 0;
  const int32_t* order = nullptr;    // [T * top_k]
  const int32_t* offsets = nullptr;  // [experts + 1]
  std::byte* scratch = nullptr;      // experts_scratch_bytes(cols) bytes, one per thread
};

// One matrix of each expert: side by side, or each at a place of its own.
struct ExpertMatrices {
  WeightMatrix first;  // of expert 0; of others `data` differs
  int64_t expert_bytes = 0;
  const std::byte* const* places = nullptr;  // [experts], or null: expert_bytes apart

  const std::byte* data(int32_t expert) const {
    return places ? places[expert] : first.data + expert * expert_bytes;
  }
  WeightMatrix of(int32_t expert) const {
    WeightMatrix matrix = first;
    matrix.data = data(expert);
    return matrix;
  }
};

struct ExpertsGateUpArgs {
  ExpertsArgs experts;
  ExpertMatrices gate, up;
  const MatmulKernel* gate_kernel = nullptr;
  const MatmulKernel* up_kernel = nullptr;
  RowsFn glu_fn = nullptr;
  GluAttrs glu;
  const float* gate_bias = nullptr;  // [experts, rows of gate], or none
  const float* up_bias = nullptr;
  const float* gate_factors = nullptr;  // [experts], or none
  const float* up_factors = nullptr;
  const float* x = nullptr;  // one row per token (see MatmulArgs)
  int64_t x_stride = 0;
  const std::byte* xq = nullptr;
  int64_t xq_stride = 0;
  const std::byte* next = nullptr;  // rows of gate that the next call will read, or null
  float* h = nullptr;               // one row per pair
  int64_t h_stride = 0;             // elements between pairs
};

struct ExpertsDownArgs {
  ExpertsArgs experts;
  ExpertMatrices down;
  const MatmulKernel* down_kernel = nullptr;
  const float* h = nullptr;  // one row per pair
  int64_t h_stride = 0;
  const std::byte* hq = nullptr;
  int64_t hq_stride = 0;
  const float* weights = nullptr;  // [T * top_k]
  const float* bias = nullptr;     // [experts, rows of down], or none
  float* y = nullptr;
  int64_t y_stride = 0;  // elements between tokens, with by_pair between pairs
  bool accumulate = false;
  bool by_pair = false;
};

// Rows [row_begin, row_end) of gate and up for one expert's pairs; row_end -
// row_begin at most kExpertsMaxRows.
inline constexpr int64_t kExpertsMaxRows = 4096;
void experts_gate_up(const ExpertsGateUpArgs& args, int32_t expert, int64_t row_begin,
                     int64_t row_end);

// Rows [row_begin, row_end) of down for all pairs; row_begin is a multiple of 16.
void experts_down(const ExpertsDownArgs& args, int64_t row_begin, int64_t row_end);

// Scratch per thread; cols: the larger of the columns of gate, up and down.
int64_t experts_scratch_bytes(int64_t cols);

}  // namespace ktx::kernels
