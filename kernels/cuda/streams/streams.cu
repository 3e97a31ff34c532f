// Residual streams (cuda_streams.h).
//
//   stream_weights, altup_weights   a thread a row: some ten numbers, which a matrix of four
//   streams
//                                   keeps in registers while it is normalised (40 short chains)
//   collapse_streams, mix_streams   a thread four columns of all streams of a row, or one column
//
// Roofline of the last two: bytes. mix_streams reads and writes every stream once.
#include "kernels/cuda/common/cuda_launch.cuh"
#include "kernels/cuda/common/four_floats.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/streams/cuda_streams.h"

namespace ktx::kernels {
namespace {

constexpr int kRowThreads = 32;
constexpr int kColumnThreads = 128;
constexpr int kFewStreams = 4;  // in registers

__device__ __forceinline__ float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}

// `count` vectors of n numbers, `step` from one number to the next and `next` from one vector to
// the next: each is divided by its sum and eps.
template <int kMost>
__device__ __forceinline__ void divide_by_sums(float (&comb)[kMost * kMost], int n, int step,
                                               int next, float eps) {
#pragma unroll
  for (int v = 0; v < kMost; ++v) {
    if (v >= n) break;
    float sum = eps;
#pragma unroll
    for (int i = 0; i < kMost; ++i) sum += i < n ? comb[v * next + i * step] : 0;
    const float inverse = 1 / sum;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (i < n) comb[v * next + i * step] *= inverse;
    }
  }
}

// kMost: streams at most; rows of comb are that far apart.
template <int kMost>
__global__ void __launch_bounds__(kRowThreads) stream_weights(StreamWeightsArgs a) {
  begin_kernel();
  const int64_t t = a.token_begin + blockIdx.x * kRowThreads + threadIdx.x;
  if (t >= a.token_end) return;
  const int n = a.attrs.streams;
  const float eps = a.attrs.eps;
  const float* mixes = a.mixes + t * a.mixes_stride;
  float* y = a.y + t * a.y_stride;
  const auto bent = [&](int i, int kind) { return fmaf(mixes[i], a.scale[kind], a.base[i]); };
  // (y may be mixes: all of a row is read first.)
  float pre[kMost], post[kMost], comb[kMost * kMost];
  const bool all = a.attrs.iterations > 0;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i >= n) break;
    pre[i] = bent(i, 0);
    if (!all) continue;
    post[i] = bent(n + i, 1);
#pragma unroll
    for (int d = 0; d < kMost; ++d) comb[i * kMost + d] = d < n ? bent((2 + i) * n + d, 2) : 0;
  }
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i < n) y[i] = sigmoid(pre[i]) + eps;
  }
  if (!all) return;
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i < n) y[n + i] = 2 * sigmoid(post[i]);
  }
#pragma unroll
  for (int row = 0; row < kMost; ++row) {
    if (row >= n) break;
    float* r = comb + row * kMost;
    float largest = r[0], sum = 0;
#pragma unroll
    for (int i = 1; i < kMost; ++i) largest = i < n ? fmaxf(largest, r[i]) : largest;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      if (i < n) sum += r[i] = expf(r[i] - largest);
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) r[i] = r[i] / sum + eps;
  }
  divide_by_sums<kMost>(comb, n, kMost, 1, eps);
#pragma unroll 1
  for (int i = 1; i < a.attrs.iterations; ++i) {
    divide_by_sums<kMost>(comb, n, 1, kMost, eps);
    divide_by_sums<kMost>(comb, n, kMost, 1, eps);
  }
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
    if (s >= n) break;
#pragma unroll
    for (int d = 0; d < kMost; ++d) {
      if (d < n) y[(2 + s) * n + d] = comb[s * kMost + d];
    }
  }
}

__global__ void __launch_bounds__(kRowThreads) altup_weights(AltUpWeightsArgs a) {
  begin_kernel();
  const int64_t t = a.token_begin + blockIdx.x * kRowThreads + threadIdx.x;
  if (t >= a.token_end) return;
  const int n = a.attrs.streams;
  const bool corrects = a.attrs.corrects != 0;
  const float* coefs = a.coefs + t * a.coefs_stride;
  float* post = a.y + t * a.y_stride;
  for (int d = 0; d < n; ++d) post[d] = corrects ? 1 + coefs[d] : 0;
  for (int s = 0; s < n; ++s) {
    for (int d = 0; d < n; ++d) {
      const float others = !corrects ? coefs[d * n + s] : s == a.attrs.active ? -post[d] : 0.0f;
      post[n + s * n + d] = others + (s == d ? 1.0f : 0.0f);
    }
  }
}

// kEach columns of a row: one or four.
template <int kEach>
__device__ __forceinline__ void load_columns(const float* p, float (&v)[kEach]) {
  if constexpr (kEach == 4) {
    const float4 all = load4(p);
    v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
  } else {
    v[0] = p[0];
  }
}
template <int kEach>
__device__ __forceinline__ void store_columns(float* p, const float (&v)[kEach]) {
  if constexpr (kEach == 4) {
    store4(p, {v[0], v[1], v[2], v[3]});
  } else {
    p[0] = v[0];
  }
}

