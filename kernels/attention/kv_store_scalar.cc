// Appends keys and values to the cache, element type by element type.
#include <cmath>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_row.h"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

void kv_store_scalar(const KvStoreArgs& a);

namespace {

void store_f16(const float* x, int64_t n, std::byte* row) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t half = float_to_half(x[i]);
    std::memcpy(row + 2 * i, &half, sizeof half);
  }
}

void store_q8(const float* x, int64_t n, std::byte* row) {
  for (int64_t begin = 0; begin < n; begin += 32, row += 34) {
    const int64_t count = n - begin < 32 ? n - begin : 32;
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) {
      largest = std::fabs(x[begin + i]) > largest ? std::fabs(x[begin + i]) : largest;
    }
    // Codes are taken for the scale as it is stored, rounded to half.
    const uint16_t scale = float_to_half(largest / 127);
    const float rounded = half_to_float(scale);
    const float inverse = rounded > 0 && std::isfinite(rounded) ? 1 / rounded : 0;
    int8_t codes[32] = {};
    for (int64_t i = 0; i < count; ++i) {
      const float code = std::nearbyint(x[begin + i] * inverse);
      codes[i] = static_cast<int8_t>(code > 127 ? 127 : code >= -127 ? code : -127);
    }
    std::memcpy(row, &scale, sizeof scale);
    std::memcpy(row + 2, codes, sizeof codes);
  }
}

void store_row(KvType type, const float* x, int64_t n, std::byte* row) {
  if (type == KvType::F32) {
    std::memcpy(row, x, static_cast<size_t>(n) * sizeof(float));
  } else if (type == KvType::F16) {
    store_f16(x, n, row);
  } else {
    store_q8(x, n, row);
  }
}

}  // namespace

void kv_store_scalar(const KvStoreArgs& a) {
  const KvLayout& layout = a.kv.layout;
  for (int64_t t = a.token_begin; t < a.token_end; ++t) {
    for (int64_t h = 0; h < layout.kv_heads; ++h) {
      store_row(layout.type, a.key + t * a.key_stride + h * layout.key_dim, layout.key_dim,
                key_row(a.kv, a.kv.sequence[t], h, a.kv.position[t]));
      if (layout.value_dim == 0) continue;
      store_row(layout.type, a.value + t * a.value_stride + h * layout.value_dim, layout.value_dim,
                value_row(a.kv, a.kv.sequence[t], h, a.kv.position[t]));
    }
  }
}

}  // namespace ktx::kernels
