// The layout `marlin`: weights of block formats in the order in which a GPU's tensor
// cores want them, bit for bit the same weights (no requantisation). Packed on the CPU.
//
// A matrix is cut into strips of 16 rows (the last padded with zero rows), a strip into
// tiles of 256 columns; all tiles of a strip stand in a row, then comes the next strip.
// The last tile of a strip has `spans` = 1..4 spans of 64 columns (formats with blocks of
// 32; an odd block count is padded by a zero block), all others have 4.
//
// A tile is read by one warp. Lane l = 4 * g + t owns rows g and g + 8, and of every 32
// columns the eight from 8 * t on. Two steps of mma.m16n8k16 take such 32 columns: step s
// takes columns 8t + 4s .. 8t + 4s + 3. The eight weights of a lane in a step are four
// pairs, element e of pair p being
//
//   row g + 8 * (p % 2), column 32 * c + 8 * t + 4 * s + 2 * (p / 2) + e
//
// which is the A fragment of the instruction with its k permuted (the same permutation
// gives B fragments as 16 neighbouring bytes of an activation row). Planes of a tile:
//
//   low codes  4 bits: per span 512 bytes, 16 a lane: word 2 * (c % 2) + s has element e
//              of pair p in nibble p + 4 * e
//              8 bits: per 32 columns 512 bytes, 16 a lane: byte 8 * s + 2 * p + e
//   high codes formats with blocks of 32, 1 bit: per span 128 bytes, one word a lane
//              formats with blocks of 256, 1 bit: 16 bytes a lane, word c / 2 of them
//                                          2 bits: per 128 columns 512 bytes, 16 a lane,
//                                                  word c % 4 of them
//              1 bit: bit 8 * (c % 2) + 4 * s + p + 16 * e of the word
//              2 bits: bits 2 * (4 * s + p) + 16 * e
//   headers    per row and block of the tile what remains of the block, row after row
//              (marlin_scalar.cc: the 6-bit scales of Q4_K and Q5_K and the scales of
//              Q6_K are put in an order that is quick to read)
//
// A tile has exactly the bytes of its blocks: Q4_K keeps its 4.5 bits a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/formats/dtype.h"

namespace ktx::kernels {

inline constexpr int64_t kMarlinRows = 16;   // of a strip
inline constexpr int64_t kMarlinCols = 256;  // of a full tile
inline constexpr int64_t kMarlinSpan = 64;

// Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4.
bool marlin_takes(DType dtype);

// `cols` is a multiple of the block of a dtype that marlin takes. A multiple of 16.
int64_t marlin_strip_bytes(DType dtype, int64_t cols);
int64_t marlin_matrix_bytes(DType dtype, int64_t rows, int64_t cols);

// One strip from the 16 rows of GGUF bytes that make it up; null rows are padding.
// Neither side needs alignment. Any bytes are right.
void marlin_pack_strip(DType dtype, int64_t cols, std::span<const std::byte* const, 16> rows,
                       std::byte* strip);

// The rows of a strip again; null rows are not wanted. False when what was padding for
// the packer (rows from `used_rows` on, columns from `cols` on) is not zero.
bool marlin_unpack_strip(DType dtype, int64_t cols, const std::byte* strip, int used_rows,
                         std::span<std::byte* const, 16> rows);

// The same weight by weight, a tenth as fast: the reference for tests.
void marlin_pack_strip_scalar(DType dtype, int64_t cols, std::span<const std::byte* const, 16> rows,
                              std::byte* strip);
bool marlin_unpack_strip_scalar(DType dtype, int64_t cols, const std::byte* strip, int used_rows,
                                std::span<std::byte* const, 16> rows);

}  // namespace ktx::kernels
