#include "lib/formats/requantized_form.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "lib/formats/blocks.h"

namespace ktx {
namespace {

constexpr RequantizedForm kForms[] = {
#define KTX_REQUANTIZED(name, dtype, group, sentence) {name, DType::dtype, group, sentence},
#include "lib/formats/requantized_forms.def"
#undef KTX_REQUANTIZED
};

constexpr int64_t kBlock = 32;
constexpr float kLargestHalf = 65504;

uint16_t half_scale(float scale) {
  return float_to_half(std::clamp(scale, -kLargestHalf, kLargestHalf));
}

float largest_magnitude(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  return largest;
}

// The multiples of `step` that 32 weights are nearest to (halfway: the even one), 0 for what
// is no number. A loop without calls and branches: the compiler makes vectors of it.
void codes_of(const float* x, float step, float low, float high, int32_t (&codes)[kBlock]) {
  if (step == 0) {
    std::fill_n(codes, kBlock, 0);
    return;
  }
  constexpr float kWhole = 12582912;  // 1.5 * 2^23: floats there are whole numbers
  for (int64_t i = 0; i < kBlock; ++i) {
    const float at = x[i] / step;
    const float above = at < low ? low : at;
    const float within = above > high ? high : above;
    const int32_t code = std::bit_cast<int32_t>(within + kWhole) - std::bit_cast<int32_t>(kWhole);
    codes[i] = x[i] == x[i] ? code : 0;
  }
}

void put_q8(const float* x, uint16_t scale, BlockQ8_0& block) {
  int32_t codes[kBlock];
  codes_of(x, half_to_float(scale), -127, 127, codes);
  block.scale = scale;
  for (int64_t i = 0; i < kBlock; ++i) block.codes[i] = static_cast<int8_t>(codes[i]);
}

void put_q4(const float* x, uint16_t scale, BlockQ4_0& block) {
  int32_t codes[kBlock];
  codes_of(x, half_to_float(scale), -8, 7, codes);
  block.scale = scale;
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    block.codes[i] = static_cast<uint8_t>((codes[i] + 8) | (codes[i + kBlock / 2] + 8) << 4);
  }
}

// The scale of a group: Q4_0's reaches its largest element with code -8; the classic
// symmetric form has 15 steps from the largest to its negative.
uint16_t scale_of(const RequantizedForm& form, const float* x) {
  const float largest = largest_magnitude(x, form.group);
  if (form.dtype == DType::Q8_0) return half_scale(std::abs(largest) / 127);
  return half_scale(form.group == kBlock ? largest / -8 : std::abs(largest) * 2 / 15);
}

}  // namespace

std::span<const RequantizedForm> requantized_forms() {
  return kForms;
}

const RequantizedForm* find_requantized_form(std::string_view name) {
  const auto found = std::find_if(std::begin(kForms), std::end(kForms),
                                  [&](const RequantizedForm& form) { return form.name == name; });
  return found == std::end(kForms) ? nullptr : found;
}

void requantize_row(const RequantizedForm& form, const float* x, int64_t elems, std::byte* out) {
  const auto block_bytes = static_cast<size_t>(info(form.dtype).block_bytes);
  for (int64_t group = 0; group < elems; group += form.group) {
    const uint16_t scale = scale_of(form, x + group);
    for (int64_t i = group; i < group + form.group; i += kBlock, out += block_bytes) {
      // Through a block of its own: rows in a file have no alignment.
      if (form.dtype == DType::Q8_0) {
        BlockQ8_0 block;
        put_q8(x + i, scale, block);
        std::memcpy(out, &block, sizeof(block));
      } else {
        BlockQ4_0 block;
        put_q4(x + i, scale, block);
        std::memcpy(out, &block, sizeof(block));
      }
    }
  }
}

}  // namespace ktx
