// A tile of 16 rows and 256 columns times the activations of one token, by one warp on integer
// tensor cores: load() brings it into registers, after which its shared memory may be filled
// anew, add() multiplies.
//
//   OneTile<DType::Q4_K> tile;
//   tile.load(bytes, spans, x, x_tile, lane);
//   tile.add(lane, total);                      // of rows g and g + 8, over this lane's groups
//
// x is a whole number of 16 bits, which is two bytes: 256 * high + low. The weights are the A
// operand of mma.m16n8k32; the eight columns of B, tokens in products of many, are the high and the
// low bytes of x for four groups of columns. So that a column has the sum over its own
// group alone, the others' lanes give zeros to a group's product. Sums begin at the bits of 1.5 *
// 2^23, so that they are floats when they end. They are exact; the sum over groups is F32.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv_x.cuh"
#include "kernels/cuda/marlin/marlin_bytes.cuh"

namespace ktx::kernels {

template <DType kType>
struct OneTile {
  using Bytes = MarlinBytes<kType>;
  static constexpr int kSets = Bytes::kHalves ? 4 : 2;  // of four groups; a lane has one of each
  Bytes bytes;
  uint2 b[kSets];
  float sums[kSets], scale;

  __device__ __forceinline__ void load(const uint8_t* tile, int spans, const OneX& x, int x_tile,
                                       int lane) {
    const int g = lane / 4, t = lane % 4;
    bytes.load(tile, spans, lane);
    scale = x.scales[x_tile];
    const float* sixteens = x.sums + x_tile * 16;
    if constexpr (!Bytes::kHalves) {
      const uint4 v = x.bytes[x_tile * 32 + lane];
      b[0] = uint2{v.x, v.y}, b[1] = uint2{v.z, v.w};
      const auto* pairs = reinterpret_cast<const float2*>(sixteens);
      sums[0] = pairs[t].x + pairs[t].y, sums[1] = pairs[4 + t].x + pairs[4 + t].y;
    } else {
      // Column g: chunk g / 4 of two, half g / 2 % 2 of it, high or low bytes. Columns 8t .. of a
      // chunk are in half t / 2.
      const bool own = t / 2 == g / 2 % 2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 v = x.bytes[x_tile * 32 + 8 * (g / 4 + 2 * i) + 4 * (g % 2) + t];
        b[i] = own ? uint2{v.x, v.y} : uint2{0, 0};
        b[2 + i] = own ? uint2{v.z, v.w} : uint2{0, 0};
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = sixteens[4 * i + t];
    }
  }

  __device__ __forceinline__ void add(int lane, float (&total)[2]) const {
    constexpr int kShared = Bytes::kHalves ? 2 : 4;  // chunks of 32 columns of a set
    const int column = lane / 4 / (8 / kShared);
    int32_t sum[kSets][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int set = i % kSets, chunk = i / kSets, c = set * kShared + chunk;
      uint32_t a[4];
      bytes.fragment(c, a);
      const uint32_t there = column == chunk ? 1 : 0;  // multiplied: the integer units are scarce
      if (chunk == 0) {
#pragma unroll
        for (int32_t& v : sum[set]) v = kFloatBits;
      }
      mma_bytes<Bytes::kSigned>(sum[set], a, b[set].x * there, b[set].y * there);
    }
    float v[kSets][2];
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        v[s][r] = (__int_as_float(sum[s][2 * r]) - kFloat) * 256.0f +
                  (__int_as_float(sum[s][2 * r + 1]) - kFloat);
      }
    }
    bytes.weigh(v, sums, scale, total);
  }

 private:
  static constexpr float kFloat = 12582912;
  static constexpr int32_t kFloatBits = 0x4b400000;
};

}  // namespace ktx::kernels
