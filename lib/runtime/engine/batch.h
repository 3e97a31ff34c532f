// The ragged batch of one pass: tokens of one or more sequences of different lengths, without
// padding.
//
//   ids       [T]  token ids                 position [T]  place in its sequence
//   sequence  [T]  index in tables           tables        block table per sequence, and one of
//                                                          the window pool (kv_pools.h)
//   output_rows [R]  which of the T rows need logits, rising
//   best        [R]  how many of the best logits are enough; -1, or no array: all of them
//   filter      [R]  not null: the best of those that it allows
//
// The arrays are allocated once for the largest step; kernels read them in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lib/formats/step_ops.h"
#include "lib/runtime/sampling/token_filter.h"

namespace ktx::runtime {

// The fixed-size states of a sequence (cache/state_pool.h): before the pass, null when it has no
// tokens yet, and where they go.
struct SequenceState {
  const float* in = nullptr;
  float* out = nullptr;
};

struct Batch {
  int64_t tokens = 0;   // T
  int64_t outputs = 0;  // R
  std::vector<int32_t> ids;
  std::vector<int32_t> position;
  std::vector<int32_t> sequence;
  std::vector<int32_t> output_rows;
  std::vector<int32_t> best;
  std::vector<TokenFilter*> filter;
  // Called before filters are queried, once the step has been started.
  std::function<void()> before_filters;
  std::vector<std::byte* const*> tables;
  std::vector<std::byte* const*> window_tables;
  std::vector<SequenceState> states;  // per sequence

  int64_t rows(RowKind kind) const {
    return kind == RowKind::Token ? tokens : kind == RowKind::Output ? outputs : 1;
  }
};

// A pass with at most so many tokens is decode: it waits for the weights, not for arithmetic. How
// steps cut their work, and what a GPU fuses, changes here; which kernel computes a product does
// not (kernels/matmul/matmul.def).
inline constexpr int64_t kDecodeTokens = 16;

inline constexpr int kBatchClasses = 4;

// Which of a step's kernels serves so many rows: 1, 2-16, 17-256, more.
constexpr int batch_class(int64_t rows) {
  return rows <= 1 ? 0 : rows <= kDecodeTokens ? 1 : rows <= 256 ? 2 : 3;
}

}  // namespace ktx::runtime
