// Layout::Panel16 and Panel16Stream: sixteen rows of weights side by side, as int8 dot products
// want them.
//
// 16 rows make a panel. Each of their blocks is cut into 32-bit words, and word w of
// the 16 rows stands together in 64 bytes:
//
//   panel = | block 0: word 0 of rows 0..15 | word 1 of rows 0..15 | ... | block 1 ... |
//           | rest of block 0, rows 0..15 | rest of block 1 ... |
//
// The words of Q2_K, Q3_K, Q5_K and Q6_K are put in the order of their first use (panel16.cc). The
// rest (lib/formats/panel16.def) is what fills no word: a half scale, an exponent. A word of codes
// is four pairs of nibbles or four bytes of neighbouring columns, so that a register
// holds 16 rows x 4 columns: the operand of vpdpbusd, and a row of an AMX tile. Scales
// of 16 rows stand side by side too. Every block is only permuted, so that a panel
// takes exactly the bytes of its rows, and unpacking gives them back. The last panel
// of a matrix is filled up with zero rows. Float weights: panel16_floats.h.
//
// Panel16Stream has a block's rest before its words, and the words of the formats of
// panel16_stream.def in an order in which a kernel meets each once, so that memory is read
// in one rising stream:
//
//   panel = | rest of block 0, rows 0..15 | its words, as above | rest of block 1 | ... |
//
// Panel p of a matrix starts at p * 16 * row_bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/formats/dtype.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {

// rows[r]: the GGUF bytes of row r, or null for a row of zeros. `dtype` must be one of
// panel16.def or panel16_floats.def, for Panel16Stream of panel16_stream.def; cols whole
// blocks. No alignment is needed.
void pack_panel16(DType dtype, int64_t cols, const std::byte* const (&rows)[kPanelRows],
                  std::byte* panel, Layout layout = Layout::Panel16);

// The reverse. Rows that are null are not written but looked at: false when one of
// them is not zero.
bool unpack_panel16(DType dtype, int64_t cols, const std::byte* panel,
                    std::byte* const (&rows)[kPanelRows], Layout layout = Layout::Panel16);

// Block `block` of row r of a panel, block_bytes long.
void unpack_panel16_block(DType dtype, int64_t cols, const std::byte* panel, int64_t r,
                          int64_t block, std::byte* out, Layout layout = Layout::Panel16);

// A blob in panels: `matrices` matrices of rows x cols, whose source is their rows one
// after the other, in slices of whole rows.
struct Panel16Blob {
  DType dtype = DType::F32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 0;
  Layout layout = Layout::Panel16;
};

// Bytes [offset, offset + out.size()) of the packed blob; both are whole panels.
void pack_panel16_range(const Panel16Blob& blob, std::span<const std::span<const std::byte>> slices,
                        uint64_t offset, std::span<std::byte> out);

// Bytes [offset, offset + out.size()) of the source, the slices joined; any range.
// False when padding in the panels that were looked at is not zero.
bool unpack_panel16_range(const Panel16Blob& blob, std::span<const std::byte> packed,
                          uint64_t offset, std::span<std::byte> out);

}  // namespace ktx::kernels
