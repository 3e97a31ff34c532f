// A number of a row of the cache, for scalar variants. Private to kernels/attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/kv_layout.h"
#include "lib/formats/dtype.h"

namespace ktx::kernels {

static inline float element(KvType type, const std::byte* row, int64_t i) {
  if (type == KvType::F32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  }
  const std::byte* block = type == KvType::F16 ? row + 2 * i : row + i / 32 * 34;
  uint16_t half;
  std::memcpy(&half, block, sizeof half);
  if (type == KvType::F16) return half_to_float(half);
  return half_to_float(half) * static_cast<float>(static_cast<int8_t>(block[2 + i % 32]));
}

}  // namespace ktx::kernels
