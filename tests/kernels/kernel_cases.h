// Shared by all kernel tests: the instruction sets to try, random numbers with a printed seed,
// buffers that catch writes past their end, and weights of any dtype made of random bytes with
// sane scales.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_id.h"
#include "kernels/quantize/quantize.h"
#include "lib/formats/blocks.h"
#include "lib/formats/dtype.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

inline constexpr float kEps = std::numeric_limits<float>::epsilon();

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), engine_(seed) {}
  uint64_t seed() const { return seed_; }
  float normal() { return normal_(engine_); }
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() % 65536) / 65536;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  uint8_t byte() { return static_cast<uint8_t>(engine_()); }
  std::vector<float> normals(int64_t n, float scale = 1) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& value : out) value = normal() * scale;
    return out;
  }

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

// Bytes at a 64-byte boundary, exactly as many as asked for (so that sanitizers see
// every access past the end).
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t size)
      : size_(size),
        data_(static_cast<std::byte*>(
            std::aligned_alloc(64, static_cast<size_t>(size + 64) & ~size_t{63}))) {
    std::memset(data_.get(), 0xA5, static_cast<size_t>(size));
  }
  std::byte* data() { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  int64_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

// A row a token, `stride` floats apart, to `out`, `row_bytes` apart.
inline QuantizeArgs quantize_args(const std::vector<float>& x, int64_t stride, int64_t cols,
                                  int64_t tokens, AlignedBytes& out, int64_t row_bytes) {
  QuantizeArgs a;
  a.x = x.data();
  a.x_stride = stride;
  a.row_elems = cols;
  a.xq = out.data();
  a.xq_stride = row_bytes;
  a.token_end = tokens;
  return a;
}

inline uint16_t random_half(Random& random, float low, float high) {
  return float_to_half(random.uniform(low, high));
}

// One block of random codes whose scales are of the order of 1/64.
template <class Block>
Block random_block(Random& random) {
  Block block;
  auto* bytes = reinterpret_cast<uint8_t*>(&block);
  for (size_t i = 0; i < sizeof block; ++i) bytes[i] = random.byte();
  if constexpr (std::is_same_v<Block, BlockF32>) {
    block.value = random.normal();
  } else if constexpr (std::is_same_v<Block, BlockF16>) {
    block.value = float_to_half(random.normal());
  } else if constexpr (std::is_same_v<Block, BlockBF16>) {
    block.value = float_to_bfloat16(random.normal());
  } else if constexpr (std::is_same_v<Block, BlockMXFP4>) {
    block.exponent = static_cast<uint8_t>(118 + random.below(8));
  } else if constexpr (std::is_same_v<Block, BlockNVFP4>) {
    for (uint8_t& scale : block.scales) scale = static_cast<uint8_t>(random.below(32));
  } else if constexpr (std::is_same_v<Block, BlockIQ1_M>) {
    // The half lies in the top nibbles of four words: sign and exponent in the last.
    block.scales[7] = static_cast<uint8_t>((block.scales[7] & 15) | 0x20);
  } else if constexpr (requires { block.scale; }) {
    block.scale = random_half(random, -0.03f, 0.03f);
  }
  if constexpr (requires { block.min; }) block.min = random_half(random, -0.03f, 0.03f);
  if constexpr (requires { block.offset; }) block.offset = random_half(random, -0.2f, 0.2f);
  return block;
}

// rows x cols weights of a dtype, packed, at an address with no alignment.
class Weights {
 public:
  Weights(Random& random, DType dtype, int64_t rows, int64_t cols)
      : dtype_(dtype), rows_(rows), cols_(cols), row_bytes_(*ktx::row_bytes(dtype, cols)) {
    bytes_.resize(static_cast<size_t>(rows * row_bytes_ + 1));
    const int64_t blocks = rows * cols / info(dtype).block_elems;
    for (int64_t b = 0; b < blocks; ++b) {
      std::byte* place = data() + b * info(dtype).block_bytes;
      switch (dtype) {
#define KTX_DTYPE(id, name, gguf, elems, bytes)         \
  case DType::id: {                                     \
    const auto block = random_block<Block##id>(random); \
    std::memcpy(place, &block, sizeof block);           \
    break;                                              \
  }
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
      }
    }
  }
  std::byte* data() {
    return bytes_.data() + 1;
  }
  const std::byte* data() const {
    return bytes_.data() + 1;
  }
  DType dtype() const {
    return dtype_;
  }
  int64_t rows() const {
    return rows_;
  }
  int64_t cols() const {
    return cols_;
  }
  int64_t row_bytes() const {
    return row_bytes_;
  }
  std::vector<float> row(int64_t r) const {
    std::vector<float> out(static_cast<size_t>(cols_));
    dequantize_row(dtype_, data() + r * row_bytes_, cols_, out.data());
    return out;
  }

 private:
  DType dtype_;
  int64_t rows_, cols_, row_bytes_;
  std::vector<std::byte> bytes_;
};

inline std::vector<DType> weight_dtypes() {
  std::vector<DType> out;
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype != DType::I32) out.push_back(row.dtype);
  }
  return out;
}

// Bit-wise equality; NaNs with the same bits are equal.
inline ::testing::AssertionResult same_bits(const std::vector<float>& a,
                                            const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    return ::testing::AssertionFailure()
           << "element " << i << ": " << a[i] << " and " << b[i] << " differ";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ktx::kernels
