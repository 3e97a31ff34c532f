// Sums of streams over a vector policy (simd/README.md): 16 numbers of every stream at once.
// Included by streams_<isa>.cc only.
#pragma once

#include "kernels/norm/rms_norm_loop.h"
#include "kernels/streams/residual_streams.h"
#include "kernels/streams/stream_shares.h"

namespace ktx::kernels {
namespace {

// Calls op(h, n) for each 16 numbers of a row, and for the n that are left.
template <class Op>
KTX_INLINE void each16(int64_t width, const Op& op) {
  int64_t h = 0;
  for (; h + 16 <= width; h += 16) op(h, 16);
  if (h < width) op(h, width - h);
}
template <class V>
KTX_INLINE typename V::F load_some(const float* p, int64_t n) {
  return n == 16 ? V::load(p) : V::load_part(p, n);
}
template <class V>
KTX_INLINE void store_some(float* p, int64_t n, typename V::F v) {
  if (n == 16) return V::store(p, v);
  V::store_part(p, n, v);
}

template <class V>
void collapse_streams(const CollapseStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* weights = a.weights + t * a.weights_stride;
    const float* x = a.x + t * a.x_stride;
    each16(
        a.width, [&](int64_t h, int64_t n) __attribute__((always_inline)) {
          auto sum = V::zero();
          for (int64_t s = 0; s < a.streams; ++s) {
            sum = V::fma(V::set1(weights[s]), load_some<V>(x + s * a.width + h, n), sum);
          }
          store_some<V>(a.y + t * a.y_stride + h, n, sum);
        });
  }
}

template <class V>
void mix_streams(const MixStreamsArgs& a) {
  const int64_t streams = a.streams, width = a.width / streams;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* post = a.weights + t * a.weights_stride;
    const float* comb = post + streams;
    const float* x = a.x + t * a.x_stride;
    each16(
        width, [&](int64_t h, int64_t n) __attribute__((always_inline)) {
          typename V::F row[kMaxStreams];
          for (int64_t s = 0; s < streams; ++s) row[s] = load_some<V>(x + s * width + h, n);
          const auto part = load_some<V>(a.part + t * a.part_stride + h, n);
          for (int64_t d = 0; d < streams; ++d) {
            auto sum = V::mul(V::set1(post[d]), part);
            if (a.keeps) sum = V::add(sum, row[d]);
            for (int64_t s = 0; s < streams && !a.keeps; ++s) {
              sum = V::fma(V::set1(comb[s * streams + d]), row[s], sum);
            }
            store_some<V>(a.y + t * a.y_stride + d * width + h, n, sum);
          }
        });
  }
}

template <class V>
KTX_INLINE float product_of(const float* x, const float* w, int64_t n) {
  auto sum = V::zero();
  each16(
      n, [&](int64_t h, int64_t count) __attribute__((always_inline)) {
        sum = V::fma(load_some<V>(x + h, count), load_some<V>(w + h, count), sum);
      });
  return V::sum(sum);
}

template <class V>
void dot_streams(const DotStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t s = 0; s < a.width; ++s) {
      a.y[t * a.y_stride + s] =
          a.factor * product_of<V>(a.a + t * a.a_stride + s * a.row_width,
                                   a.b + t * a.b_stride + s * a.row_width, a.row_width);
    }
  }
}

template <class V>
void attend_streams(const AttendStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    StreamShares shares;
    for (int32_t s = 0; s < a.streams; ++s) {
      const float* x = a.x[s] + t * a.x_stride[s];
      const float mean = sum_of_squares<V>(x, a.width) / static_cast<float>(a.width);
      shares.add(mean, product_of<V>(x, a.score, a.width), a.attrs.eps);
    }
    shares.finish();
    each16(
        a.width, [&](int64_t h, int64_t n) __attribute__((always_inline)) {
          auto sum = V::zero();
          for (int32_t s = a.streams; s-- > 0;) {
            const auto x = load_some<V>(a.x[s] + t * a.x_stride[s] + h, n);
            sum = V::fma(V::set1(shares.of(s)), x, sum);
          }
          store_some<V>(a.y + t * a.y_stride + h, n, sum);
        });
  }
}

}  // namespace
}  // namespace ktx::kernels
