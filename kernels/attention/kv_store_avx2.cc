// Appends to the cache with AVX2 where it is F16 (the usual type): eight elements per
// conversion, which rounds to nearest even as float_to_half does. Other types are left
// to the scalar variant.
#include "kernels/attention/attention.h"
#include "kernels/attention/kv_row.h"
#include "kernels/simd/avx2.h"

namespace ktx::kernels {

void kv_store_scalar(const KvStoreArgs& a);
void kv_store_avx2(const KvStoreArgs& a);

namespace {

void store_f16(const float* x, int64_t n, std::byte* row) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves =
        _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * i), halves);
  }
  for (; i < n; ++i) {
    const uint16_t half = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __builtin_memcpy(row + 2 * i, &half, sizeof half);
  }
}

}  // namespace

void kv_store_avx2(const KvStoreArgs& a) {
  const KvLayout& layout = a.kv.layout;
  if (layout.type != KvType::F16) return kv_store_scalar(a);
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t h = 0; h < layout.kv_heads; ++h) {
      store_f16(a.key + t * a.key_stride + h * layout.key_dim, layout.key_dim,
                key_row(a.kv, a.kv.sequence[t], h, a.kv.position[t]));
      if (layout.value_dim == 0) continue;
      store_f16(a.value + t * a.value_stride + h * layout.value_dim, layout.value_dim,
                value_row(a.kv, a.kv.sequence[t], h, a.kv.position[t]));
    }
  }
}

}  // namespace ktx::kernels
