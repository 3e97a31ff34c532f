// The ops of delta nets over a vector policy (simd/README.md). Included by delta_net_<isa>.cc only.
//
// Sums over rows stay in registers, several vectors of columns at a time, so that they do not wait
// for each other. The bits are those of one token at a time.
#pragma once

#include "kernels/delta_net/delta_gates.h"
#include "kernels/delta_net/delta_net.h"
#include "kernels/simd/exp.h"
#include "kernels/simd/part16.h"
#include "lib/formats/shape_limits.h"

namespace ktx::kernels {
namespace {

template <class V>
void causal_conv(const CausalConvArgs& a) {
  const int64_t past = a.attrs.past(), channels = a.attrs.channels;
  const int64_t taps = a.attrs.taps, step = a.attrs.dilation;
  for (int64_t c = a.channel_begin; c < a.channel_end; c += 16) {
    const int64_t n = a.channel_end - c;  // 16, or the rest
    const auto input = [&](int64_t t) __attribute__((always_inline)) {
      if (t >= 0) return load16<V>(a.x + t * a.x_stride + c, n);
      if (a.state_in == nullptr) return V::zero();
      return load16<V>(a.state_in + (past + t) * channels + c, n);
    };
    for (int64_t t = 0; t < a.tokens; ++t) {
      typename V::F sum = V::zero();
      for (int64_t j = 0; j < taps; ++j) {
        sum = V::fma(load16<V>(a.weight + j * channels + c, n), input(t - past + j * step), sum);
      }
      if (a.bias != nullptr) sum = V::add(sum, load16<V>(a.bias + c, n));
      if (a.attrs.plain == 0) sum = V::mul(sum, sigmoid16<V>(sum));
      store16<V>(a.y + t * a.y_stride + c, n, sum);
    }
    for (int64_t j = 0; j < past; ++j) {
      store16<V>(a.state_out + j * channels + c, n, input(a.tokens - past + j));
    }
  }
}

// to = from * scale / its length.
template <class V>
KTX_INLINE void normalise(const float* from, int64_t dim, float scale, float* to) {
  typename V::F sum = V::zero();
  for (int64_t i = 0; i < dim; i += 16) {
    const typename V::F v = load16<V>(from + i, dim - i);
    sum = V::fma(v, v, sum);
  }
  const typename V::F factor = V::set1(scale / __builtin_sqrtf(V::sum(sum) + 1e-6f));
  for (int64_t i = 0; i < dim; i += 16) {
    store16<V>(to + i, dim - i, V::mul(load16<V>(from + i, dim - i), factor));
  }
}

// A token needs what the matrix knows of its key before it can change the matrix, so each token
// takes two passes over its columns. The second pass of a token is also the first of the next: a
// row that has been changed and read is decayed by the next token's gate, and added to what that
// token knows. (1.3 times as fast as two passes with either instruction set, on one core of an
// EPYC. Chunks of tokens as products of matrices, as on GPUs, would take 3.4 operations an element
// instead of these 4. They are not used, since results here do not depend on how a text is cut.)
//
// kVectors vectors of columns, the last of them with `n` of 16 lanes. (Whole vectors: n >= 16.)
// kept: of all rows, or with kByChannel of each.
template <class V, int kVectors, bool kByChannel>
KTX_INLINE void begin_columns(const float* from, float* matrix, int64_t dim, const float* k,
                              const float* kept, int64_t n, float* known) {
  typename V::F sum[kVectors];
  typename V::F decay = V::set1(*kept);
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) sum[i] = V::zero();
  for (int64_t row = 0; row < dim; ++row) {
    if constexpr (kByChannel) decay = V::set1(kept[row]);
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = row * dim + 16 * i;
      const typename V::F before = from != nullptr ? load16<V>(from + at, n) : V::zero();
      const typename V::F m = V::mul(before, decay);
      store16<V>(matrix + at, n, m);
      sum[i] = V::fma(V::set1(k[row]), m, sum[i]);
    }
  }
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) store16<V>(known + 16 * i, n, sum[i]);
}

// `known`: of this token's key; then, where there is one, of the next one's.
template <class V, int kVectors, bool kNext, bool kByChannel>
KTX_INLINE void change_columns(float* matrix, int64_t dim, const float* q, const float* k,
                               const float* v, float strength, const float* next_k,
                               const float* next_kept, int64_t n, float* known, float* y) {
  typename V::F change[kVectors], read[kVectors], next[kVectors];
  typename V::F decay = V::zero();
  if constexpr (kNext) decay = V::set1(*next_kept);
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    read[i] = next[i] = V::zero();
    change[i] =
        V::mul(V::set1(strength), V::sub(load16<V>(v + 16 * i, n), load16<V>(known + 16 * i, n)));
  }
  for (int64_t row = 0; row < dim; ++row) {
    if constexpr (kNext && kByChannel) decay = V::set1(next_kept[row]);
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      float* const at = matrix + row * dim + 16 * i;
      typename V::F m = V::fma(V::set1(k[row]), change[i], load16<V>(at, n));
      read[i] = V::fma(V::set1(q[row]), m, read[i]);
      if constexpr (kNext) {
        m = V::mul(m, decay);
        next[i] = V::fma(V::set1(next_k[row]), m, next[i]);
      }
      store16<V>(at, n, m);
    }
  }
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    store16<V>(y + 16 * i, n, read[i]);
    if constexpr (kNext) store16<V>(known + 16 * i, n, next[i]);
  }
}

