// What attention over chosen positions, blocks or entries gives on the CPU, whole or in spans.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {

// y [tokens, heads, value_dim] of all tokens and heads of `a`: in one call, or (spans > 0) a token
// at a time by at most so many spans, which are merged.
inline std::vector<float> attend(AttentionArgs a, Isa isa, const char* family, int32_t spans = 0) {
  std::vector<float> y(static_cast<size_t>(a.token_end * a.attrs.heads * a.attrs.value_dim), -7);
  a.y = y.data();
  a.y_stride = a.attrs.heads * a.attrs.value_dim;
  a.head_end = a.attrs.heads;
  AlignedBytes scratch(attention_scratch_bytes(a.attrs));
  a.scratch = scratch.data();
  const AttentionFn run = *find_attention(family, isa);
  if (spans == 0) {
    run(a);
    return y;
  }
  a.spans = spans;
  std::vector<float> partials(static_cast<size_t>(a.token_end * a.attrs.heads * a.spans *
                                                  attention_partial_floats(a.attrs)));
  a.partials = partials.data();
  const int64_t tokens = a.token_end;
  for (int64_t t = 0; t < tokens; ++t) {
    a.token_begin = t, a.token_end = t + 1;
    a.part = AttentionPart::OneSpan;
    for (a.span = 0; a.span <= a.kv.position[t] / kAttentionSpan; ++a.span) run(a);
    a.part = AttentionPart::Merge;
    run(a);
  }
  return y;
}

}  // namespace ktx::kernels
