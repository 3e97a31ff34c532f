#include "tools/ktx-compile/line_fingerprints.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>

#include "lib/text/utf8.h"

namespace ktx::tools {
namespace {

constexpr size_t kWindow = 100;  // units that a hash looks at
constexpr uint64_t kFactor = 37;
constexpr uint16_t kEnd = 0xFFFF;  // stands behind the last unit

// What is hashed of a text, and where in it each line begins.
struct Units {
  std::vector<uint16_t> units;
  std::vector<size_t> line_starts;

  void add(uint16_t unit) {
    if (at_line_start_) line_starts.push_back(units.size());
    at_line_start_ = unit == '\n';
    units.push_back(unit);
  }

 private:
  bool at_line_start_ = true;
};

Units units_of(std::string_view text) {
  Units out;
  bool after_return = false;
  while (!text.empty()) {
    const text::Utf8Char c = text::decode_utf8(text);
    text.remove_prefix(c.length);
    const bool skipped = c.code == ' ' || c.code == '\t' || (after_return && c.code == '\n');
    after_return = c.code == '\r';
    if (skipped) continue;
    if (c.code > 0xFFFF) {
      out.add(static_cast<uint16_t>(0xD800 + ((c.code - 0x10000) >> 10)));
      out.add(static_cast<uint16_t>(0xDC00 + ((c.code - 0x10000) & 0x3FF)));
    } else {
      out.add(after_return ? static_cast<uint16_t>('\n') : static_cast<uint16_t>(c.code));
    }
  }
  out.add(kEnd);
  return out;
}

}  // namespace

std::vector<std::string> line_fingerprints(std::string_view text) {
  const Units all = units_of(text);
  std::vector<std::string> out;
  std::map<uint64_t, int> seen;
  for (const size_t start : all.line_starts) {
    uint64_t hash = 0;
    for (size_t i = start; i < start + kWindow; ++i) {
      hash = hash * kFactor + (i < all.units.size() ? all.units[i] : 0);
    }
    out.push_back(fmt::format("{:x}:{}", hash, ++seen[hash]));
  }
  return out;
}

}  // namespace ktx::tools
