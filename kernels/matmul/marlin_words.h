// Blocks to planes of the layout `marlin` and back, eight columns at a time in words of 64
// bits: what a lane holds of rows g and g + 8 and of one chunk (32 columns) are two such
// words, one from each row. Nothing here needs more than plain integers.
//
//   codes of row g       a = 00 07 .. 01 00   a nibble a byte, column 0 lowest
//   codes of row g + 8   b
//   the lane's bytes     middle_bytes_swapped(a | b << 4)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu_and_gpu.h"
#include "kernels/matmul/marlin_form.h"

namespace ktx::kernels {

KTX_CPU_AND_GPU inline uint64_t load64(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}
KTX_CPU_AND_GPU inline uint32_t load32(const std::byte* at) {
  uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}
// At a multiple of 4.
KTX_CPU_AND_GPU inline uint32_t load_aligned32(const std::byte* at) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const uint32_t*>(at);
#else
  return load32(at);
#endif
}
// A GPU writes tiles, whose words are aligned.
KTX_CPU_AND_GPU inline void store64(std::byte* at, uint64_t word) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint64_t*>(at) = word;
#else
  std::memcpy(at, &word, 8);
#endif
}
KTX_CPU_AND_GPU inline void store32(std::byte* at, uint32_t word) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<uint32_t*>(at) = word;
#else
  std::memcpy(at, &word, 4);
#endif
}

// The value in every byte.
KTX_CPU_AND_GPU constexpr uint64_t bytes_of(uint8_t value) {
  return 0x0101010101010101u * value;
}

// Bytes 0 2 1 3 of both halves; undoes itself.
KTX_CPU_AND_GPU inline uint64_t middle_bytes_swapped(uint64_t x) {
  constexpr uint64_t kSecond = 0x0000FF000000FF00;
  return (x & ~(kSecond | kSecond << 8)) | (x & kSecond) << 8 | (x >> 8 & kSecond);
}

// Bit i of byte j becomes bit j of byte i; undoes itself.
KTX_CPU_AND_GPU inline uint64_t bits_transposed(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AA;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000CCCC0000CCCC;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000F0F0F0F0;
  return x ^ t ^ t << 28;
}

// Bits of the columns of two rows, a byte for eight columns, to those of even columns
// (row a's in even places, row b's beside them) and of odd columns; and back.
struct EvenOdd {
  uint64_t even, odd;
};
KTX_CPU_AND_GPU inline EvenOdd even_odd(uint64_t a, uint64_t b) {
  constexpr uint64_t kEven = bytes_of(0x55), kOdd = bytes_of(0xAA);
  return {(a & kEven) | (b & kEven) << 1, (a >> 1 & kEven) | (b & kOdd)};
}
KTX_CPU_AND_GPU inline void from_even_odd(EvenOdd x, uint64_t& a, uint64_t& b) {
  constexpr uint64_t kEven = bytes_of(0x55), kOdd = bytes_of(0xAA);
  a = (x.even & kEven) | (x.odd & kEven) << 1;
  b = (x.even >> 1 & kEven) | (x.odd & kOdd);
}

// The nibbles of eight bytes, those of even bytes in the low half of the word; and back.
KTX_CPU_AND_GPU inline uint32_t nibbles_gathered(uint64_t x) {
  constexpr uint64_t kBytes = 0x000F000F000F000F;
  uint64_t even = x & kBytes, odd = x >> 8 & kBytes;
  even = (even | even >> 12) & 0x000000FF000000FF;
  odd = (odd | odd >> 12) & 0x000000FF000000FF;
  even |= even >> 24;
  odd |= odd >> 24;
  return static_cast<uint32_t>((even & 0xFFFF) | (odd & 0xFFFF) << 16);
}
KTX_CPU_AND_GPU inline uint64_t nibbles_spread(uint32_t x) {
  uint64_t even = x & 0xFFFF, odd = x >> 16;
  even = (even | even << 24) & 0x000000FF000000FF;
  odd = (odd | odd << 24) & 0x000000FF000000FF;
  even = (even | even << 12) & 0x000F000F000F000F;
  odd = (odd | odd << 12) & 0x000F000F000F000F;
  return even | odd << 8;
}

// Two bytes of every four from the lower or the upper half of a word; and back.
KTX_CPU_AND_GPU inline uint64_t pairs_spread(uint64_t x) {
  x &= 0xFFFFFFFF;
  return (x | x << 16) & 0x0000FFFF0000FFFF;
}
KTX_CPU_AND_GPU inline uint64_t pairs_gathered(uint64_t x) {
  x &= 0x0000FFFF0000FFFF;
  return (x | x >> 16) & 0xFFFFFFFF;
}

