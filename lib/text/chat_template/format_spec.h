// Parses and applies the format specification shared by '%5.2f' and '{:>8}':
// [[fill]align][sign][#][0][width][,|_][.precision][type].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/support/result.h"

namespace ktx::text::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ = ; 0: by type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

// Reads a format specification of str.format.
Result<FormatSpec> parse_spec(std::string_view text);
// The number at the start of `text`, which is taken from it; `limit` at most.
Result<int64_t> take_number(std::string_view& text, int64_t limit);

std::string format_integer(int64_t value, const FormatSpec& spec);
std::string format_float(double value, const FormatSpec& spec);
// The first `precision` characters; all where it is negative.
std::string cut(std::string text, int64_t precision);
// To spec.width, aligned as spec or else `default_align` says.
std::string pad(std::string body, const FormatSpec& spec, char default_align);

}  // namespace ktx::text::jinja
