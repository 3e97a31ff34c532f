// Inputs for benchmarks of products: weights of any format, int8 activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quantize/quantize.h"
#include "lib/formats/act_q8.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::kernels {

// Bytes from a 64-byte boundary on.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t size) : bytes_(static_cast<size_t>(size) + 64) {}
  std::byte* data() {
    return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) - 64; }

 private:
  std::vector<std::byte> bytes_;
};

// Random bits, but those of a half's or a float's exponent stay small: no infinities.
inline AlignedBytes random_weights(std::mt19937& random, int64_t size) {
  AlignedBytes out(size);
  for (int64_t i = 0; i + 4 <= size; i += 4) {
    const uint32_t word = random() & 0x2fff2fff;
    std::memcpy(out.data() + i, &word, sizeof word);
  }
  return out;
}

// Between -1 and 1.
inline std::vector<float> random_floats(std::mt19937& random, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = static_cast<float>(random() % 2001) / 1000 - 1;
  return x;
}

inline AlignedBytes quantised(const std::vector<float>& x, int64_t cols) {
  const int64_t rows = static_cast<int64_t>(x.size()) / cols;
  AlignedBytes out(rows * act_q8_row_bytes(cols));
  QuantizeArgs a;
  a.x = x.data();
  a.x_stride = cols;
  a.row_elems = cols;
  a.xq = out.data();
  a.xq_stride = act_q8_row_bytes(cols);
  a.token_end = rows;
  (*find_quantize("quantize_q8", detect_isa()))(a);
  return out;
}

}  // namespace ktx::kernels
