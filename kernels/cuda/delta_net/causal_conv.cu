// causal_conv on a GPU: a thread computes one channel of up to 16 tokens of a text, whose inputs
// are all there, so that tiles of tokens do not wait for each other. It moves bytes: with the usual
// four taps a thread keeps the last inputs in registers.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/delta_net/cuda_delta_net.h"

namespace ktx::kernels {
namespace {

constexpr int kThreads = 256;  // channels of a block
constexpr int kTile = 16;      // tokens of a block

// kTaps 0: as many as the attributes say. Blocks: (channels, texts, tiles of tokens).
template <int kTaps>
__global__ void __launch_bounds__(kThreads) causal_conv(CudaCausalConvArgs a) {
  begin_kernel();
  const int channels = a.attrs.channels, taps = kTaps > 0 ? kTaps : a.attrs.taps;
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int text = static_cast<int>(blockIdx.y), tile = static_cast<int>(blockIdx.z);
  if (c >= channels) return;
  const int begin = a.texts.begin[text], end = a.texts.begin[text + 1];
  if (begin == end) {
    if (a.texts.one_token_each && tile == 0) a.y[text * a.y_stride + c] = 0;
    return;
  }
  const StateSegment* const segments = a.texts.segments;
  const int first = segments[begin].first, past = taps - 1;
  const int tokens = segments[end - 1].first + segments[end - 1].tokens - first;
  const int in = segments[begin].in;
  const float* const state = in < 0 ? nullptr : a.states.slots + in * a.states.slot_floats + c;
  // The input of the text's token t in this pass, or before the pass (t < 0).
  const auto input = [&](int t) {
    if (t >= 0) return a.x[(int64_t{first} + t) * a.x_stride + c];
    return state ? state[int64_t{past + t} * channels] : 0.0f;
  };
  const float* const weight = a.weight + int64_t{c} * taps;
  const int from = tile * kTile, to = min(tokens, from + kTile);
  const float bias = a.bias != nullptr ? a.bias[c] : 0;
  const auto write = [&](int t, float sum) {
    a.y[(int64_t{first} + t) * a.y_stride + c] = a.attrs.plain != 0 ? sum : sum / (1 + expf(-sum));
  };
  if constexpr (kTaps > 0) {
    float w[kTaps], window[kTaps];  // the inputs of a token, the oldest first
#pragma unroll
    for (int j = 0; j < kTaps; ++j) w[j] = weight[j];
#pragma unroll
    for (int j = 1; j < kTaps; ++j) window[j] = input(from - kTaps + j);
#pragma unroll 4
    for (int t = from; t < to; ++t) {
#pragma unroll
      for (int j = 1; j < kTaps; ++j) window[j - 1] = window[j];
      window[kTaps - 1] = input(t);
      float sum = bias;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) sum = fmaf(w[j], window[j], sum);
      write(t, sum);
    }
  } else {
    for (int t = from; t < to; ++t) {
      float sum = bias;
      for (int j = 0; j < taps; ++j) sum = fmaf(weight[j], input(t - past + j), sum);
      write(t, sum);
    }
  }
  if (tile > 0) return;
  for (int s = begin; s < end; ++s) {
    const StateSegment segment = segments[s];
    float* const out = a.states.slots + segment.out * a.states.slot_floats + c;
    const int behind = segment.first + segment.tokens - first;
    for (int j = 0; j < past; ++j) out[int64_t{j} * channels] = input(behind - past + j);
  }
}

}  // namespace

Status launch_causal_conv(const CudaCausalConvArgs& a, CudaStream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(a.attrs.channels, kThreads)),
                  static_cast<unsigned>(a.texts.texts),
                  static_cast<unsigned>(ceil_div<int64_t>(a.texts.most_tokens, kTile)));
  return launch("causal_conv", a.attrs.taps == 4 ? causal_conv<4> : causal_conv<0>, grid, kThreads,
                0, stream, a);
}

}  // namespace ktx::kernels
