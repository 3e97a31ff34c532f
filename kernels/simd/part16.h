// 16 floats of the vector API, or the first n of them where n is less.
#pragma once

#include <cstdint>

namespace ktx::kernels {
namespace {

template <class V>
KTX_INLINE typename V::F load16(const float* p, int64_t n) {
  return n >= 16 ? V::load(p) : V::load_part(p, n);
}
template <class V>
KTX_INLINE void store16(float* p, int64_t n, typename V::F v) {
  n >= 16 ? V::store(p, v) : V::store_part(p, n, v);
}

}  // namespace
}  // namespace ktx::kernels
