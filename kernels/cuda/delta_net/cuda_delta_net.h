// The two ops of a gated delta net that have a state, on a GPU. Equations: CausalConvAttrs and
// DeltaRuleAttrs (lib/ops/step_attrs.h); scalar reference: kernels/delta_net.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/cuda/common/cuda_texts.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"

namespace ktx::kernels {

struct CudaCausalConvArgs {
  const float* x = nullptr;  // [T, channels]
  int64_t x_stride = 0;
  float* y = nullptr;  // likewise; not x
  int64_t y_stride = 0;
  const float* weight = nullptr;  // [channels, taps]
  const float* bias = nullptr;    // [channels]; null: none
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

// For one token of each text, a delta net from its convolution to its gate: launch_causal_conv,
// launch_delta_rule over its y, rms_norm of the heads, glu(gate, .), by one launch (sm_90). y is
// the rule's. Where gpu_delta_step_takes (kernels/gpu/gpu_limits.h); states and the convolution's
// weight begin at multiples of 16 bytes.
struct CudaDeltaStepArgs {
  CudaCausalConvArgs conv;      // without y
  CudaDeltaRuleArgs rule;       // without x; texts.one_token_each
  const float* norm = nullptr;  // [head_dim]
  float eps = 0;
  const float* gate = nullptr;  // [T, value_heads * head_dim]
  int64_t gate_stride = 0;
  GluAttrs glu;
};
Status launch_delta_step(const CudaDeltaStepArgs& args, CudaStream stream);

}  // namespace ktx::kernels
