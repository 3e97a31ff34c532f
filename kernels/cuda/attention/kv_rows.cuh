// Rows of the KV cache on the device: their addresses, eight elements of one as F16, and 32 of
// them stored.
#pragma once

#include "kernels/cuda/attention/cuda_attention.h"
#include "kernels/cuda/common/mma.cuh"

namespace ktx::kernels {

__device__ __forceinline__ std::byte* kv_slot(const CudaKvView& kv, int sequence, int position) {
  const int tokens = static_cast<int>(kv.layout.block_tokens);  // 64-bit divisions are slow
  const int number = (position / tokens + 1) * static_cast<int>(kv.layout.row_blocks) - 1;
  const int block = kv.table[sequence * kv.table_stride + number];
  return kv.pool + block * kv.block_bytes + kv.slot_offset;
}
__device__ __forceinline__ std::byte* kv_key(const CudaKvView& kv, int sequence, int head,
                                             int position) {
  return kv_slot(kv, sequence, position) +
         kv.layout.key_offset(head, position % static_cast<int>(kv.layout.block_tokens));
}
__device__ __forceinline__ std::byte* kv_value(const CudaKvView& kv, int sequence, int head,
                                               int position) {
  return kv_slot(kv, sequence, position) +
         kv.layout.value_offset(head, position % static_cast<int>(kv.layout.block_tokens));
}

// Element i of a row. Q8_0 blocks are 34 bytes, so only 2-byte aligned.
__device__ __forceinline__ float kv_element(KvType type, const std::byte* row, int i) {
  if (type == KvType::F32) return reinterpret_cast<const float*>(row)[i];
  if (type == KvType::F16) return __half2float(reinterpret_cast<const half*>(row)[i]);
  const std::byte* block = row + i / 32 * 34;
  return __half2float(*reinterpret_cast<const half*>(block)) *
         static_cast<float>(reinterpret_cast<const int8_t*>(block + 2)[i % 32]);
}

// kCount (2, 4, 8, or 16) elements from `begin` on, a multiple of kCount, as packed halves.
template <KvType kType, int kCount>
__device__ __forceinline__ void kv_halves(const std::byte* row, int begin,
                                          uint32_t (&out)[kCount / 2]) {
  if constexpr (kType == KvType::F16) {
    const std::byte* p = row + 2 * begin;
    if constexpr (kCount == 2) {
      out[0] = *reinterpret_cast<const uint32_t*>(p);
    } else if constexpr (kCount == 4) {
      const uint2 v = *reinterpret_cast<const uint2*>(p);
      out[0] = v.x, out[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < kCount / 8; ++i) {
        const uint4 v = reinterpret_cast<const uint4*>(p)[i];
        out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
      }
    }
  } else {
    const std::byte* block = row + begin / 32 * 34;
    const half2 scale = __half2half2(*reinterpret_cast<const half*>(block));
    const uint16_t* codes = reinterpret_cast<const uint16_t*>(block + 2 + begin % 32);
    const half2 bias = __half2half2(__ushort_as_half(0x6400 + 128));
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const uint32_t bytes = codes[i] ^ 0x8080u;
      const half2 q = __hsub2(as_half2(__byte_perm(bytes, 0x64646464, 0x4140)), bias);
      out[i] = as_bits(__hmul2(q, scale));
    }
  }
}

// Elements i - lane .. i - lane + 31 of a row of n, i this lane's, from x on their way into the
// cache: a Q8_0 block. Codes are those of kernels/attention bit for bit. All lanes take part.
__device__ inline void store_piece(KvType type, const float* x, int i, int n, std::byte* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float v = i < n ? x[i] : 0;
  if (type == KvType::F32) {
    if (i < n) reinterpret_cast<float*>(row)[i] = v;
    return;
  }
  if (type == KvType::F16) {
    if (i < n) reinterpret_cast<half*>(row)[i] = __float2half_rn(v);
    return;
  }
  const half scale = __float2half_rn(warp_max(isnan(v) ? 0 : fabsf(v)) / 127);
  const float rounded = __half2float(scale);
  const float inverse = rounded > 0 && isfinite(rounded) ? 1 / rounded : 0;
  const float code = rintf(v * inverse);
  const int clamped = code > 127 ? 127 : code >= -127 ? static_cast<int>(code) : -127;
  std::byte* block = row + i / 32 * 34;
  if (lane == 0) *reinterpret_cast<half*>(block) = scale;
  reinterpret_cast<int8_t*>(block + 2)[lane] = static_cast<int8_t>(i < n ? clamped : 0);
}

}  // namespace ktx::kernels
