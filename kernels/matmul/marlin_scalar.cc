// The layout `marlin` weight by weight, as its description says: what the packer of
// marlin_layout.cc is held to.
#include "kernels/matmul/marlin_layout.h"

#include <cstring>

#include "kernels/matmul/marlin_form.h"
#include "lib/formats/blocks.h"
#include "lib/support/result.h"

namespace ktx::kernels {
namespace {

// How a block of a format is taken apart: its codes as they stand in the block, and the
// rest as a header (and tail).
//
//   code(b, i), put_code(b, i, code)
//   header(b, out), put_header(b, in)
template <class Block>
struct Codec;

// Nibble i of 16 bytes: low halves first.
template <class Bytes>
uint32_t nibble(const Bytes& codes, int i) {
  return codes[i % 16] >> (i / 16 * 4) & 15;
}
template <class Bytes>
void put_nibble(Bytes& codes, int i, uint32_t code) {
  codes[i % 16] = static_cast<uint8_t>(codes[i % 16] | code << (i / 16 * 4));
}

template <class Block>
struct NibbleCodec {
  static uint32_t code(const Block& b, int i) { return nibble(b.codes, i); }
  static void put_code(Block& b, int i, uint32_t code) { put_nibble(b.codes, i, code); }
  static void header(const Block& b, std::byte* out) {
    std::memcpy(out, &b, MarlinForm<Block>::kHeader);
  }
  static void put_header(Block& b, const std::byte* in) {
    std::memcpy(&b, in, MarlinForm<Block>::kHeader);
  }
};
template <>
struct Codec<BlockQ4_0> : NibbleCodec<BlockQ4_0> {};
template <>
struct Codec<BlockQ4_1> : NibbleCodec<BlockQ4_1> {};
template <>
struct Codec<BlockIQ4_NL> : NibbleCodec<BlockIQ4_NL> {};
template <>
struct Codec<BlockMXFP4> : NibbleCodec<BlockMXFP4> {};

template <class Block>
struct FiveBitCodec {
  static uint32_t code(const Block& b, int i) {
    return nibble(b.codes, i) | (b.high[i / 8] >> (i % 8) & 1u) << 4;
  }
  static void put_code(Block& b, int i, uint32_t code) {
    put_nibble(b.codes, i, code & 15);
    b.high[i / 8] = static_cast<uint8_t>(b.high[i / 8] | (code >> 4) << (i % 8));
  }
  static void header(const Block& b, std::byte* out) {
    std::memcpy(out, &b, MarlinForm<Block>::kHeader);
  }
  static void put_header(Block& b, const std::byte* in) {
    std::memcpy(&b, in, MarlinForm<Block>::kHeader);
  }
};
template <>
struct Codec<BlockQ5_0> : FiveBitCodec<BlockQ5_0> {};
template <>
struct Codec<BlockQ5_1> : FiveBitCodec<BlockQ5_1> {};

template <>
struct Codec<BlockQ8_0> {
  static uint32_t code(const BlockQ8_0& b, int i) { return static_cast<uint8_t>(b.codes[i]); }
  static void put_code(BlockQ8_0& b, int i, uint32_t code) {
    b.codes[i] = static_cast<int8_t>(static_cast<uint8_t>(code));
  }
  static void header(const BlockQ8_0& b, std::byte* out) { std::memcpy(out, &b, 2); }
  static void put_header(BlockQ8_0& b, const std::byte* in) { std::memcpy(&b, in, 2); }
};

// The twelve bytes of 6-bit scales and mins as three words, so that four scales come out
// with one mask. Byte i (0..3) of
//   word 0: low four bits of scale i, then of scale i + 4
//   word 1: the same of the mins
//   word 2: the top two bits of scale i, scale i + 4, min i, min i + 4
void split_scales(const uint8_t (&in)[12], uint8_t (&out)[12]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t scale = in[i], min = in[4 + i], upper = in[8 + i];
    out[i] = static_cast<uint8_t>((scale & 15) | (upper & 15) << 4);
    out[4 + i] = static_cast<uint8_t>((min & 15) | (upper >> 4) << 4);
    out[8 + i] = static_cast<uint8_t>((scale >> 4 & 3) | (scale >> 6) << 2 | (min >> 4 & 3) << 4 |
                                      (min >> 6) << 6);
  }
}
void join_scales(const uint8_t (&in)[12], uint8_t (&out)[12]) {
  for (int i = 0; i < 4; ++i) {
    const uint32_t scales = in[i], mins = in[4 + i], top = in[8 + i];
    out[i] = static_cast<uint8_t>((scales & 15) | (top & 3) << 4 | (top >> 2 & 3) << 6);
    out[4 + i] = static_cast<uint8_t>((mins & 15) | (top >> 4 & 3) << 4 | (top >> 6) << 6);
    out[8 + i] = static_cast<uint8_t>((scales >> 4) | (mins >> 4) << 4);
  }
}

template <class Block>
struct ScaleMinCodec {
  static uint32_t low(const Block& b, int i) {
    return b.codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
  }
  static void put_low(Block& b, int i, uint32_t code) {
    uint8_t& byte = b.codes[i / 64 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | code << (i % 64 / 32 * 4));
  }
  static void header(const Block& b, std::byte* out) {
    uint8_t words[12];
    split_scales(b.scales, words);
    std::memcpy(out, &b, 4);
    std::memcpy(out + 4, words, 12);
  }
  static void put_header(Block& b, const std::byte* in) {
    uint8_t words[12];
    std::memcpy(words, in + 4, 12);
    std::memcpy(&b, in, 4);
    join_scales(words, b.scales);
  }
};
template <>
struct Codec<BlockQ4_K> : ScaleMinCodec<BlockQ4_K> {
  static uint32_t code(const BlockQ4_K& b, int i) { return low(b, i); }
  static void put_code(BlockQ4_K& b, int i, uint32_t code) { put_low(b, i, code); }
};
template <>
struct Codec<BlockQ5_K> : ScaleMinCodec<BlockQ5_K> {
  static uint32_t code(const BlockQ5_K& b, int i) {
    return low(b, i) | (b.high[i % 32] >> (i / 32) & 1u) << 4;
  }
  static void put_code(BlockQ5_K& b, int i, uint32_t code) {
    put_low(b, i, code & 15);
    b.high[i % 32] = static_cast<uint8_t>(b.high[i % 32] | (code >> 4) << (i / 32));
  }
};

// Header: scale of the even groups of 16, then of the odd ones. Tail: the half.
template <>
struct Codec<BlockQ6_K> {
  static int low_byte(int i) { return i / 128 * 64 + i % 64; }
  static int low_shift(int i) { return i % 128 / 64 * 4; }
  static int high_byte(int i) { return i / 128 * 32 + i % 32; }
  static int high_shift(int i) { return i % 128 / 32 * 2; }
  static uint32_t code(const BlockQ6_K& b, int i) {
    return (b.low[low_byte(i)] >> low_shift(i) & 15u) | (b.high[high_byte(i)] >> high_shift(i) & 3u)
                                                            << 4;
  }
  static void put_code(BlockQ6_K& b, int i, uint32_t code) {
    uint8_t& low = b.low[low_byte(i)];
    uint8_t& high = b.high[high_byte(i)];
    low = static_cast<uint8_t>(low | (code & 15) << low_shift(i));
    high = static_cast<uint8_t>(high | (code >> 4) << high_shift(i));
  }
  static void header(const BlockQ6_K& b, std::byte* out) {
    for (int i = 0; i < 16; ++i) out[i % 2 * 8 + i / 2] = static_cast<std::byte>(b.scales[i]);
    std::memcpy(out + 16, &b.scale, 2);
  }
  static void put_header(BlockQ6_K& b, const std::byte* in) {
    for (int i = 0; i < 16; ++i) {
      b.scales[i] = static_cast<int8_t>(static_cast<uint8_t>(in[i % 2 * 8 + i / 2]));
    }
    std::memcpy(&b.scale, in + 16, 2);
  }
};

template <>
struct Codec<BlockIQ4_XS> {
  static uint32_t code(const BlockIQ4_XS& b, int i) {
    return b.codes[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
  }
  static void put_code(BlockIQ4_XS& b, int i, uint32_t code) {
    uint8_t& byte = b.codes[i / 32 * 16 + i % 16];
    byte = static_cast<uint8_t>(byte | code << (i % 32 / 16 * 4));
  }
  static void header(const BlockIQ4_XS& b, std::byte* out) { std::memcpy(out, &b, 8); }
  static void put_header(BlockIQ4_XS& b, const std::byte* in) { std::memcpy(&b, in, 8); }
};

// Where weight (row, col) of a tile has its bits. col: 0..255 in the tile.
struct Place {
  int lane, step, pair, element, chunk;  // chunk: col / 32
  Place(int row, int col)
      : lane(row % 8 * 4 + col % 32 / 8),
        step(col % 8 / 4),
        pair(row / 8 + col % 4 / 2 * 2),
        element(col % 2),
        chunk(col / 32) {}
  // Bit number in the plane of low codes (4 or 8 bits each) and high codes (1 or 2).
  int64_t low_bit(int bits) const {
    if (bits == 8) return 8 * (chunk * 512 + lane * 16 + 8 * step + 2 * pair + element);
    const int word = chunk / 2 * 128 + lane * 4 + chunk % 2 * 2 + step;
    return word * int64_t{32} + 4 * (pair + 4 * element);
  }
  // `wide`: the format has blocks of 256.
  int64_t high_bit(int bits, bool wide) const {
    const int bit = bits == 1 ? 8 * (chunk % 2) + 4 * step + pair : 2 * (4 * step + pair);
    int word = chunk / 2 * 32 + lane;
    if (wide) word = bits == 1 ? lane * 4 + chunk / 2 : chunk / 4 * 128 + lane * 4 + chunk % 4;
    return word * int64_t{32} + bit + 16 * element;
  }
};

void put_bits(std::byte* plane, int64_t bit, uint32_t value) {
  plane[bit / 8] |= static_cast<std::byte>(value << (bit % 8));
}
uint32_t get_bits(const std::byte* plane, int64_t bit, int bits) {
  return static_cast<uint32_t>(plane[bit / 8]) >> (bit % 8) & ((1u << bits) - 1);
}

template <class Block>
void pack_strip(int64_t cols, std::span<const std::byte* const, 16> rows, std::byte* strip) {
  using C = Codec<Block>;
  using Form = MarlinForm<Block>;
  std::memset(strip, 0, static_cast<size_t>(strip_bytes<Block>(cols)));
  for_each_tile<Block>(cols, [&](int64_t offset, int64_t begin, const TilePlanes<Block>& planes) {
    std::byte* tile = strip + offset;
    for (int row = 0; row < kMarlinRows; ++row) {
      if (!rows[row]) continue;
      for (int b = 0; b < planes.blocks && begin + b * Form::kElems < cols; ++b) {
        Block block;
        std::memcpy(&block, rows[row] + (begin / Form::kElems + b) * int64_t{sizeof(Block)},
                    sizeof block);
        std::byte rest[Form::kHeader + Form::kTail];
        C::header(block, rest);
        std::memcpy(tile + planes.header_of(row, b), rest, Form::kHeader);
        if (Form::kTail)
          std::memcpy(tile + planes.tail_of(row, b), rest + Form::kHeader, Form::kTail);
        for (int i = 0; i < Form::kElems; ++i) {
          const Place place(row, b * Form::kElems + i);
          const uint32_t code = C::code(block, i);
          put_bits(tile, place.low_bit(Form::kLow), code & ((1u << Form::kLow) - 1));
          if (Form::kHigh) {
            put_bits(tile + planes.high, place.high_bit(Form::kHigh, Form::kWide),
                     code >> Form::kLow);
          }
        }
      }
    }
  });
}

template <class Block>
bool unpack_strip(int64_t cols, const std::byte* strip, int used_rows,
                  std::span<std::byte* const, 16> rows) {
  using C = Codec<Block>;
  using Form = MarlinForm<Block>;
  constexpr std::byte kZero[sizeof(Block)] = {};
  bool clean = true;
  for_each_tile<Block>(cols, [&](int64_t offset, int64_t begin, const TilePlanes<Block>& planes) {
    const std::byte* tile = strip + offset;
    for (int row = 0; row < kMarlinRows; ++row) {
      for (int b = 0; b < planes.blocks; ++b) {
        Block block{};
        std::byte rest[Form::kHeader + Form::kTail];
        std::memcpy(rest, tile + planes.header_of(row, b), Form::kHeader);
        if (Form::kTail)
          std::memcpy(rest + Form::kHeader, tile + planes.tail_of(row, b), Form::kTail);
        C::put_header(block, rest);
        for (int i = 0; i < Form::kElems; ++i) {
          const Place place(row, b * Form::kElems + i);
          uint32_t code = get_bits(tile, place.low_bit(Form::kLow), Form::kLow);
          if (Form::kHigh) {
            code |=
                get_bits(tile + planes.high, place.high_bit(Form::kHigh, Form::kWide), Form::kHigh)
                << Form::kLow;
          }
          C::put_code(block, i, code);
        }
        const int64_t column = begin + b * Form::kElems;
        if (row >= used_rows || column >= cols) {
          clean = clean && std::memcmp(&block, kZero, sizeof block) == 0;
        } else if (rows[row]) {
          std::memcpy(rows[row] + column / Form::kElems * int64_t{sizeof(Block)}, &block,
                      sizeof block);
        }
      }
    }
  });
  return clean;
}

// The functions of one dtype; null where marlin does not take it.
struct ScalarFunctions {
  void (*pack)(int64_t, std::span<const std::byte* const, 16>, std::byte*) = nullptr;
  bool (*unpack)(int64_t, const std::byte*, int, std::span<std::byte* const, 16>) = nullptr;
};

template <class Block>
constexpr ScalarFunctions scalar_functions() {
  if constexpr (InMarlin<Block>) return {pack_strip<Block>, unpack_strip<Block>};
  return {};
}

constexpr ScalarFunctions kScalar[] = {
#define KTX_DTYPE(id, name, gguf, elems, bytes) scalar_functions<Block##id>(),
#include "lib/formats/dtype.def"
#undef KTX_DTYPE
};

const ScalarFunctions& functions(DType dtype) {
  KTX_ASSERT(marlin_takes(dtype));
  return kScalar[static_cast<size_t>(dtype)];
}

}  // namespace

void marlin_pack_strip_scalar(DType dtype, int64_t cols, std::span<const std::byte* const, 16> rows,
                              std::byte* strip) {
  functions(dtype).pack(cols, rows, strip);
}

bool marlin_unpack_strip_scalar(DType dtype, int64_t cols, const std::byte* strip, int used_rows,
                                std::span<std::byte* const, 16> rows) {
  return functions(dtype).unpack(cols, strip, used_rows, rows);
}

}  // namespace ktx::kernels
