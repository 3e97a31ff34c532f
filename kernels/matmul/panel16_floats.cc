#include "kernels/matmul/panel16_floats.h"

#include <cstring>
#include <vector>

namespace ktx::kernels {
namespace {

// Pieces of kBytes, of each row in turn: out = | piece 0 of rows 0..15 | piece 1 ... |.
template <int kBytes>
void interleave(const std::byte* const (&rows)[kPanelRows], int64_t begin, int64_t pieces,
                std::byte* out) {
  for (int64_t i = 0; i < pieces; ++i) {
    for (int64_t r = 0; r < kPanelRows; ++r, out += kBytes) {
      std::memcpy(out, rows[r] + begin + i * kBytes, kBytes);
    }
  }
}

template <int kBytes>
void take_pieces(const std::byte* from, int64_t pieces, std::byte* out) {
  for (int64_t i = 0; i < pieces; ++i) {
    std::memcpy(out + i * kBytes, from + i * kBytes * kPanelRows, kBytes);
  }
}

}  // namespace

void pack_float_panel(DType dtype, int64_t cols, const std::byte* const (&rows)[kPanelRows],
                      std::byte* panel) {
  const int64_t elem = info(dtype).block_bytes, columns = *panel16_float_columns(dtype);
  const int64_t piece = elem * columns, whole = cols / columns;
  const std::vector<std::byte> zeros(static_cast<size_t>(cols * elem));
  const std::byte* from[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) from[r] = rows[r] ? rows[r] : zeros.data();
  if (piece == 4) interleave<4>(from, 0, whole, panel);
  if (piece == 2) interleave<2>(from, 0, whole, panel);
  if (whole * columns < cols) {
    interleave<2>(from, whole * piece, 1, panel + whole * piece * kPanelRows);
  }
}

void unpack_float_columns(DType dtype, int64_t cols, const std::byte* panel, int64_t r,
                          int64_t first, int64_t count, std::byte* out) {
  const int64_t elem = info(dtype).block_bytes, columns = *panel16_float_columns(dtype);
  const int64_t paired = cols / columns * columns;
  for (int64_t k = first; k < first + count;) {
    const bool lonely = k >= paired;
    const int64_t piece = lonely ? elem : elem * columns;  // of this column
    const int64_t unit = k / columns, in_unit = lonely ? 0 : k % columns;
    const std::byte* from = panel + unit * columns * elem * kPanelRows + r * piece + in_unit * elem;
    // As many whole pieces as there are; else one column.
    const int64_t end = first + count < paired ? first + count : paired;
    const int64_t pieces = lonely || in_unit != 0 ? 0 : (end - k) / columns;
    std::byte* to = out + (k - first) * elem;
    if (pieces > 0 && piece == 4) take_pieces<4>(from, pieces, to);
    if (pieces > 0 && piece == 2) take_pieces<2>(from, pieces, to);
    if (pieces == 0) std::memcpy(to, from, static_cast<size_t>(elem));
    k += pieces > 0 ? pieces * columns : 1;
  }
}

bool unpack_float_panel(DType dtype, int64_t cols, const std::byte* panel,
                        std::byte* const (&rows)[kPanelRows]) {
  std::vector<std::byte> padding(static_cast<size_t>(cols * info(dtype).block_bytes));
  bool zero = true;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    unpack_float_columns(dtype, cols, panel, r, 0, cols, rows[r] ? rows[r] : padding.data());
    if (rows[r]) continue;
    for (std::byte byte : padding) zero = zero && byte == std::byte{0};
  }
  return zero;
}

}  // namespace ktx::kernels
