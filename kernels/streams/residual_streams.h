// Hyper-connections: a residual stream of several rows, which parts of a layer read as a sum and to
// which they give back (StreamWeightsAttrs in lib/ops/step_attrs.h has the weights).
//
//   stream_weights     weights = [pre | post | comb] of a row of mixes
//   collapse_streams   y[h] = sum over s of weights[s] * x[s][h]
//   altup_weights      weights = [post | comb] of a row of coefficients (AltUpWeightsAttrs)
//   attend_streams     y[h] = sum over s of share[s] * x[s][h] (AttendStreamsAttrs)
//   dot_streams        y[s] = factor * sum over h of a[s][h] * b[s][h]
//   mix_streams        y[d][h] = post[d] * part[h] + sum over s of comb[s][d] * x[s][h],
//                      weights = [post | comb], comb row by row; of weights = post that sum is
//                      x[d][h]
//
// Sums rise over s and are F32 (weights: double, rounded once at the end); an output depends on its
// own row alone. weights may be mixes, y of mix_streams x. The shares of attend_streams are made in
// double of F32 sums, its first stream comes last.
//
// Hyper-connections: Zhu et al. 2024 (arXiv 2409.19606); with matrices of Sinkhorn and Knopp as in
// DeepSeek-V4. AltUp: Baykal et al. 2023 (arXiv 2301.13310), as in Gemma 3n. Attention residuals:
// Kimi Team 2026 (arXiv 2603.15031), in blocks of layers as in Kimi-K3.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/ops/step_attrs.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

struct StreamWeightsArgs {
  const float* mixes = nullptr;  // [T, attrs.width()]
  int64_t mixes_stride = 0;      // elements
  const float* scale = nullptr;  // [attrs.scales()]
  const float* base = nullptr;   // [attrs.width()]
  float* y = nullptr;            // [T, attrs.width()]
  int64_t y_stride = 0;
  int64_t width = 0;  // attrs.width()
  StreamWeightsAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using StreamWeightsFn = void (*)(const StreamWeightsArgs&);

struct AltUpWeightsArgs {
  const float* coefs = nullptr;  // [T, attrs.coefs()]
  int64_t coefs_stride = 0;      // elements
  float* y = nullptr;            // [T, attrs.width()]
  int64_t y_stride = 0;
  int64_t width = 0;  // attrs.width()
  AltUpWeightsAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using AltUpWeightsFn = void (*)(const AltUpWeightsArgs&);

struct CollapseStreamsArgs {
  const float* x = nullptr;  // [T, streams * width]
  int64_t x_stride = 0;
  const float* weights = nullptr;  // [T, streams]
  int64_t weights_stride = 0;
  float* y = nullptr;  // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;
  int32_t streams = 1;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using CollapseStreamsFn = void (*)(const CollapseStreamsArgs&);

struct MixStreamsArgs {
  const float* x = nullptr;  // [T, streams * part_width]
  int64_t x_stride = 0;
  const float* part = nullptr;  // [T, part_width]
  int64_t part_stride = 0;
  const float* weights = nullptr;  // [T, streams * (streams + 1)], or [T, streams]
  int64_t weights_stride = 0;
  bool keeps = false;  // there is post alone
  float* y = nullptr;  // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;    // of all streams
  int32_t streams = 1;  // at most kMaxStreams
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using MixStreamsFn = void (*)(const MixStreamsArgs&);

struct DotStreamsArgs {
  const float* a = nullptr;  // [T, width * row_width]
  int64_t a_stride = 0;
  const float* b = nullptr;  // likewise
  int64_t b_stride = 0;
  float* y = nullptr;  // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;      // streams
  int64_t row_width = 0;  // of one
  float factor = 1;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using DotStreamsFn = void (*)(const DotStreamsArgs&);

struct AttendStreamsArgs {
  const float* x[kMaxStreams] = {};  // each [T, width]
  int64_t x_stride[kMaxStreams] = {};
  int32_t streams = 1;           // at most kMaxStreams
  const float* score = nullptr;  // [width]
  float* y = nullptr;            // [T, width]
  int64_t y_stride = 0;
  int64_t width = 0;
  AttendStreamsAttrs attrs;
  int64_t token_begin = 0;
  int64_t token_end = 0;
};
using AttendStreamsFn = void (*)(const AttendStreamsArgs&);

// Families: "stream_weights", "altup_weights", "collapse_streams", "mix_streams",
// "attend_streams", "dot_streams".
Result<StreamWeightsFn> find_stream_weights(std::string_view family, Isa isa);
Result<AltUpWeightsFn> find_altup_weights(std::string_view family, Isa isa);
Result<CollapseStreamsFn> find_collapse_streams(std::string_view family, Isa isa);
Result<MixStreamsFn> find_mix_streams(std::string_view family, Isa isa);
Result<AttendStreamsFn> find_attend_streams(std::string_view family, Isa isa);
Result<DotStreamsFn> find_dot_streams(std::string_view family, Isa isa);

}  // namespace ktx::kernels
