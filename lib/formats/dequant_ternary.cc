// Scalar decode of the ternary formats. Layouts and equations: blocks.h.
#include "lib/formats/dtype.h"
#include "lib/formats/int8_block.h"

namespace ktx {
namespace {

// Trit `n` of a TQ1_0 byte: 0..2 for any byte.
int trit(uint8_t byte, int n) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  const int shifted = byte * kPowers[n] & 255;
  return shifted * 3 >> 8;
}

// One scale for 256 weights, repeated for the groups of 32 of the int8 form.
void repeat_scale(uint16_t scale, Int8Block out) {
  for (int g = 0; g < 8; ++g) out.scales[g] = half_to_float(scale);
}

}  // namespace

void decode_block(const BlockTQ1_0& in, Int8Block out) {
  repeat_scale(in.scale, out);
  // `count` bytes of `trits` weights each; the weights of a byte are `count` apart.
  const auto decode = [&out](const uint8_t* bytes, int count, int trits, int first) {
    for (int n = 0; n < trits; ++n) {
      for (int j = 0; j < count; ++j) {
        out.codes[first + n * count + j] = static_cast<int8_t>(trit(bytes[j], n) - 1);
      }
    }
  };
  decode(in.codes, 32, 5, 0);
  decode(in.codes + 32, 16, 5, 160);
  decode(in.high, 4, 4, 240);
}

void decode_block(const BlockTQ2_0& in, Int8Block out) {
  repeat_scale(in.scale, out);
  for (int i = 0; i < 256; ++i) {
    const int code = in.codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    out.codes[i] = static_cast<int8_t>(code - 1);
  }
}

}  // namespace ktx
