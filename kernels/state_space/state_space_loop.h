// State-space layers over a vector policy (simd/README.md). Included by state_space_<isa>.cc only.
//
// A prompt takes its tokens by a few: a row of the matrix is loaded and stored once for all of
// them, and what each reads stays in registers. The bits are those of one token at a time.
#pragma once

#include "kernels/simd/part16.h"
#include "kernels/state_space/state_space_token.h"

namespace ktx::kernels {
namespace {

// kTokens tokens over kVectors vectors of columns from c on, the last of them with `n` of 16 lanes.
// (Whole vectors: n >= 16.) from: the matrix before them, null: zeros.
template <class V, int kVectors, int kTokens>
KTX_INLINE void state_space_tile(const StateSpaceArgs& a, const StateSpaceToken* tokens,
                                 int64_t first_token, const float* from, float* matrix, int64_t c,
                                 int64_t n) {
  using F = typename V::F;
  const int64_t dim = a.attrs.head_dim;
  F change[kTokens][kVectors], read[kTokens][kVectors];
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      change[t][i] = V::mul(V::set1(tokens[t].step), load16<V>(tokens[t].value + c + 16 * i, n));
      read[t][i] = V::zero();
    }
  }
  for (int64_t row = 0; row < a.attrs.state_dim; ++row) {
    const int64_t at = row * dim + c;
    F m[kVectors];
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      m[i] = from != nullptr ? load16<V>(from + at + 16 * i, n) : V::zero();
    }
    KTX_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const F in = V::set1(tokens[t].in[row]), out = V::set1(tokens[t].out[row]);
      const F kept = V::set1(tokens[t].kept);
      KTX_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        m[i] = V::fma(in, change[t][i], V::mul(m[i], kept));
        read[t][i] = V::fma(out, m[i], read[t][i]);
      }
    }
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) store16<V>(matrix + at + 16 * i, n, m[i]);
  }
  const F skip = V::set1(a.skip[a.head]);
  KTX_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    float* const y = a.y + (first_token + t) * a.y_stride + a.head * dim + c;
    KTX_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const F value = load16<V>(tokens[t].value + c + 16 * i, n);
      store16<V>(y + 16 * i, n, V::fma(skip, value, read[t][i]));
    }
  }
}

template <class V, int kVectors, int kTokens>
KTX_INLINE void state_space_tokens(const StateSpaceArgs& a, int64_t first_token, const float* from,
                                   float* matrix) {
  StateSpaceToken tokens[kTokens];
  for (int t = 0; t < kTokens; ++t) tokens[t] = state_space_token(a, first_token + t);
  int64_t c = a.column_begin;
  for (; c + 16 * kVectors <= a.column_end; c += 16 * kVectors) {
    state_space_tile<V, kVectors, kTokens>(a, tokens, first_token, from, matrix, c, 16);
  }
  for (; c < a.column_end; c += 16) {
    state_space_tile<V, 1, kTokens>(a, tokens, first_token, from, matrix, c, a.column_end - c);
  }
}

template <class V, int kVectors, int kTokens>
void state_space(const StateSpaceArgs& a) {
  const int64_t first = a.head * a.attrs.state_dim * a.attrs.head_dim;
  float* const matrix = a.state_out + first;
  const float* from = a.state_in != nullptr ? a.state_in + first : nullptr;
  int64_t t = 0;
  for (; t + kTokens <= a.tokens; t += kTokens, from = matrix) {
    state_space_tokens<V, kVectors, kTokens>(a, t, from, matrix);
  }
  for (; t < a.tokens; ++t, from = matrix) {
    state_space_tokens<V, 2 * kVectors, 1>(a, t, from, matrix);
  }
}

}  // namespace
}  // namespace ktx::kernels
