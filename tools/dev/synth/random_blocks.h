// Random weights of any format: zero mean, a given standard deviation, no NaN,
// infinity or denormal scale.
//
// Zero mean matters: with a mean (Q4_K whose min is not 7.5 times its scale) all
// experts see the same large common part and routing collapses onto a few.
//
// A pool holds some MiB of blocks. Tensors are filled with ranges of it that start at places
// drawn from (seed, tensor, range), so the bytes depend on nothing else. A page of it is made when
// a range first reads it: a small model reads few, headers alone none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "lib/formats/dtype.h"

namespace ktx::synth {

// splitmix64: one step of a good 64-bit mixer.
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Near-normal with mean 0 and deviation 1, from 64 random bits; the same on every
// machine (no libm).
float normal_from_bits(uint64_t bits);

// Several threads may read from one.
class BlockPool {
 public:
  // Any format of dtype.def but I32. `size_bytes` is rounded to whole blocks.
  BlockPool(DType dtype, float sigma, uint64_t seed, size_t size_bytes = size_t{16} << 20);

  // Bytes [offset, offset + out.size()) of the tensor with this seed; both are
  // multiples of the block.
  void fill(uint64_t tensor_seed, uint64_t offset, std::span<std::byte> out) const;
  std::span<const std::byte> bytes() const;

 private:
  std::span<std::byte> page(size_t index) const;
  void make_bits(size_t index) const;
  void choose_scales();
  void make(size_t first_block, size_t blocks) const;

  const DType dtype_;
  const float sigma_;
  const uint64_t seed_;
  const size_t block_bytes_, size_bytes_;
  float unit_ = 0;  // scale of a block
  int spread_ = 1;  // of its group scales
  const std::unique_ptr<std::byte[]> bytes_;
  const std::unique_ptr<std::once_flag[]> made_;  // by page
};

}  // namespace ktx::synth
