// exp of 16 lanes, right to about one unit in the last place from -infinity to
// +infinity, the same for a value in any lane.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its Taylor series up to r^7 / 7!
// (the rest is below 5e-9); times 2^n in two steps. Where x is past the range, it is
// held at a value whose result is 0 or infinity already.
#pragma once

namespace ktx::kernels {
namespace {

template <class V>
__attribute__((always_inline)) inline typename V::F exp16(typename V::F x) {
  using F = typename V::F;
  x = V::max(V::set1(-105.0f), V::min(V::set1(90.0f), x));
  const F n = V::round(V::mul(x, V::set1(1.44269504f)));
  // ln 2 in two parts: n * the first is exact.
  F r = V::fma(n, V::set1(-0.693145752f), x);
  r = V::fma(n, V::set1(-1.42860677e-6f), r);
  F p = V::set1(1.0f / 5040);
  p = V::fma(p, r, V::set1(1.0f / 720));
  p = V::fma(p, r, V::set1(1.0f / 120));
  p = V::fma(p, r, V::set1(1.0f / 24));
  p = V::fma(p, r, V::set1(1.0f / 6));
  p = V::fma(p, r, V::set1(0.5f));
  p = V::fma(p, r, V::set1(1.0f));
  p = V::fma(p, r, V::set1(1.0f));
  return V::scale_by_power(p, n);
}

// 2^x to 3e-6 of it for x from -124 to 1, for numbers that are rounded further; 2^-124 below.
// x = n + f with |f| <= 1/2; 2^f = 1 + f * (a polynomial of least relative error).
template <class V>
__attribute__((always_inline)) inline typename V::F power_of_two16(typename V::F x) {
  using F = typename V::F;
  const F whole = V::set1(12582912.0f);  // 1.5 * 2^23: sums with it are rounded to whole numbers
  x = V::max(V::set1(-124.0f), x);
  const F t = V::add(x, whole), f = V::sub(x, V::sub(t, whole));
  F p = V::set1(0.00958286979f);
  p = V::fma(p, f, V::set1(0.0559064682f));
  p = V::fma(p, f, V::set1(0.240240986f));
  p = V::fma(p, f, V::set1(0.693124188f));
  return V::add_power(V::fma(p, f, V::set1(1.0f)), t);
}

// 1 / (1 + exp(-x))
template <class V>
__attribute__((always_inline)) inline typename V::F sigmoid16(typename V::F x) {
  const typename V::F one = V::set1(1.0f);
  return V::div(one, V::add(one, exp16<V>(V::sub(V::zero(), x))));
}

// log(1 + exp(x)), to about one unit in the last place of the larger of it and 1.
// max(x, 0) + log(1 + u), u = exp(-|x|); with s = u / (2 + u) that is 2 artanh(s), s at most 1 / 3.
template <class V>
__attribute__((always_inline)) inline typename V::F softplus16(typename V::F x) {
  using F = typename V::F;
  const F negative = V::sub(V::zero(), x);
  const F u = exp16<V>(V::min(x, negative));
  const F s = V::div(u, V::add(V::set1(2.0f), u)), ss = V::mul(s, s);
  F p = V::set1(1.0f / 13);
  p = V::fma(p, ss, V::set1(1.0f / 11));
  p = V::fma(p, ss, V::set1(1.0f / 9));
  p = V::fma(p, ss, V::set1(1.0f / 7));
  p = V::fma(p, ss, V::set1(1.0f / 5));
  p = V::fma(p, ss, V::set1(1.0f / 3));
  p = V::fma(p, ss, V::set1(1.0f));
  return V::fma(V::add(s, s), p, V::max(V::zero(), x));
}

// tanh, right to a few units in the last place, of small x as well: m / (m + 2) with
// m = exp(2 x) - 1 = 2^n (exp(r) - 1) + (2^n - 1), where exp(r) - 1 is a series without the 1.
// Beyond 15 it is 1 in F32.
template <class V>
__attribute__((always_inline)) inline typename V::F tanh16(typename V::F x) {
  using F = typename V::F;
  const F one = V::set1(1.0f), two = V::set1(2.0f);
  x = V::max(V::set1(-30.0f), V::min(V::set1(30.0f), V::mul(two, x)));
  const F n = V::round(V::mul(x, V::set1(1.44269504f)));
  F r = V::fma(n, V::set1(-0.693145752f), x);
  r = V::fma(n, V::set1(-1.42860677e-6f), r);
  F p = V::set1(1.0f / 5040);
  p = V::fma(p, r, V::set1(1.0f / 720));
  p = V::fma(p, r, V::set1(1.0f / 120));
  p = V::fma(p, r, V::set1(1.0f / 24));
  p = V::fma(p, r, V::set1(1.0f / 6));
  p = V::fma(p, r, V::set1(0.5f));
  p = V::fma(V::mul(p, r), r, r);
  const F m = V::add(V::scale_by_power(p, n), V::sub(V::scale_by_power(one, n), one));
  return V::div(m, V::add(m, two));
}

}  // namespace
}  // namespace ktx::kernels
