// Two blocks of a strip, of rows g and g + 8, into the planes of a tile of the layout `marlin`:
// what the packer does for all of them (marlin_layout.cc), and a GPU's thread for its own
// (retile.h).
#pragma once

#include "kernels/cpu_and_gpu.h"
#include "kernels/matmul/marlin_words.h"

namespace ktx::kernels {

// Where the plane of low codes has the first column of eight.
template <int bits>
KTX_CPU_AND_GPU int64_t low_place(int lane, int chunk) {
  return bits == 8 ? chunk * 512 + lane * 16 : chunk / 2 * 512 + lane * 16 + chunk % 2 * 8;
}

// Chunk `chunk` of the tile is chunk `c` of the blocks of rows g and g + 8.
template <class Block>
KTX_CPU_AND_GPU void pack_low(const std::byte* a, const std::byte* b, int c, int g, int chunk,
                              std::byte* plane) {
  constexpr int kLow = MarlinForm<Block>::kLow;
  KTX_GPU_UNROLL
  for (int t = 0; t < 4; ++t) {
    std::byte* out = plane + low_place<kLow>(4 * g + t, chunk);
    if constexpr (kLow == 8) {
      const size_t at = offsetof(Block, codes) + static_cast<size_t>(8 * t);
      const uint64_t x = load64(a + at), y = load64(b + at);
      store64(out, pairs_spread(x) | pairs_spread(y) << 16);
      store64(out + 8, pairs_spread(x >> 32) | pairs_spread(y >> 32) << 16);
    } else {
      constexpr uint64_t kNibbles = bytes_of(15);
      const CodePlace from = code_place<Block>(c, t);
      const uint64_t x = load64(a + from.byte) >> from.shift & kNibbles;
      const uint64_t y = load64(b + from.byte) >> from.shift & kNibbles;
      store64(out, middle_bytes_swapped(x | y << 4));
    }
  }
}
// High codes of a block of 32: `chunk` is its number in the tile.
template <class Block>
KTX_CPU_AND_GPU void pack_high_narrow(const std::byte* a, const std::byte* b, int g, int chunk,
                                      std::byte* plane) {
  const EvenOdd bits =
      even_odd(load32(a + offsetof(Block, high)), load32(b + offsetof(Block, high)));
  std::byte* out = plane + chunk / 2 * 128 + g * 16 + chunk % 2;
  KTX_GPU_UNROLL
  for (int t = 0; t < 4; ++t) {
    out[4 * t] = static_cast<std::byte>(bits.even >> (8 * t));
    out[4 * t + 2] = static_cast<std::byte>(bits.odd >> (8 * t));
  }
}

// High codes of a block of 256, columns 8 * t .. 8 * t + 7 of all chunks.
template <class Block>
KTX_CPU_AND_GPU void pack_high_wide(const std::byte* a, const std::byte* b, int g, int t,
                                    std::byte* plane) {
  const size_t at = offsetof(Block, high) + static_cast<size_t>(8 * t);
  std::byte* out = plane + (4 * g + t) * 16;
  if constexpr (MarlinForm<Block>::kHigh == 1) {
    const EvenOdd bits = even_odd(bits_transposed(load64(a + at)), bits_transposed(load64(b + at)));
    KTX_GPU_UNROLL
    for (int half = 0; half < 2; ++half) {  // words c / 2 of four chunks
      store64(out + 8 * half,
              pairs_spread(bits.even >> (32 * half)) | pairs_spread(bits.odd >> (32 * half)) << 16);
    }
  } else {
    KTX_GPU_UNROLL
    for (int chunk = 0; chunk < 8; ++chunk) {
      const size_t half = at + static_cast<size_t>(chunk / 4 * 32);
      const uint64_t x = load64(a + half) >> (2 * (chunk % 4)) & bytes_of(3);
      const uint64_t y = load64(b + half) >> (2 * (chunk % 4)) & bytes_of(3);
      store32(out + chunk / 4 * 512 + chunk % 4 * 4, nibbles_gathered(x | y << 2));
    }
  }
}

// Blocks number `block` of the tile.
template <class Block>
KTX_CPU_AND_GPU void pack_blocks(const TilePlanes<Block>& planes, const std::byte* a,
                                 const std::byte* b, int g, int block, std::byte* tile) {
  using Form = MarlinForm<Block>;
  constexpr int kChunks = Form::kElems / 32;  // of a block
  pack_header<Block>(a, tile + planes.header_of(g, block), tile + planes.tail_of(g, block));
  pack_header<Block>(b, tile + planes.header_of(g + 8, block), tile + planes.tail_of(g + 8, block));
  KTX_GPU_UNROLL
  for (int c = 0; c < kChunks; ++c) pack_low<Block>(a, b, c, g, block * kChunks + c, tile);
  if constexpr (Form::kHigh > 0 && Form::kWide) {
    KTX_GPU_UNROLL
    for (int t = 0; t < 4; ++t) pack_high_wide<Block>(a, b, g, t, tile + planes.high);
  } else if constexpr (Form::kHigh > 0) {
    pack_high_narrow<Block>(a, b, g, block, tile + planes.high);
  }
}

}  // namespace ktx::kernels