template <int kCount>
struct VectorCount {
  static constexpr int value = kCount;
};

// A token's query and key, of length 1 and scaled, and its gates.
struct DeltaToken {
  float q[kMaxDeltaHead], k[kMaxDeltaHead];
  float kept[kMaxDeltaHead];  // of all rows the first one, or of each
  float strength = 0;
};

// kept[i] = exp(decay * softplus(a[i] + dt_bias[i])) of a head's channels, or what lower_bound
// makes of that.
template <class V>
KTX_INLINE void kept_channels(const DeltaRuleArgs& args, int64_t token, float* kept) {
  const int64_t dim = args.attrs.head_dim, first = args.head * dim;
  const float* const a = args.a + token * args.a_stride + first;
  const typename V::F decay = V::set1(args.decay[args.head]);
  const typename V::F size = V::set1(__builtin_fabsf(args.decay[args.head]));
  const typename V::F bound = V::set1(args.attrs.lower_bound);
  const bool bounded = args.attrs.lower_bound < 0;
  for (int64_t i = 0; i < dim; i += 16) {
    const int64_t n = dim - i;
    const typename V::F rate = V::add(load16<V>(a + i, n), load16<V>(args.dt_bias + first + i, n));
    const typename V::F power = bounded ? V::mul(bound, sigmoid16<V>(V::mul(size, rate)))
                                        : V::mul(decay, softplus16<V>(rate));
    store16<V>(kept + i, n, exp16<V>(power));
  }
}

// kVectors: of a token's two passes in one, as many as the registers hold sums of.
template <class V, int kVectors, bool kByChannel>
void delta_rule_of(const DeltaRuleArgs& a) {
  const int64_t dim = a.attrs.head_dim;
  const int64_t key_head = key_head_of(a.attrs, a.head);
  const int64_t first = a.head * dim * dim;  // of the head's matrix
  float* const matrix = a.state_out + first;
  const float* const from = a.state_in != nullptr ? a.state_in + first : nullptr;
  const float scale = 1 / __builtin_sqrtf(static_cast<float>(dim));
  DeltaToken tokens[2];
  float known[kMaxDeltaHead];
  const auto read_token = [&](int64_t t) __attribute__((always_inline)) {
    DeltaToken& token = tokens[t % 2];
    const float* const x = a.x + t * a.x_stride;
    normalise<V>(x + key_head * dim, dim, scale, token.q);
    normalise<V>(x + (a.attrs.key_heads + key_head) * dim, dim, 1, token.k);
    const DeltaGates gates = delta_gates(a, t);
    token.strength = gates.strength;
    token.kept[0] = gates.kept;
    if constexpr (kByChannel) kept_channels<V>(a, t, token.kept);
  };
  // work(VectorCount, first column, lanes of its last vector)
  const auto by_columns = [&](auto most, auto&& work) __attribute__((always_inline)) {
    constexpr int64_t kColumns = 16 * most.value;
    int64_t c = a.column_begin;
    for (; c + kColumns <= a.column_end; c += kColumns) work(most, c, int64_t{16});
    for (; c < a.column_end; c += 16) work(VectorCount<1>(), c, a.column_end - c);
  };
  read_token(0);
  by_columns(
      VectorCount<4>(), [&](auto count, int64_t c, int64_t n) __attribute__((always_inline)) {
        begin_columns<V, count.value, kByChannel>(from != nullptr ? from + c : nullptr, matrix + c,
                                                  dim, tokens[0].k, tokens[0].kept, n, known + c);
      });
  for (int64_t t = 0; t < a.tokens; ++t) {
    const DeltaToken &token = tokens[t % 2], &next = tokens[(t + 1) % 2];
    const float* const v = a.x + t * a.x_stride + (int64_t{2} * a.attrs.key_heads + a.head) * dim;
    float* const y = a.y + t * a.y_stride + a.head * dim;
    if (t + 1 < a.tokens) {
      read_token(t + 1);
      by_columns(
          VectorCount<kVectors>(), [&](auto count, int64_t c,
                                       int64_t n) __attribute__((always_inline)) {
            change_columns<V, count.value, true, kByChannel>(matrix + c, dim, token.q, token.k,
                                                             v + c, token.strength, next.k,
                                                             next.kept, n, known + c, y + c);
          });
    } else {
      by_columns(
          VectorCount<4>(), [&](auto count, int64_t c, int64_t n) __attribute__((always_inline)) {
            change_columns<V, count.value, false, kByChannel>(matrix + c, dim, token.q, token.k,
                                                              v + c, token.strength, nullptr,
                                                              nullptr, n, known + c, y + c);
          });
    }
  }
}

template <class V, int kVectors>
void delta_rule(const DeltaRuleArgs& a) {
  if (a.attrs.by_channel != 0) return delta_rule_of<V, kVectors, true>(a);
  delta_rule_of<V, kVectors, false>(a);
}

}  // namespace
}  // namespace ktx::kernels
