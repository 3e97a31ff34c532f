#include "lib/support/display_width.h"

#include <cstdint>

namespace ktx {
namespace {

struct Range {
  uint32_t first, last;
};

// Marks that stand on the letter before them, joiners and variation selectors.
constexpr Range kZero[] = {{0x300, 0x36F},    {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                           {0x64B, 0x65F},    {0x93C, 0x93C},   {0x941, 0x948},   {0x94D, 0x94D},
                           {0xE31, 0xE31},    {0xE34, 0xE3A},   {0xE47, 0xE4E},   {0x1AB0, 0x1AFF},
                           {0x1DC0, 0x1DFF},  {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x2064},
                           {0x20D0, 0x20FF},  {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF},
                           {0xE0100, 0xE01EF}};

// East Asian wide and full-width characters, and pictures.
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2614, 0x2615},
    {0x26A1, 0x26A1},   {0x2705, 0x2705},   {0x2728, 0x2728},   {0x274C, 0x274C},
    {0x2B50, 0x2B50},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97C},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
    {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F19A}, {0x1F200, 0x1F320},
    {0x1F32D, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7EB}, {0x1F90C, 0x1F9FF},
    {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool is_in(const Range (&ranges)[N], uint32_t point) {
  for (const Range& range : ranges) {
    if (point >= range.first && point <= range.last) return true;
  }
  return false;
}

// The code point at the start of `text`, which loses its bytes.
uint32_t take_point(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t point = length == 1 ? lead : lead & (0x7F >> length);
  size_t used = 1;
  while (used < length && used < text.size() && (byte(used) & 0xC0) == 0x80) {
    point = point << 6 | (byte(used++) & 0x3F);
  }
  text.remove_prefix(used);
  return used == length ? point : '?';
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const uint32_t point = take_point(text);
    if (!is_in(kZero, point)) width += is_in(kWide, point) ? 2 : 1;
  }
  return width;
}

}  // namespace ktx
