// The two ops of a gated delta net that have a state, on a GPU. Equations: CausalConvAttrs and
// DeltaRuleAttrs (lib/ops/step_attrs.h); scalar reference: kernels/delta_net.
//
// States are in slots of one piece of memory, read before and written behind the segments of a
// text (state_segment.h). A slot that is written is read by no text of the same launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/delta_net/state_segment.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

// The texts of a launch. All but `texts`, `most_tokens` and `one_token_each` is in GPU memory.
struct CudaTexts {
  const int32_t* begin = nullptr;  // [texts + 1]: segments [begin[i], begin[i + 1]) are text i's
  const StateSegment* segments = nullptr;
  int64_t texts = 0;            // those behind the pass's own have no segments
  int64_t most_tokens = 0;      // no text has more
  bool one_token_each = false;  // row i is text i's: of texts without segments y becomes zeros
};

// The states of one step.
struct CudaStates {
  float* slots = nullptr;   // that of slot 0
  int64_t slot_floats = 0;  // from slot to slot
};

struct CudaCausalConvArgs {
  const float* x = nullptr;  // [T, channels]
  int64_t x_stride = 0;
  float* y = nullptr;  // likewise; not x
  int64_t y_stride = 0;
  const float* weight = nullptr;  // [channels, taps]
  CudaTexts texts;
  CudaStates states;
  CausalConvAttrs attrs;
};
Status launch_causal_conv(const CudaCausalConvArgs& args, CudaStream stream);

// The rows of a text in a pass, and the position of the first of them.
struct TextRows {
  int32_t first = 0, tokens = 0, position = 0;
};

// gpu_delta_rule_takes(head_dim) (kernels/gpu/gpu_limits.h); rows of x and y begin at multiples of
// 16 bytes, and so do the state of every slot and, by channel, dt_bias and rows of a.
//
// With `rows`, `position` and a workspace, a launch takes chunks of 64 tokens that begin at
// multiples of 64 positions on tensor cores where it can (heads of 128 with one decay each, on
// Hopper), and the tokens before the first whole chunk and behind the last one by one. Results then
// depend, by rounding, on whether a pass begins or ends inside a chunk; neither on how many chunks
// it has, nor on other texts, nor on segments. Token by token they depend on nothing of this.
struct CudaDeltaRuleArgs {
  const float* x = nullptr;  // [T, q | k | v]
  int64_t x_stride = 0;
  const float* b = nullptr;  // [T, value_heads], or [T, 2 * value_heads] without a
  int64_t b_stride = 0;
  const float* a = nullptr;  // [T, attrs.decays()] or null
  int64_t a_stride = 0;
  float* y = nullptr;  // [T, value_heads * head_dim]
  int64_t y_stride = 0;
  const float* decay = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [attrs.decays()]
  CudaTexts texts;
  CudaStates states;
  DeltaRuleAttrs attrs;
  std::span<const TextRows> rows;     // of the host, of each text; empty: token by token
  const int32_t* position = nullptr;  // [T], of each row
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};
// For a launch with `rows` of so many tokens together; bounded.
int64_t cuda_delta_rule_workspace(const DeltaRuleAttrs& attrs, int64_t tokens);
Status launch_delta_rule(const CudaDeltaRuleArgs& args, CudaStream stream);

}  // namespace ktx::kernels