// The first column of this thread.
template <int kEach>
__device__ __forceinline__ int first_column() {
  return (static_cast<int>(blockIdx.x) * kColumnThreads + static_cast<int>(threadIdx.x)) * kEach;
}

template <int kEach>
__global__ void __launch_bounds__(kColumnThreads) collapse_streams(CollapseStreamsArgs a) {
  begin_kernel();
  const int64_t t = a.token_begin + blockIdx.y;
  const int h = first_column<kEach>();
  if (h >= a.width) return;
  const float* x = a.x + t * a.x_stride + h;
  const float* weights = a.weights + t * a.weights_stride;
  float sum[kEach] = {};
#pragma unroll 4
  for (int s = 0; s < a.streams; ++s) {
    float v[kEach];
    load_columns<kEach>(x + s * a.width, v);
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum[e] = fmaf(weights[s], v[e], sum[e]);
  }
  store_columns<kEach>(a.y + t * a.y_stride + h, sum);
}

// (y may be x: all streams are read before one is written.)
template <int kMost, int kEach>
__global__ void __launch_bounds__(kColumnThreads) mix_streams(MixStreamsArgs a) {
  begin_kernel();
  const int n = a.streams, width = static_cast<int>(a.width) / n, h = first_column<kEach>();
  const int64_t t = a.token_begin + blockIdx.y;
  if (h >= width) return;
  const float* post = a.weights + t * a.weights_stride;
  const float* comb = post + n;
  float x[kMost][kEach], part[kEach];
#pragma unroll
  for (int s = 0; s < kMost; ++s) {
    if (s < n) load_columns<kEach>(a.x + t * a.x_stride + s * width + h, x[s]);
  }
  load_columns<kEach>(a.part + t * a.part_stride + h, part);
#pragma unroll
  for (int d = 0; d < kMost; ++d) {
    if (d >= n) break;
    float sum[kEach];
#pragma unroll
    for (int e = 0; e < kEach; ++e) sum[e] = post[d] * part[e];
#pragma unroll
    for (int s = 0; s < kMost; ++s) {
      if (s >= n) break;
#pragma unroll
      for (int e = 0; e < kEach; ++e) sum[e] = fmaf(comb[s * n + d], x[s][e], sum[e]);
    }
    store_columns<kEach>(a.y + t * a.y_stride + d * width + h, sum);
  }
}

dim3 row_grid(int64_t rows) {
  return dim3(static_cast<unsigned>(ceil_div<int64_t>(rows, kRowThreads)));
}
dim3 column_grid(int64_t columns, int each, int64_t rows) {
  return dim3(static_cast<unsigned>(ceil_div<int64_t>(columns, kColumnThreads * each)),
              static_cast<unsigned>(rows));
}
Status check_streams(const char* op, int32_t streams) {
  if (streams <= kMaxStreams) return {};
  return Error{std::string(op) + ": " + std::to_string(streams) + " streams, at most " +
               std::to_string(kMaxStreams)};
}

}  // namespace

Status launch_stream_weights(const StreamWeightsArgs& a, CudaStream stream) {
  KTX_TRY(check_streams("stream_weights", a.attrs.streams));
  const bool few = a.attrs.streams <= kFewStreams;
  return launch("stream_weights", few ? stream_weights<kFewStreams> : stream_weights<kMaxStreams>,
                row_grid(a.token_end - a.token_begin), kRowThreads, 0, stream, a);
}

Status launch_altup_weights(const AltUpWeightsArgs& a, CudaStream stream) {
  return launch("altup_weights", altup_weights, row_grid(a.token_end - a.token_begin), kRowThreads,
                0, stream, a);
}

Status launch_collapse_streams(const CollapseStreamsArgs& a, CudaStream stream) {
  const bool four = four_floats_at_a_time({a.x, a.y}, {a.x_stride, a.y_stride, a.width});
  return launch("collapse_streams", four ? collapse_streams<4> : collapse_streams<1>,
                column_grid(a.width, four ? 4 : 1, a.token_end - a.token_begin), kColumnThreads, 0,
                stream, a);
}

Status launch_mix_streams(const MixStreamsArgs& a, CudaStream stream) {
  KTX_TRY(check_streams("mix_streams", a.streams));
  const int64_t width = a.width / a.streams;
  const bool few = a.streams <= kFewStreams;
  const bool four = few && four_floats_at_a_time({a.x, a.part, a.y},
                                                 {a.x_stride, a.part_stride, a.y_stride, width});
  return launch("mix_streams",
                four  ? mix_streams<kFewStreams, 4>
                : few ? mix_streams<kFewStreams, 1>
                      : mix_streams<kMaxStreams, 1>,
                column_grid(width, four ? 4 : 1, a.token_end - a.token_begin), kColumnThreads, 0,
                stream, a);
}

}  // namespace ktx::kernels