// Where in a block the low codes of columns 8 * t .. 8 * t + 7 of a chunk are: bits
// `shift` .. `shift` + 3 of the eight bytes from `byte` on.
struct CodePlace {
  size_t byte;
  int shift;
};
template <class Block>
KTX_CPU_AND_GPU constexpr CodePlace code_place(int chunk, int t) {
  if constexpr (requires { &Block::low; }) {  // Q6_K
    return {offsetof(Block, low) + static_cast<size_t>(chunk / 4 * 64 + chunk % 2 * 32 + 8 * t),
            chunk % 4 / 2 * 4};
  } else if constexpr (requires { &Block::min; }) {  // Q4_K, Q5_K
    return {offsetof(Block, codes) + static_cast<size_t>(chunk / 2 * 32 + 8 * t), chunk % 2 * 4};
  } else {  // halves of 32
    return {offsetof(Block, codes) + static_cast<size_t>(chunk * 16 + t % 2 * 8), t / 2 * 4};
  }
}

// The header of a block (and its tail) in the order of the planes; and back. `block` keeps
// its codes.
template <class Block>
KTX_CPU_AND_GPU void pack_header(const std::byte* block, std::byte* header, std::byte* tail) {
  if constexpr (requires { &Block::low; }) {  // Q6_K: scales of even groups, then of odd ones
    constexpr uint64_t kEven = 0x00FF00FF00FF00FF;
    const auto gathered = [](uint64_t x) {  // four bytes of eight
      x &= kEven;
      x = (x | x >> 8) & 0x0000FFFF0000FFFF;
      return (x | x >> 16) & 0xFFFFFFFF;
    };
    const uint64_t first = load64(block + offsetof(Block, scales));
    const uint64_t second = load64(block + offsetof(Block, scales) + 8);
    store64(header, gathered(first) | gathered(second) << 32);
    store64(header + 8, gathered(first >> 8) | gathered(second >> 8) << 32);
    std::memcpy(tail, block + offsetof(Block, scale), 2);
  } else if constexpr (requires { &Block::min; }) {  // Q4_K, Q5_K: marlin_scalar.cc has the bits
    constexpr uint32_t kLow = 0x0F0F0F0F, kTwo = 0x03030303;
    const uint32_t scale = load32(block + 4), min = load32(block + 8), upper = load32(block + 12);
    store32(header, load32(block));
    store32(header + 4, (scale & kLow) | (upper & kLow) << 4);
    store32(header + 8, (min & kLow) | (upper & ~kLow));
    store32(header + 12, (scale >> 4 & kTwo) | (scale >> 6 & kTwo) << 2 | (min >> 4 & kTwo) << 4 |
                             (min >> 6 & kTwo) << 6);
  } else {
    std::memcpy(header, block, MarlinForm<Block>::kHeader);
  }
}
template <class Block>
void unpack_header(const std::byte* header, const std::byte* tail, std::byte* block) {
  if constexpr (requires { &Block::low; }) {
    const auto spread = [](uint64_t x) {
      x &= 0xFFFFFFFF;
      x = (x | x << 16) & 0x0000FFFF0000FFFF;
      return (x | x << 8) & 0x00FF00FF00FF00FF;
    };
    const uint64_t even = load64(header), odd = load64(header + 8);
    store64(block + offsetof(Block, scales), spread(even) | spread(odd) << 8);
    store64(block + offsetof(Block, scales) + 8, spread(even >> 32) | spread(odd >> 32) << 8);
    std::memcpy(block + offsetof(Block, scale), tail, 2);
  } else if constexpr (requires { &Block::min; }) {
    constexpr uint32_t kLow = 0x0F0F0F0F, kTwo = 0x03030303;
    const uint32_t scales = load32(header + 4), mins = load32(header + 8);
    const uint32_t top = load32(header + 12);
    store32(block, load32(header));
    store32(block + 4, (scales & kLow) | (top & kTwo) << 4 | (top >> 2 & kTwo) << 6);
    store32(block + 8, (mins & kLow) | (top >> 4 & kTwo) << 4 | (top >> 6 & kTwo) << 6);
    store32(block + 12, (scales >> 4 & kLow) | (mins & ~kLow));
  } else {
    std::memcpy(block, header, MarlinForm<Block>::kHeader);
  }
}

}  // namespace ktx::kernels
