// The ragged batch of one pass: tokens of one or more sequences of different lengths, without
// padding.
//
//   ids       [T]  token ids                 position [T]  place in its sequence
//   sequence  [T]  index in tables           tables        block table per sequence and kind of
//                                                          blocks (kv_pools.h)
//   text_end  [T]  the last position of its sequence in the pass; of a token of an image
//   (sees_ahead)
//                  the image's, of other tokens beside one their own
//   output_rows [R]  which of the T rows need logits, rising
//   hidden  [T, width]  of plans that read them: the hidden states that come with the tokens, or
//   the
//                       rows of images, one behind the other
//   given_row [T]  of plans that take images: which of those rows is the token's; -1: none
//   axes  [T] each, of plans that read them: the three positions of a token (TokenAxis)
//   columns  of a tower: the patches of a line of its image, whose patches are the tokens; 0: none
//   best        [R]  how many of the best logits are enough; -1, or no array: all of them
//   filter      [R]  if set, only tokens it allows are considered
//
// The arrays are allocated once for the largest step; kernels read them in place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lib/ops/step_attrs.h"
#include "lib/program/sequence_kind.h"
#include "lib/runtime/lora/lora_choice.h"
#include "lib/runtime/sampling/token_filter.h"

namespace ktx::runtime {

// Where the fixed-size states of a text go behind so many of the pass's tokens.
struct StateOut {
  int64_t tokens = 0;
  int32_t slot = -1;  // in the pool (cache/state_pool.h), and its memory
  float* data = nullptr;
  bool snapshot = false;
};
// The states of a sequence before the pass (none if it has no tokens yet), and those after some
// of its tokens, by rising number; the last ones are after all of them.
struct SequenceState {
  int32_t in_slot = -1;
  const float* in = nullptr;
  std::vector<StateOut> outs;
};

// Rows, one after the other, of texts with the same adapters.
struct LoraRun {
  int64_t first = 0, rows = 0;
  const LoraChoice* choice = nullptr;
};

struct Batch {
  int64_t tokens = 0;   // T
  int64_t outputs = 0;  // R
  std::vector<int32_t> ids;
  std::vector<int32_t> position;
  std::vector<int32_t> sequence;
  std::vector<int32_t> text_end;
  std::vector<int32_t> output_rows;
  std::vector<float> hidden;
  std::vector<int32_t> given_row;
  std::array<std::vector<int32_t>, kTokenAxes> axes;
  int64_t columns = 0;
  bool sees_ahead = false;  // attention reads up to text_end, also where it is causal otherwise
  std::vector<int32_t> best;
  std::vector<TokenFilter*> filter;
  // Called before filters are queried, once the step has been started.
  std::function<void()> before_filters;
  program::ByBlockKind<std::vector<std::byte* const*>> tables;
  std::vector<SequenceState> states;  // per sequence; of no meaning where a model has none
  // By RowKind; rows without adapters are in no run.
  std::array<std::vector<LoraRun>, 3> lora_runs;
  // Which experts of a streamed part a device computes where the CPU and a GPU share them
  // (lib/program/joint_experts.h): the GPU's or the rest; All: any other part.
  enum class Experts { All, OfGpu, Rest } experts = Experts::All;
  int64_t joint_tokens = 0;

  const std::vector<int32_t>& axis(TokenAxis axis) const { return axes[static_cast<size_t>(axis)]; }
  int64_t rows(RowKind kind) const {
    return kind == RowKind::Token ? tokens : kind == RowKind::Output ? outputs : 1;
  }
};

// Tokens of one sequence, adjacent and in rising positions.
struct SequenceRun {
  int64_t first = 0, tokens = 0;
  int64_t positions = 0;  // the last one's position + 1
};

// A pass with at most so many tokens is decode: it waits for the weights, not for arithmetic. How
// steps cut their work, and what a GPU fuses, changes here; which kernel computes a product does
// not (kernels/matmul/matmul.def).
inline constexpr int64_t kDecodeTokens = 16;

}  // namespace ktx::runtime
