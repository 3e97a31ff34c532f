// Hyper-connections and AltUp number by number. The weights have this variant alone: some hundred
// numbers a row, and double makes the repeated normalisation plain.
#include <algorithm>
#include <cmath>

#include "kernels/streams/residual_streams.h"
#include "kernels/streams/stream_shares.h"

namespace ktx::kernels {

void stream_weights_scalar(const StreamWeightsArgs& a);
void altup_weights_scalar(const AltUpWeightsArgs& a);
void collapse_streams_scalar(const CollapseStreamsArgs& a);
void mix_streams_scalar(const MixStreamsArgs& a);
void attend_streams_scalar(const AttendStreamsArgs& a);
void dot_streams_scalar(const DotStreamsArgs& a);

namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// `count` vectors of n numbers, `step` from one number to the next and `next` from one vector to
// the next: each is divided by its sum and eps.
void divide_by_sums(double* comb, int64_t n, int64_t step, int64_t next, double eps) {
  for (int64_t v = 0; v < n; ++v) {
    double sum = eps;
    for (int64_t i = 0; i < n; ++i) sum += comb[v * next + i * step];
    for (int64_t i = 0; i < n; ++i) comb[v * next + i * step] /= sum;
  }
}

// The logits of a matrix become one whose rows and columns have sums of nearly 1.
void normalise(double* comb, int64_t n, int32_t iterations, double eps) {
  for (int64_t row = 0; row < n; ++row) {
    double* r = comb + row * n;
    const double largest = *std::max_element(r, r + n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += r[i] = std::exp(r[i] - largest);
    for (int64_t i = 0; i < n; ++i) r[i] = r[i] / sum + eps;
  }
  divide_by_sums(comb, n, n, 1, eps);
  for (int32_t i = 1; i < iterations; ++i) {
    divide_by_sums(comb, n, 1, n, eps);
    divide_by_sums(comb, n, n, 1, eps);
  }
}

void weigh(const StreamWeightsArgs& a, const float* mixes, float* weights) {
  const int64_t n = a.attrs.streams;
  const auto bent = [&](int64_t i, int64_t kind) {
    return double{mixes[i]} * a.scale[kind] + a.base[i];
  };
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = static_cast<float>(sigmoid(bent(i, 0)) + a.attrs.eps);
  }
  if (a.attrs.iterations == 0) return;
  for (int64_t i = n; i < 2 * n; ++i) weights[i] = static_cast<float>(2 * sigmoid(bent(i, 1)));
  double comb[kMaxStreams * kMaxStreams];
  for (int64_t i = 0; i < n * n; ++i) comb[i] = bent(2 * n + i, 2);
  normalise(comb, n, a.attrs.iterations, a.attrs.eps);
  for (int64_t i = 0; i < n * n; ++i) weights[2 * n + i] = static_cast<float>(comb[i]);
}

}  // namespace

void stream_weights_scalar(const StreamWeightsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    weigh(a, a.mixes + t * a.mixes_stride, a.y + t * a.y_stride);
  }
}

void altup_weights_scalar(const AltUpWeightsArgs& a) {
  const int64_t n = a.attrs.streams;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* coefs = a.coefs + t * a.coefs_stride;
    float* post = a.y + t * a.y_stride;
    float* comb = post + n;
    for (int64_t d = 0; d < n; ++d) post[d] = a.attrs.corrects != 0 ? 1 + coefs[d] : 0;
    for (int64_t s = 0; s < n; ++s) {
      for (int64_t d = 0; d < n; ++d) {
        const float others = a.attrs.corrects == 0 ? coefs[d * n + s]
                             : s == a.attrs.active ? -post[d]
                                                   : 0;
        comb[s * n + d] = others + (s == d ? 1.0f : 0.0f);
      }
    }
  }
}

void collapse_streams_scalar(const CollapseStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* weights = a.weights + t * a.weights_stride;
    for (int64_t h = 0; h < a.width; ++h) {
      float sum = 0;
      for (int64_t s = 0; s < a.streams; ++s) {
        sum += weights[s] * a.x[t * a.x_stride + s * a.width + h];
      }
      a.y[t * a.y_stride + h] = sum;
    }
  }
}

void mix_streams_scalar(const MixStreamsArgs& a) {
  const int64_t n = a.streams, width = a.width / n;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    const float* post = a.weights + t * a.weights_stride;
    const float* comb = post + n;
    for (int64_t h = 0; h < width; ++h) {
      float x[kMaxStreams];
      for (int64_t s = 0; s < n; ++s) x[s] = a.x[t * a.x_stride + s * width + h];
      for (int64_t d = 0; d < n; ++d) {
        float sum = post[d] * a.part[t * a.part_stride + h];
        if (a.keeps) sum += x[d];
        for (int64_t s = 0; s < n && !a.keeps; ++s) sum += comb[s * n + d] * x[s];
        a.y[t * a.y_stride + d * width + h] = sum;
      }
    }
  }
}

void dot_streams_scalar(const DotStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t s = 0; s < a.width; ++s) {
      const float* const x = a.a + t * a.a_stride + s * a.row_width;
      const float* const y = a.b + t * a.b_stride + s * a.row_width;
      double sum = 0;
      for (int64_t h = 0; h < a.row_width; ++h) sum += double{x[h]} * y[h];
      a.y[t * a.y_stride + s] = static_cast<float>(sum * a.factor);
    }
  }
}

void attend_streams_scalar(const AttendStreamsArgs& a) {
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    StreamShares shares;
    for (int32_t s = 0; s < a.streams; ++s) {
      const float* x = a.x[s] + t * a.x_stride[s];
      double squares = 0, product = 0;
      for (int64_t h = 0; h < a.width; ++h) {
        squares += double{x[h]} * x[h];
        product += double{x[h]} * a.score[h];
      }
      shares.add(squares / static_cast<double>(a.width), product, a.attrs.eps);
    }
    shares.finish();
    for (int64_t h = 0; h < a.width; ++h) {
      float sum = 0;
      for (int32_t s = a.streams; s-- > 0;) {
        sum += shares.of(s) * a.x[s][t * a.x_stride[s] + h];
      }
      a.y[t * a.y_stride + h] = sum;
    }
  }
}

}  // namespace ktx::kernels
