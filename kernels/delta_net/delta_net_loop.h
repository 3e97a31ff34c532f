// The ops of delta nets over a vector policy (simd/README.md). Included by delta_net_<isa>.cc only.
//
// A token reads and writes its part of the matrix once: rows of columns that stay in registers as
// sums, four vectors of them at a time, so that the sums do not wait for each other.
#pragma once

#include "kernels/delta_net/delta_gates.h"
#include "kernels/delta_net/delta_net.h"
#include "kernels/simd/exp.h"
#include "lib/formats/shape_limits.h"

namespace ktx::kernels {
namespace {

// 16 floats, or the first n.
template <class V>
KTX_INLINE typename V::F load16(const float* p, int64_t n) {
  return n >= 16 ? V::load(p) : V::load_part(p, n);
}
template <class V>
KTX_INLINE void store16(float* p, int64_t n, typename V::F v) {
  n >= 16 ? V::store(p, v) : V::store_part(p, n, v);
}

template <class V>
void causal_conv(const CausalConvArgs& a) {
  const int64_t past = a.attrs.taps - 1, channels = a.attrs.channels;
  for (int64_t c = a.channel_begin; c < a.channel_end; c += 16) {
    const int64_t n = a.channel_end - c;  // 16, or the rest
    const auto input = [&](int64_t t) __attribute__((always_inline)) {
      if (t >= 0) return load16<V>(a.x + t * a.x_stride + c, n);
      if (a.state_in == nullptr) return V::zero();
      return load16<V>(a.state_in + (past + t) * channels + c, n);
    };
    for (int64_t t = 0; t < a.tokens; ++t) {
      typename V::F sum = V::zero();
      for (int64_t j = 0; j <= past; ++j) {
        sum = V::fma(load16<V>(a.weight + j * channels + c, n), input(t - past + j), sum);
      }
      store16<V>(a.y + t * a.y_stride + c, n, V::mul(sum, sigmoid16<V>(sum)));
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

// One token and kVectors vectors of columns, the last of them with `n` of 16 lanes. (Whole vectors:
// n >= 16.)
template <class V, int kVectors>
KTX_INLINE void change_columns(float* matrix, int64_t dim, const float* q, const float* k,
                               const float* v, DeltaGates gates, int64_t n, float* y) {
  typename V::F known[kVectors], change[kVectors], read[kVectors];
  const typename V::F kept = V::set1(gates.kept), strength = V::set1(gates.strength);
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) known[i] = read[i] = V::zero();
  for (int64_t row = 0; row < dim; ++row) {
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const typename V::F m = V::mul(load16<V>(matrix + row * dim + 16 * i, n), kept);
      known[i] = V::fma(V::set1(k[row]), m, known[i]);
    }
  }
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) {
    change[i] = V::mul(strength, V::sub(load16<V>(v + 16 * i, n), known[i]));
  }
  for (int64_t row = 0; row < dim; ++row) {
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      float* const at = matrix + row * dim + 16 * i;
      const typename V::F m = V::fma(V::set1(k[row]), change[i], V::mul(load16<V>(at, n), kept));
      store16<V>(at, n, m);
      read[i] = V::fma(V::set1(q[row]), m, read[i]);
    }
  }
  KTX_UNROLL
  for (int i = 0; i < kVectors; ++i) store16<V>(y + 16 * i, n, read[i]);
}

template <class V>
void delta_rule(const DeltaRuleArgs& a) {
  const int64_t dim = a.attrs.head_dim;
  const int64_t key_head = key_head_of(a.attrs, a.head);
  float* const matrix = a.state_out + a.head * dim * dim;
  for (int64_t row = 0; row < dim; ++row) {
    float* const to = matrix + row * dim;
    const float* const from =
        a.state_in != nullptr ? a.state_in + (a.head * dim + row) * dim : nullptr;
    for (int64_t c = a.column_begin; c < a.column_end; ++c) to[c] = from != nullptr ? from[c] : 0;
  }
  float q[kMaxDeltaHead], k[kMaxDeltaHead];
  const float scale = 1 / __builtin_sqrtf(static_cast<float>(dim));
  for (int64_t t = 0; t < a.tokens; ++t) {
    const float* const x = a.x + t * a.x_stride;
    normalise<V>(x + key_head * dim, dim, scale, q);
    normalise<V>(x + (a.attrs.key_heads + key_head) * dim, dim, 1, k);
    const float* const v = x + (int64_t{2} * a.attrs.key_heads + a.head) * dim;
    float* const y = a.y + t * a.y_stride + a.head * dim;
    const DeltaGates gates = delta_gates(a, t);
    int64_t c = a.column_begin;
    for (; c + 64 <= a.column_end; c += 64) {
      change_columns<V, 4>(matrix + c, dim, q, k, v + c, gates, 16, y + c);
    }
    for (; c < a.column_end; c += 16) {
      change_columns<V, 1>(matrix + c, dim, q, k, v + c, gates, a.column_end - c, y + c);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
