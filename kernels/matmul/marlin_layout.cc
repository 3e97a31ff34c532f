// The packer of the layout `marlin`, a tile at a time: rows g and g + 8, a block, a chunk of
// 32 columns, eight columns (marlin_words.h). marlin_scalar.cc says the same weight by
// weight.
//
// Tiles at an edge (rows or columns that are padding) go through a buffer of 16 whole rows
// with zeros in it, so that the loops know full tiles only.
#include "kernels/matmul/marlin_layout.h"

#include <algorithm>
#include <cstring>

#include "kernels/matmul/marlin_form.h"
#include "kernels/matmul/marlin_pack.h"
#include "kernels/matmul/marlin_words.h"
#include "lib/support/result.h"

namespace ktx::kernels {
namespace {

// The bytes of the 16 rows in a tile.
template <class Byte>
using TileRows = Byte* (&)[kMarlinRows];

template <class Block>
void unpack_low(const std::byte* plane, int g, int chunk, int c, std::byte* a, std::byte* b) {
  constexpr int kLow = MarlinForm<Block>::kLow;
  for (int t = 0; t < 4; ++t) {
    const std::byte* in = plane + low_place<kLow>(4 * g + t, chunk);
    if constexpr (kLow == 8) {
      const size_t at = offsetof(Block, codes) + static_cast<size_t>(8 * t);
      const uint64_t x = load64(in), y = load64(in + 8);
      store64(a + at, pairs_gathered(x) | pairs_gathered(y) << 32);
      store64(b + at, pairs_gathered(x >> 16) | pairs_gathered(y >> 16) << 32);
    } else {
      // The low nibbles of eight bytes come before the high ones, in every format.
      constexpr uint64_t kNibbles = bytes_of(15);
      const CodePlace to = code_place<Block>(c, t);
      const uint64_t x = middle_bytes_swapped(load64(in));
      const uint64_t x_codes = (x & kNibbles) << to.shift, y_codes = (x >> 4 & kNibbles)
                                                                     << to.shift;
      store64(a + to.byte, to.shift ? load64(a + to.byte) | x_codes : x_codes);
      store64(b + to.byte, to.shift ? load64(b + to.byte) | y_codes : y_codes);
    }
  }
}

template <class Block>
void unpack_high_narrow(const std::byte* plane, int g, int chunk, std::byte* a, std::byte* b) {
  const std::byte* in = plane + chunk / 2 * 128 + g * 16 + chunk % 2;
  EvenOdd bits{};
  for (int t = 0; t < 4; ++t) {
    bits.even |= static_cast<uint64_t>(in[4 * t]) << (8 * t);
    bits.odd |= static_cast<uint64_t>(in[4 * t + 2]) << (8 * t);
  }
  uint64_t x, y;
  from_even_odd(bits, x, y);
  store32(a + offsetof(Block, high), static_cast<uint32_t>(x));
  store32(b + offsetof(Block, high), static_cast<uint32_t>(y));
}

template <class Block>
void unpack_high_wide(const std::byte* plane, int g, int t, std::byte* a, std::byte* b) {
  const size_t at = offsetof(Block, high) + static_cast<size_t>(8 * t);
  const std::byte* in = plane + (4 * g + t) * 16;
  if constexpr (MarlinForm<Block>::kHigh == 1) {
    EvenOdd bits{};
    for (int half = 0; half < 2; ++half) {
      const uint64_t words = load64(in + 8 * half);
      bits.even |= pairs_gathered(words) << (32 * half);
      bits.odd |= pairs_gathered(words >> 16) << (32 * half);
    }
    uint64_t x, y;
    from_even_odd(bits, x, y);
    store64(a + at, bits_transposed(x));
    store64(b + at, bits_transposed(y));
  } else {
    for (int half = 0; half < 2; ++half) {
      uint64_t x = 0, y = 0;
      for (int i = 0; i < 4; ++i) {
        const uint64_t codes = nibbles_spread(load32(in + half * 512 + i * 4));
        x |= (codes & bytes_of(3)) << (2 * i);
        y |= (codes >> 2 & bytes_of(3)) << (2 * i);
      }
      store64(a + at + static_cast<size_t>(half * 32), x);
      store64(b + at + static_cast<size_t>(half * 32), y);
    }
  }
}

template <class Block>
void pack_tile(const TilePlanes<Block>& planes, TileRows<const std::byte> rows, std::byte* tile) {
  for (int g = 0; g < 8; ++g) {
    for (int block = 0; block < planes.blocks; ++block) {
      pack_blocks<Block>(planes, rows[g] + block * int64_t{sizeof(Block)},
                         rows[g + 8] + block * int64_t{sizeof(Block)}, g, block, tile);
    }
  }
}

template <class Block>
void unpack_tile(const TilePlanes<Block>& planes, const std::byte* tile, TileRows<std::byte> rows) {
  using Form = MarlinForm<Block>;
  constexpr int kChunks = Form::kElems / 32;
  for (int g = 0; g < 8; ++g) {
    for (int block = 0; block < planes.blocks; ++block) {
      std::byte* a = rows[g] + block * int64_t{sizeof(Block)};
      std::byte* b = rows[g + 8] + block * int64_t{sizeof(Block)};
      unpack_header<Block>(tile + planes.header_of(g, block), tile + planes.tail_of(g, block), a);
      unpack_header<Block>(tile + planes.header_of(g + 8, block),
                           tile + planes.tail_of(g + 8, block), b);
      for (int c = 0; c < kChunks; ++c) unpack_low<Block>(tile, g, block * kChunks + c, c, a, b);
      if constexpr (Form::kHigh > 0 && Form::kWide) {
        for (int t = 0; t < 4; ++t) unpack_high_wide<Block>(tile + planes.high, g, t, a, b);
      } else if constexpr (Form::kHigh > 0) {
        unpack_high_narrow<Block>(tile + planes.high, g, block, a, b);
      }
    }
  }
}

// 16 rows of a tile of our own.
template <class Block>
struct EdgeRows {
  static constexpr int64_t kRowBytes =
      kMarlinCols / MarlinForm<Block>::kElems * int64_t{sizeof(Block)};
  std::byte bytes[kMarlinRows][kRowBytes] = {};
};

// The part of a row that a tile has, with its columns from `begin` on: where that part begins in
// the row, and how many of its bytes are weights.
template <class Block>
struct RowPart {
  int64_t offset, bytes;
  RowPart(int64_t cols, int64_t begin, int64_t width)
      : offset(begin / MarlinForm<Block>::kElems * int64_t{sizeof(Block)}),
        bytes(std::min(width, cols - begin) / MarlinForm<Block>::kElems * int64_t{sizeof(Block)}) {}
};

template <class Block>
void pack_strip(int64_t cols, std::span<const std::byte* const, 16> rows, std::byte* strip) {
  const bool full = std::ranges::find(rows, nullptr) == rows.end();
  for_each_tile<Block>(cols, [&](int64_t offset, int64_t begin, const TilePlanes<Block>& planes) {
    const RowPart<Block> part(cols, begin, planes.cols);
    const std::byte* from[kMarlinRows];
    if (full && begin + planes.cols <= cols) {
      for (int r = 0; r < kMarlinRows; ++r) from[r] = rows[r] + part.offset;
      return pack_tile<Block>(planes, from, strip + offset);
    }
    EdgeRows<Block> edge;
    for (int r = 0; r < kMarlinRows; ++r) {
      from[r] = edge.bytes[r];
      if (rows[r])
        std::memcpy(edge.bytes[r], rows[r] + part.offset, static_cast<size_t>(part.bytes));
    }
    pack_tile<Block>(planes, from, strip + offset);
  });
}

template <class Block>
bool unpack_strip(int64_t cols, const std::byte* strip, int used_rows,
                  std::span<std::byte* const, 16> rows) {
  const bool full = used_rows == kMarlinRows && std::ranges::find(rows, nullptr) == rows.end();
  bool clean = true;
  for_each_tile<Block>(cols, [&](int64_t offset, int64_t begin, const TilePlanes<Block>& planes) {
    const RowPart<Block> part(cols, begin, planes.cols);
    std::byte* to[kMarlinRows];
    if (full && begin + planes.cols <= cols) {
      for (int r = 0; r < kMarlinRows; ++r) to[r] = rows[r] + part.offset;
      return unpack_tile<Block>(planes, strip + offset, to);
    }
    EdgeRows<Block> edge;
    for (int r = 0; r < kMarlinRows; ++r) to[r] = edge.bytes[r];
    unpack_tile<Block>(planes, strip + offset, to);
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    for (int r = 0; r < kMarlinRows; ++r) {
      const int64_t weights = r < used_rows ? part.bytes : 0;
      clean = clean && std::all_of(to[r] + weights, to[r] + EdgeRows<Block>::kRowBytes, is_zero);
      if (weights && rows[r]) {
        std::memcpy(rows[r] + part.offset, to[r], static_cast<size_t>(weights));
      }
    }
  });
  return clean;
}

// The functions of one dtype; null where marlin does not take it.
struct MarlinFunctions {
  int64_t (*strip_bytes)(int64_t) = nullptr;
  void (*pack)(int64_t, std::span<const std::byte* const, 16>, std::byte*) = nullptr;
  bool (*unpack)(int64_t, const std::byte*, int, std::span<std::byte* const, 16>) = nullptr;
};

template <class Block>
constexpr MarlinFunctions marlin_functions() {
  if constexpr (InMarlin<Block>) {
    return {strip_bytes<Block>, pack_strip<Block>, unpack_strip<Block>};
  } else {
    return {};
  }
}

constexpr MarlinFunctions kMarlin[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) marlin_functions<Block##id>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

const MarlinFunctions& functions(DType dtype) {
  KTX_ASSERT(marlin_takes(dtype));
  return kMarlin[static_cast<size_t>(dtype)];
}

}  // namespace

bool marlin_takes(DType dtype) {
  return kMarlin[static_cast<size_t>(dtype)].pack != nullptr;
}

int64_t marlin_strip_bytes(DType dtype, int64_t cols) {
  return functions(dtype).strip_bytes(cols);
}

int64_t marlin_matrix_bytes(DType dtype, int64_t rows, int64_t cols) {
  return (rows + kMarlinRows - 1) / kMarlinRows * marlin_strip_bytes(dtype, cols);
}

void marlin_pack_strip(DType dtype, int64_t cols, std::span<const std::byte* const, 16> rows,
                       std::byte* strip) {
  functions(dtype).pack(cols, rows, strip);
}

bool marlin_unpack_strip(DType dtype, int64_t cols, const std::byte* strip, int used_rows,
                         std::span<std::byte* const, 16> rows) {
  return functions(dtype).unpack(cols, strip, used_rows, rows);
}

}  // namespace ktx::kernels
